// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/feeds.h"

#include <cstdint>
#include <map>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// One feed against its input: type, rank, numbers, and symbols that must mean the same in every
// feed.
absl::Status CheckFeed(const Value& input, const Tensor& feed,
                       std::map<std::string, int64_t>& symbols) {
  auto error = [&](std::string_view as_elsewhere = "") {
    return absl::InvalidArgumentError(
        StrCat("input \"", input.name(), "\": expected ", DataTypeName(input.dtype()),
               input.shape() ? input.shape()->ToString() : "", as_elsewhere, ", got ",
               DataTypeName(feed.dtype()), DimsToString(feed.dims())));
  };
  if (feed.dtype() != input.dtype()) return error();
  if (!input.shape()) return absl::OkStatus();
  if (feed.rank() != input.shape()->rank()) return error();
  for (int axis = 0; axis < feed.rank(); ++axis) {
    const Dim& dim = (*input.shape())[axis];
    if (auto number = dim.constant(); number && *number != feed.dims()[axis]) return error();
    auto symbol = dim.symbol();
    if (!symbol) continue;
    auto [it, added] = symbols.try_emplace(*symbol, feed.dims()[axis]);
    if (!added && it->second != feed.dims()[axis]) {
      return error(StrCat(" with ", *symbol, " = ", it->second, " as in other inputs"));
    }
  }
  return absl::OkStatus();
}

// Sums of symbols ("past + seq") against what the symbols turned out to be.
absl::Status CheckSums(const Value& input, const Tensor& feed,
                       const std::map<std::string, Dim>& symbols) {
  for (int axis = 0; input.shape() && axis < feed.rank(); ++axis) {
    const auto expected = (*input.shape())[axis].Substitute(symbols).constant();
    if (!expected || *expected == feed.dims()[axis]) continue;
    return absl::InvalidArgumentError(StrCat(
        "input \"", input.name(), "\": expected ", DataTypeName(input.dtype()),
        input.shape()->ToString(), " with ", (*input.shape())[axis].ToString(), " = ", *expected,
        " as in other inputs, got ", DataTypeName(feed.dtype()), DimsToString(feed.dims())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFeeds(const std::vector<Value*>& inputs, const std::vector<Tensor>& feeds) {
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!feeds[i].defined()) continue;
    PF_RETURN_IF_ERROR(CheckFeed(*inputs[i], feeds[i], symbols));
  }
  const std::map<std::string, Dim> sizes(symbols.begin(), symbols.end());
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!feeds[i].defined()) continue;
    PF_RETURN_IF_ERROR(CheckSums(*inputs[i], feeds[i], sizes));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
