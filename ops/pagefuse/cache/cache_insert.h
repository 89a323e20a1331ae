// SPDX-License-Identifier: Apache-2.0
// What PagedCacheInsert and RopeCacheInsert share: ports, checks, and the call of their kernels.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/inserts/cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_context.h"

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

// uint8 rows are twins of float8e4m3fn.
inline DataType LogicalSourceType(DataType type) {
  return type == DataType::kUint8 ? DataType::kFloat8E4M3FN : type;
}

// What `kv_quant_mode` says of types, scales and signs.
absl::Status CheckCacheInsert(const ShapeContext& c, const CacheInsertPorts& ports);

// Checks values: slots (OutOfRange), scales and signs (InvalidArgument).
absl::Status ValidateCacheInsert(const KernelArgs& args, const CacheInsertPorts& ports);

// Of checked arguments. Rows are written through the outputs, which share memory with the inputs.
absl::StatusOr<CacheSides> MakeCacheSides(const KernelArgs& args, const CacheInsertPorts& ports);

}  // namespace pagefuse::pagefuse_ops
