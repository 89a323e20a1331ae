// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/cache_views.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {

namespace {

// Rows of a cache that the graph is given, each kept or replaced.
bool IsChoiceBesideCache(const Node& node) {
  if (!node.Is("Where")) return false;
  const auto& shape = node.output(0)->shape();
  for (int branch : {1, 2}) {
    const Value* kept = node.input(branch);
    const Value* cache = kept;
    while (cache->producer() && IsViewNode(*cache->producer())) {
      cache = cache->producer()->input(0);
    }
    const bool given = !cache->producer() && !cache->IsConstant();
    if (given && shape && kept->shape() && ProvablyEqual(*kept->shape(), *shape)) return true;
  }
  return false;
}

}  // namespace

// Scatters stand at most a few views away from the cache that they give.
bool IsWrittenCache(const Value& value) {
  const Node* node = value.producer();
  constexpr int kMaxViews = 4;
  for (int i = 0; node && i < kMaxViews; ++i) {
    if (node->Is("ScatterND") || node->Is("ScatterElements") || node->Is("TensorScatter")) {
      return Rank(value) > 0;
    }
    if (IsChoiceBesideCache(*node)) return Rank(value) > 0;
    const bool passes = node->Is("Reshape") || node->Is("Squeeze") || node->Is("Unsqueeze") ||
                        node->Is("Slice") || node->Is("Where") || node->Is("Concat") ||
                        node->Is("Transpose") || node->Is("BitCast") || node->Is("Cast");
    if (!passes || !node->input(0)) return false;
    const Value* next = node->Is("Where") ? node->input(1) : node->input(0);
    node = next->producer();
  }
  return false;
}

int64_t UnitsOf(const Value& cache, int64_t inner) {
  constexpr int64_t kSymbolSize = 8;
  int64_t elements = 1;
  for (const Dim& dim : cache.shape()->dims()) elements *= dim.constant().value_or(kSymbolSize);
  return inner > 0 ? elements / inner : 0;
}

std::vector<int64_t> Widths(const Value& cache) {
  std::vector<int64_t> widths;
  int64_t width = 1;
  for (int axis = 1; axis <= Rank(cache); ++axis) {
    const int64_t dim = BackDim(cache, axis);
    if (dim < 0) break;
    width *= dim;
    if (axis < Rank(cache) || Rank(cache) == 1) widths.push_back(width);
  }
  std::reverse(widths.begin(), widths.end());
  return widths;
}

std::vector<int64_t> BlockSizes(const FusionSearch& search, Value* cache, int64_t most) {
  std::vector<int64_t> sizes = Divisors(search.UpstreamOf({cache}).nodes);
  std::erase_if(sizes, [most](int64_t size) { return size > most; });
  return sizes;
}

CacheView ViewCache(const Value& cache, const std::string& port, const std::string& dims) {
  const auto original = ReshapeDims(cache);
  if (!original || *original == dims) {
    return {port, StrCat("cache = Identity (", port, ")  "),
            StrCat(port, "_out = Identity (written)  ")};
  }
  return {port, ReshapeText("cache", port, dims), ReshapeText(port + "_out", "written", *original)};
}

RowCache ReadRowCache(const Value& cache) {
  const int64_t width = BackDim(cache, 1);
  int64_t block_size = 1;
  for (int axis = 2; axis < Rank(cache); ++axis) {
    block_size *= std::max<int64_t>(BackDim(cache, axis), 1);
  }
  const std::string dims = StrCat("[-1, ", block_size, ", ", width, "]");
  return {Rank(cache) == 3 ? *ReshapeDims(cache) : dims, UnitsOf(cache, width) / block_size,
          block_size};
}

}  // namespace pagefuse
