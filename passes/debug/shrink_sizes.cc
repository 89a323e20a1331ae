// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/shrink_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_ports.h"

namespace pagefuse {
namespace {

constexpr int kBitsOfByte = 8;

// The first `size` places along an axis.
std::optional<Tensor> FirstAlong(const Tensor& tensor, int axis, int64_t size) {
  const int bits = BitWidth(tensor.dtype());
  if (bits % kBitsOfByte != 0 || bits == 0 || size > tensor.dims()[axis]) return std::nullopt;
  std::vector<int64_t> dims = tensor.dims();
  const int64_t before = std::exchange(dims[axis], size);
  absl::StatusOr<Tensor> cut = Tensor::Allocate(tensor.dtype(), dims);
  if (!cut.ok()) return std::nullopt;
  int64_t inner = bits / kBitsOfByte, outer = 1;
  for (int i = 0; i < tensor.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : dims[i];
  const auto* from = static_cast<const std::byte*>(tensor.data());
  auto* to = static_cast<std::byte*>(cut->mutable_data());
  for (int64_t i = 0; i < outer; ++i) {
    if (size * inner > 0)
      std::memcpy(to + i * size * inner, from + i * before * inner, size * inner);
  }
  return *std::move(cut);
}

std::optional<Tensor> FirstAlong(const Tensor& tensor, const std::vector<int>& axes, int64_t size) {
  std::optional<Tensor> cut = tensor;
  for (const int axis : axes) {
    if (cut) cut = FirstAlong(*cut, axis, size);
  }
  return cut;
}

std::vector<int> AxesOf(const Value& value, const Dim& dim) {
  std::vector<int> axes;
  for (int i = 0; value.shape() && i < value.shape()->rank(); ++i) {
    if ((*value.shape())[i] == dim) axes.push_back(i);
  }
  return axes;
}

std::vector<Value*> Sources(const Graph& graph) {
  std::vector<Value*> sources = graph.inputs();
  for (Value* constant : graph.initializers()) {
    if (!constant->is_input()) sources.push_back(constant);
  }
  return sources;
}

}  // namespace

std::vector<CaseSize> SizesOf(const ReduceCase& reduced) {
  std::map<std::string, CaseSize> sizes;
  for (const Value* value : Sources(*reduced.model.graph)) {
    for (int i = 0; value->shape() && i < value->shape()->rank(); ++i) {
      const Dim& dim = (*value->shape())[i];
      int64_t size = dim.constant().value_or(0);
      if (dim.symbol() && !reduced.feeds.empty()) {
        const auto feed = reduced.feeds[0].find(value->name());
        if (feed != reduced.feeds[0].end()) size = feed->second.dims()[i];
      }
      if (size > 1) sizes[dim.ToString()] = {dim, size};
    }
  }
  std::vector<CaseSize> sorted;
  for (auto& [name, size] : sizes) sorted.push_back(std::move(size));
  std::ranges::stable_sort(sorted,
                           [](const CaseSize& a, const CaseSize& b) { return a.size > b.size; });
  return sorted;
}

std::optional<ReduceCase> WithSize(const ReduceCase& reduced, const CaseSize& from, int64_t size) {
  ReduceCase smaller{.model = reduced.model.Clone(), .feeds = reduced.feeds};
  Graph& graph = *smaller.model.graph;
  for (Value* value : Sources(graph)) {
    const std::vector<int> axes = AxesOf(*value, from.dim);
    if (axes.empty()) continue;
    if (from.dim.is_constant()) {
      Shape shape = *value->shape();
      for (const int axis : axes) shape[axis] = Dim(size);
      value->set_shape(shape);
    }
    if (value->initializer() != nullptr) {
      std::optional<Tensor> cut = FirstAlong(*value->initializer(), axes, size);
      if (!cut) return std::nullopt;
      graph.SetInitializer(value, *std::move(cut));
    }
    for (auto& feeds : smaller.feeds) {
      const auto feed = feeds.find(value->name());
      if (feed == feeds.end()) continue;
      std::optional<Tensor> cut = FirstAlong(feed->second, axes, size);
      if (!cut) return std::nullopt;
      feed->second = *std::move(cut);
    }
  }
  ForgetShapes(graph);
  if (!InferShapes(smaller.model).ok()) return std::nullopt;
  return smaller;
}

}  // namespace pagefuse
