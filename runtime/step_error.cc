// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/step_error.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr char kPayload[] = "pagefuse/token";

}  // namespace

absl::Status AtToken(absl::Status error, int64_t token) {
  error.SetPayload(kPayload, absl::Cord(StrCat(token)));
  return error;
}

absl::Status WithoutToken(absl::Status error) {
  error.ErasePayload(kPayload);
  return error;
}

std::optional<int64_t> TokenOf(const absl::Status& error) {
  const auto payload = error.GetPayload(kPayload);
  int64_t token = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &token)) return std::nullopt;
  return token;
}

}  // namespace pagefuse
