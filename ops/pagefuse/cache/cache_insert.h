// What PagedCacheInsert and RopeCacheInsert share: ports, checks, and the rows that they write.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse::pagefuse_ops {

// Input numbers of one op, besides those of the cache; outputs are key_cache_out, value_cache_out,
// then the scale caches.
struct CacheInsertPorts : CachePorts {
  int key = -1;
  int value = -1;
  int slot_mapping = -1;
  int first_output = 0;
};

template <size_t I, size_t O>
constexpr CacheInsertPorts CacheInsertPortsOf(const Ports<I>& inputs, const Ports<O>& outputs) {
  CacheInsertPorts ports{CachePortsOf(inputs)};
  ports.key = inputs.Find("key");
  ports.value = inputs.Find("value");
  ports.slot_mapping = inputs.Find("slot_mapping");
  ports.first_output = outputs.Find("key_cache_out");
  return ports;
}

// The attributes of the quantisation. InvalidArgument naming node and attribute.
struct CacheInsertMode {
  KvQuantMode mode = KvQuantMode::kNone;
  Int8Rounding rounding = Int8Rounding::kHalfEven;
};
absl::StatusOr<CacheInsertMode> ReadCacheInsertMode(const Node& node);

// What `kv_quant_mode` says of types, scales and signs.
absl::Status CheckCacheInsert(const ShapeContext& c, const CacheInsertPorts& ports);

// Checks values: slots (OutOfRange), scales and signs (InvalidArgument).
absl::Status ValidateCacheInsert(const KernelArgs& args, const CacheInsertPorts& ports);

// The keys or the values of one insert.
struct CacheSide {
  CacheFormat format;
  DataType source_type = DataType::kFloat;  // logical: uint8 stands for float8e4m3fn
  const uint8_t* source = nullptr;          // [tokens, heads, head_size]
  int64_t heads = 0;
  int64_t head_size = 0;
  CacheRows rows;
  const float* tensor_scales = nullptr;  // fp8_per_tensor: one for all heads, or one a head
  int64_t tensor_scale_count = 1;
  const float* rht_signs = nullptr;

  RowParams Params(int64_t head) const;
  int64_t SourceRowBytes() const;
  const uint8_t* SourceRow(int64_t token, int64_t head) const;
  // The row's bytes are stored unchanged: nothing is quantised, or the source is quantised already.
  bool CopiesBytes() const;
};
struct CacheSides {
  CacheSide key;
  CacheSide value;
};
// Of checked arguments. Rows are written through the outputs, which share memory with the inputs.
absl::StatusOr<CacheSides> MakeCacheSides(const KernelArgs& args, const CacheInsertPorts& ports);

using SideList = std::initializer_list<const CacheSide*>;

// Writes the tokens' rows of each side, the plain way.
void InsertRows(SideList sides, const std::vector<SlotWrite>& writes);
// The same bytes, vectorised and parallel over tokens.
void InsertRowsHwy(SideList sides, const std::vector<SlotWrite>& writes);

}  // namespace pagefuse::pagefuse_ops
