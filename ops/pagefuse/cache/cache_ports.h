// SPDX-License-Identifier: Apache-2.0
// The ports of a paged cache of keys and values, and what the attribute `kv_quant_mode` says of
// them: types, sizes of rows, which scales there are.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// Input numbers of one op; -1: it has no such input.
struct CachePorts {
  int key_cache = -1;
  int value_cache = -1;
  int k_scale = -1;
  int v_scale = -1;
  int k_scale_cache = -1;
  int v_scale_cache = -1;
  int rht_signs = -1;
};

template <size_t N>
constexpr CachePorts CachePortsOf(const Ports<N>& inputs) {
  return {.key_cache = inputs.Find("key_cache"),
          .value_cache = inputs.Find("value_cache"),
          .k_scale = inputs.Find("k_scale"),
          .v_scale = inputs.Find("v_scale"),
          .k_scale_cache = inputs.Find("k_scale_cache"),
          .v_scale_cache = inputs.Find("v_scale_cache"),
          .rht_signs = inputs.Find("rht_signs")};
}

// The attributes `kv_quant_mode` and `int8_rounding`, without the type of a cache. InvalidArgument
// naming node and attribute.
absl::StatusOr<CacheFormat> ReadCacheFormat(const Node& node);

// The types of the caches, and that the scales and signs of the mode are given.
absl::Status CheckCachePorts(const ShapeContext& c, const CachePorts& ports);

// The rows of a cache [blocks, block_size, heads, ...] and of its scales [blocks, block_size, heads],
// which are absent where the format has none.
CacheRows RowsOfCache(const CacheFormat& format, int64_t head_size, const TensorArg& cache,
                      const TensorArg& scales);

// The last dim of a cache whose rows have the size that the op's shapes call `row`; `source` is the
// input that the size comes from.
SizeDef::ComputeFn StoredSize(std::string_view row, int source);

}  // namespace pagefuse
