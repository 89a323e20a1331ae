// SPDX-License-Identifier: Apache-2.0
// CompressorStateInsert, CompressCacheInsert and WindowCompress on the device.
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/cuda/rotation_args.h"
#include "pagefuse/ops/cuda/slot_mapping.h"
#include "pagefuse/ops/kernels/cuda/compress.h"
#include "pagefuse/ops/kernels/cuda/window_compress.h"
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"

namespace pagefuse::cuda {
namespace {

using pagefuse_ops::kCcIn;
using pagefuse_ops::ReadPaged;

CacheRows StateRows(const TensorArg& state) {
  return PlainRows(4 * state.dim(2), {state.dim(0), state.dim(1), state.block_bytes()}, state.data);
}

// --- CompressorStateInsert ---

struct StatePorts {
  int kv, score, ape, positions, slot_mapping;

  explicit StatePorts(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    kv = in("kv"), score = in("score"), ape = in("ape");
    positions = in("positions"), slot_mapping = in("slot_mapping");
  }
};

absl::Status RunStateInsert(KernelArgs& args, const StatePorts& ports) {
  const TensorArg& kv = args.input(ports.kv);
  const TensorArg& state = args.output(0);
  StateInsert call;
  call.type = kv.dtype;
  call.width = kv.dim(1);
  call.half = state.dim(2) / 2;
  call.kv = kv.data;
  call.score = args.input(ports.score).data;
  call.ape = args.input(ports.ape).as<const float>();
  PF_ASSIGN_OR_RETURN(call.ratio, args.node->IntAttribute("compress_ratio", 1));
  call.positions = IndicesIn(args.input(ports.positions));
  call.positions_input = ports.positions;
  call.rows = StateRows(state);
  call.slots = {.mapping = SlotMappingOf(args, ports.slot_mapping),
                .num_slots = state.dim(0) * state.dim(1),
                .errors = IndexErrorsOf(args),
                .input = ports.slot_mapping};
  return LaunchStatus(LaunchStateInsert(call, StreamOf(args)));
}

// --- CompressCacheInsert ---

constexpr int kState = kCcIn["state_cache"], kTokenToReq = kCcIn["token_to_req"];
constexpr int kPositions = kCcIn["positions"], kSlots = kCcIn["slot_mapping"];
constexpr int kTable = kCcIn["block_table"], kWeight = kCcIn["rms_weight"];
constexpr int kCosSin = kCcIn["cos_sin"], kKvSlots = kCcIn["kv_slot_mapping"];
constexpr int kCache = kCcIn["kv_cache"];

// What a window is read from.
absl::Status SetWindows(const KernelArgs& args, CompressInsert& call) {
  const TensorArg& table = args.input(kTable);
  call.tokens = args.input(kSlots).dim(0);
  call.state = StateRows(args.input(kState));
  call.slots = IndicesIn(args.input(kSlots));
  call.positions = IndicesIn(args.input(kPositions));
  call.token_to_req = args.input(kTokenToReq).as<const int32_t>();
  call.block_table = table.as<const int32_t>();
  call.requests = table.dim(0);
  call.table_columns = table.dim(1);
  constexpr int64_t kMostPositions = std::numeric_limits<int32_t>::max();
  if (call.state.block_size == 0 || call.table_columns <= kMostPositions / call.state.block_size) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(StrCat("tables of more than ", kMostPositions, " positions, got ",
                                         call.table_columns, " blocks of ", call.state.block_size));
}

// Where its row goes.
absl::Status SetRows(const KernelArgs& args, const pagefuse_ops::CompressAttributes& a,
                     CompressInsert& call) {
  const TensorArg& cache = args.output(0);
  PF_ASSIGN_OR_RETURN(PagedBytes paged, ReadPaged(args, kCache));
  call.kv_slots = SlotMappingOf(args, kKvSlots);
  if (a.is_plain()) {
    call.plain_type = cache.dtype;
    call.rows = PlainRows(call.size * BitWidth(cache.dtype) / 8, paged, cache.data);
    return absl::OkStatus();
  }
  paged.block_size = a.kv_block_size;
  PF_ASSIGN_OR_RETURN(call.format, a.RowFormat(call.size, 2 * call.rotation.pairs));
  call.rows = GroupedRows(call.format, paged, cache.data);
  return absl::OkStatus();
}

absl::Status RunCompressInsert(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const pagefuse_ops::CompressAttributes a,
                      pagefuse_ops::ReadCompress(*args.node));
  const TensorArg& weight = args.input(kWeight);
  PF_RETURN_IF_ERROR(CheckRowLength(weight.size()));
  CompressInsert call;
  call.ratio = a.window.ratio;
  call.overlap = static_cast<int>(a.window.overlap);
  call.size = static_cast<int>(weight.size());
  call.weight_type = weight.dtype;
  call.weight = weight.data;
  call.epsilon = a.eps;
  call.rotation = RowRotationOf(args.input(kCosSin), weight.size());
  call.table_row_of_token = a.cos_sin_rows;
  call.hadamard = a.hadamard;
  call.inputs = {.token_to_req = kTokenToReq,
                 .positions = kPositions,
                 .block_table = kTable,
                 .kv_slots = kKvSlots};
  call.errors = IndexErrorsOf(args);
  PF_RETURN_IF_ERROR(SetWindows(args, call));
  PF_RETURN_IF_ERROR(SetRows(args, a, call));
  return LaunchStatus(LaunchCompressInsert(call, StreamOf(args)));
}

// --- WindowCompress ---

struct WindowPorts {
  int kv, gate, bias;

  explicit WindowPorts(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    kv = in("kv"), gate = in("gate"), bias = in("bias");
  }
};

absl::Status RunWindowCompress(KernelArgs& args, const WindowPorts& ports) {
  const TensorArg& kv = args.input(ports.kv);
  const TensorArg& rows = args.output(0);
  WindowCompress call;
  call.kv = kv.as<const float>();
  call.gate = args.input(ports.gate).as<const float>();
  call.bias = args.input(ports.bias).as<const float>();
  call.rows = rows.as<float>();
  call.batch = kv.dim(0);
  call.length = kv.dim(1);
  call.windows = rows.dim(1);
  call.size = rows.dim(2);
  PF_ASSIGN_OR_RETURN(call.ratio, args.node->IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(const int64_t overlap, args.node->IntAttribute("overlap", 0));
  call.overlap = static_cast<int>(overlap);
  return LaunchStatus(LaunchWindowCompress(call, StreamOf(args)));
}

}  // namespace

void AddCompressKernels(OpRegistry& ops) {
  const StatePorts state(*ops.Find("pagefuse", "CompressorStateInsert", 1));
  AddKernelTo(ops, "pagefuse", "CompressorStateInsert",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .run = [state](KernelArgs& args) { return RunStateInsert(args, state); }});
  AddKernelTo(ops, "pagefuse", "CompressCacheInsert",
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .supports = [](const KernelQuery& query) { return CheckRowsOf(query, kWeight); },
               .run = RunCompressInsert});
  const WindowPorts windows(*ops.Find("pagefuse", "WindowCompress", 1));
  AddKernelTo(
      ops, "pagefuse", "WindowCompress",
      {.name = "cuda", .device = Device::kCuda, .priority = 10, .run = [windows](KernelArgs& args) {
         return RunWindowCompress(args, windows);
       }});
}

}  // namespace pagefuse::cuda
