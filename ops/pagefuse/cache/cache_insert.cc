// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::pagefuse_ops {
absl::Status CheckCacheInsert(const ShapeContext& c, const CacheInsertPorts& ports) {
  PF_RETURN_IF_ERROR(CheckCachePorts(c, ports));
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(c.node()));
  for (const int source : {ports.key, ports.value}) {
    const DataType type = c.input_type(source);
    if (!format.needs_signs() || (!IsFloat8(type) && type != DataType::kUint8)) continue;
    return c.InputError(source, absl::StrCat("expected type float, float16 or bfloat16 with ",
                                             "kv_quant_mode = ", std::string(format.name())));
  }
  // Scale caches come back exactly where they are written: an update that no output shows would be
  // lost.
  for (const int output : {ports.first_output + 2, ports.first_output + 3}) {
    if (c.has_output(output) == format.has_row_scales()) continue;
    return c.OutputError(output,
                         absl::StrCat(format.has_row_scales() ? "is missing" : "is not expected",
                                      " with kv_quant_mode = ", std::string(format.name())));
  }
  return absl::OkStatus();
}

absl::Status ValidateCacheInsert(const KernelArgs& args, const CacheInsertPorts& ports) {
  const TensorArg& cache = args.input(ports.key_cache);
  PF_RETURN_IF_ERROR(CheckSlots(args, ports.slot_mapping,
                                {.num_blocks = cache.dim(0), .block_size = cache.dim(1)}));
  PF_RETURN_IF_ERROR(CheckScale(args, ports.k_scale));
  PF_RETURN_IF_ERROR(CheckScale(args, ports.v_scale));
  if (ports.rht_signs < 0) return absl::OkStatus();
  const TensorArg& signs = args.input(ports.rht_signs);
  for (int64_t i = 0; IsKnown(signs) && i < signs.size(); ++i) {
    const float value = signs.as<const float>()[i];
    if (std::fabs(value) == 1.0f) continue;
    return InputValueError(args, ports.rht_signs,
                           absl::StrCat("expected 1 or -1, got ", value, " at ", i));
  }
  return absl::OkStatus();
}

absl::StatusOr<CacheSides> MakeCacheSides(const KernelArgs& args, const CacheInsertPorts& ports) {
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(*args.node));
  struct Ports {
    int source, scale, out, scale_out;
  };
  const auto make = [&](const Ports& p) -> absl::StatusOr<CacheSide> {
    const TensorArg& source = args.input(p.source);
    const TensorArg& cache = args.output(ports.first_output + p.out);
    CacheSide side;
    PF_ASSIGN_OR_RETURN(side.format, format.StoredAs(cache.dtype));
    side.source_type = LogicalSourceType(source.dtype);
    side.source = source.as<const uint8_t>();
    side.heads = source.dim(1);
    side.head_size = source.dim(2);
    side.rows = RowsOfCache(side.format, side.head_size, cache,
                            args.output(ports.first_output + p.scale_out));
    const TensorArg& scale = args.input(p.scale);
    if (scale.present() && side.format.has_tensor_scale()) {
      side.tensor_scales = scale.as<const float>();
      side.tensor_scale_count = scale.size();
    }
    if (ports.rht_signs >= 0) side.rht_signs = args.input(ports.rht_signs).as<const float>();
    return side;
  };
  CacheSides sides;
  PF_ASSIGN_OR_RETURN(sides.key, make({ports.key, ports.k_scale, 0, 2}));
  PF_ASSIGN_OR_RETURN(sides.value, make({ports.value, ports.v_scale, 1, 3}));
  sides.writes = SlotWrites(args.input(ports.slot_mapping));
  return sides;
}

}  // namespace pagefuse::pagefuse_ops
