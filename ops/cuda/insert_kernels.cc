// SPDX-License-Identifier: Apache-2.0
// PagedCacheInsert and RopeCacheInsert on the device, in every mode.
#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/constant_inputs.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/known_formats.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/cuda/slot_mapping.h"
#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/kernels/cuda/rope_cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

namespace pagefuse::cuda {
namespace {

using pagefuse_ops::CacheInsertPorts;

struct InsertPortNumbers : CacheInsertPorts {
  int query, positions, cos, sin, q_norm, k_norm;  // of RopeCacheInsert

  explicit InsertPortNumbers(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    key = in("key"), value = in("value"), slot_mapping = in("slot_mapping");
    key_cache = in("key_cache"), value_cache = in("value_cache");
    k_scale = in("k_scale"), v_scale = in("v_scale");
    k_scale_cache = in("k_scale_cache"), v_scale_cache = in("v_scale_cache");
    rht_signs = in("rht_signs");
    first_output = PortNumber(op.outputs(), "key_cache_out");
    query = in("query"), positions = in("positions"), cos = in("cos"), sin = in("sin");
    q_norm = in("q_norm_weight"), k_norm = in("k_norm_weight");
  }
};

// One side: its inputs, and the outputs that it writes.
struct SidePorts {
  int source, scale, cache_out, scale_out;
};

absl::StatusOr<InsertSide> MakeSide(const KernelArgs& args, const CacheFormat& format,
                                    const SidePorts& ports, int rht_signs) {
  const TensorArg& source = args.input(ports.source);
  const TensorArg& cache = args.output(ports.cache_out);
  InsertSide side;
  PF_ASSIGN_OR_RETURN(const CacheFormat stored, format.StoredAs(cache.dtype));
  side.mode = stored.mode;
  side.element = stored.element;
  side.int8_rounding = stored.int8_rounding;
  side.source_type = pagefuse_ops::LogicalSourceType(source.dtype);
  side.source = source.as<const uint8_t>();
  side.heads = static_cast<int>(source.dim(1));
  side.head_size = static_cast<int>(source.dim(2));
  side.rows = RowsOfCache(stored, side.head_size, cache, args.output(ports.scale_out));
  const TensorArg& scale = args.input(ports.scale);
  if (scale.present() && stored.has_tensor_scale()) {
    side.tensor_scales = scale.as<const float>();
    side.tensor_scale_count = scale.size();
  }
  if (rht_signs >= 0) side.rht_signs = args.input(rht_signs).as<const float>();
  if (side.head_size <= kLongestInsertRow) return side;
  return absl::UnimplementedError(
      StrCat("rows of more than ", kLongestInsertRow, " elements, got ", side.head_size));
}

// Sets key, value and slots of either call.
template <class Call>
absl::Status SetSides(const KernelArgs& args, const CacheInsertPorts& ports, Call& call) {
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(*args.node));
  const int out = ports.first_output;
  PF_ASSIGN_OR_RETURN(
      call.key, MakeSide(args, format, {ports.key, ports.k_scale, out, out + 2}, ports.rht_signs));
  PF_ASSIGN_OR_RETURN(
      call.value,
      MakeSide(args, format, {ports.value, ports.v_scale, out + 1, out + 3}, ports.rht_signs));
  call.slots = SlotMappingOf(args, ports.slot_mapping);
  return absl::OkStatus();
}

absl::Status RunCacheInsert(KernelArgs& args, const CacheInsertPorts& ports) {
  CacheInsert call;
  PF_RETURN_IF_ERROR(SetSides(args, ports, call));
  return LaunchStatus(LaunchCacheInsert(call, StreamOf(args)));
}

absl::Status RunRopeCacheInsert(KernelArgs& args, const InsertPortNumbers& ports) {
  RopeCacheInsert call;
  PF_RETURN_IF_ERROR(SetSides(args, ports, call));
  const TensorArg& query = args.input(ports.query);
  const TensorArg& positions = args.input(ports.positions);
  const TensorArg& cos = args.input(ports.cos);
  const TensorArg& weight = args.input(ports.q_norm);
  call.type = query.dtype;
  call.tokens = query.dim(0);
  call.heads = static_cast<int>(query.dim(1));
  call.size = static_cast<int>(query.dim(2));
  call.query = query.data;
  call.query_out = args.output(0).data;
  call.positions = positions.data;
  call.positions_int64 = positions.dtype == DataType::kInt64;
  call.table_rows = cos.dim(0);
  call.table_type = cos.dtype;
  call.cos = cos.data;
  call.sin = args.input(ports.sin).data;
  call.pairs = static_cast<int>(cos.dim(1));
  PF_ASSIGN_OR_RETURN(const int64_t offset, args.node->IntAttribute("rotary_offset", 0));
  call.offset = static_cast<int>(offset);
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  call.interleaved = interleaved == 1;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", 1e-6f));
  call.weight_type = weight.dtype;
  call.q_norm = weight.data;
  call.k_norm = args.input(ports.k_norm).data;
  call.constant_weights = AreConstant(*args.node, {ports.q_norm, ports.k_norm});
  return LaunchStatus(LaunchRopeCacheInsert(call, StreamOf(args)));
}

}  // namespace

void AddInsertKernels(OpRegistry& ops) {
  const InsertPortNumbers plain(*ops.Find("pagefuse", "PagedCacheInsert", 1));
  AddKernelTo(ops, "pagefuse", "PagedCacheInsert",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .supports = SupportsFormat,
               .run = [plain](KernelArgs& args) { return RunCacheInsert(args, plain); }});
  const InsertPortNumbers rope(*ops.Find("pagefuse", "RopeCacheInsert", 1));
  AddKernelTo(ops, "pagefuse", "RopeCacheInsert",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .supports = SupportsFormat,
               .run = [rope](KernelArgs& args) { return RunRopeCacheInsert(args, rope); }});
}

}  // namespace pagefuse::cuda
