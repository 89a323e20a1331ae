// SPDX-License-Identifier: Apache-2.0
// InvRopeQuant, IndexerQRopeQuant and QNormRopeKvInsert on the device.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/cuda/rotation_args.h"
#include "pagefuse/ops/cuda/slot_mapping.h"
#include "pagefuse/ops/kernels/cuda/qnorm_rope_insert.h"
#include "pagefuse/ops/kernels/cuda/rope_quant.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"

namespace pagefuse::cuda {
namespace {

struct RowPorts {
  int rows, positions, cos_sin;

  RowPorts(const OpDef& op, std::string_view rows_name)
      : rows(PortNumber(op.inputs(), rows_name)),
        positions(PortNumber(op.inputs(), "positions")),
        cos_sin(PortNumber(op.inputs(), "cos_sin")) {}
};

absl::StatusOr<RotatedRows> RowsOf(const KernelArgs& args, const RowPorts& ports) {
  const TensorArg& source = args.input(ports.rows);
  PF_RETURN_IF_ERROR(CheckRowLength(source.dim(2)));
  RotatedRows rows;
  rows.type = source.dtype;
  rows.source = source.data;
  rows.tokens = source.dim(0);
  rows.heads = static_cast<int>(source.dim(1));
  rows.size = static_cast<int>(source.dim(2));
  rows.rotation = RowRotationOf(args.input(ports.cos_sin), source.dim(2));
  rows.positions = IndicesIn(args.input(ports.positions));
  rows.positions_input = ports.positions;
  rows.errors = IndexErrorsOf(args);
  return rows;
}

// --- InvRopeQuant ---

absl::Status RunInvRope(KernelArgs& args, const RowPorts& ports) {
  constexpr int64_t kGroup = 128;
  InvRopeQuant call;
  PF_ASSIGN_OR_RETURN(call.rows, RowsOf(args, ports));
  call.rows.rotation.inverse = true;
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroup));
  call.group = static_cast<int>(group);
  // Four bytes of UE8M0 are the packed int32, low byte first.
  const bool packed = args.output(1).dtype == DataType::kInt32;
  call.format = {GroupCodes::kE4M3, packed ? GroupScale::kUe8m0 : GroupScale::kPowerOfTwo,
                 kOutputScaleFloor};
  call.codes = args.output(0).as<uint8_t>();
  call.scales = args.output(1).as<uint8_t>();
  return LaunchStatus(LaunchInvRopeQuant(call, StreamOf(args)));
}

// --- IndexerQRopeQuant ---

struct IndexerPorts : RowPorts {
  int weights;

  explicit IndexerPorts(const OpDef& op)
      : RowPorts(op, "q"), weights(PortNumber(op.inputs(), "weights")) {}
};

absl::Status SetLayout(const Node& node, RowRotation& rotation) {
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, node.IntAttribute("interleaved", 1));
  PF_ASSIGN_OR_RETURN(const int64_t offset, node.IntAttribute("rotary_offset", rotation.offset));
  rotation.interleaved = interleaved != 0;
  rotation.offset = static_cast<int>(offset);
  return absl::OkStatus();
}

absl::Status SetFormat(const KernelArgs& args, IndexerQRopeQuant& call) {
  constexpr int kMxfp4Group = 32;
  constexpr std::string_view kPlain = "none", kMxfp4 = "mxfp4";
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", "fp8"));
  call.is_plain = format == kPlain;
  call.format = {GroupCodes::kE4M3, GroupScale::kPowerOfTwo, kCacheScaleFloor};
  call.group = call.rows.size;
  if (format != kMxfp4) return absl::OkStatus();
  call.format = {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  call.group = kMxfp4Group;
  call.scales = args.output(2).as<uint8_t>();
  return absl::OkStatus();
}

absl::Status RunIndexerQuery(KernelArgs& args, const IndexerPorts& ports) {
  IndexerQRopeQuant call;
  PF_ASSIGN_OR_RETURN(call.rows, RowsOf(args, ports));
  PF_RETURN_IF_ERROR(SetLayout(*args.node, call.rows.rotation));
  PF_RETURN_IF_ERROR(SetFormat(args, call));
  PF_ASSIGN_OR_RETURN(call.hadamard, pagefuse_ops::HasHadamard(*args.node));
  call.codes = args.output(0).as<uint8_t>();
  call.weight_type = args.input(ports.weights).dtype;
  call.weights = args.input(ports.weights).data;
  call.weights_out = args.output(1).as<float>();
  PF_ASSIGN_OR_RETURN(call.softmax_scale, args.node->FloatAttribute("softmax_scale", 0));
  PF_ASSIGN_OR_RETURN(call.head_scale, args.node->FloatAttribute("head_scale", 0));
  return LaunchStatus(LaunchIndexerQRopeQuant(call, StreamOf(args)));
}

// --- QNormRopeKvInsert ---

constexpr const auto& kQn = pagefuse_ops::kQnIn;
constexpr int kKv = kQn["kv"], kCache = kQn["kv_cache"], kSlots = kQn["slot_mapping"];
constexpr int kKvScale = kQn["kv_scale"], kQueryScale = kQn["q_scale_inv"];

// How rows are stored, and where they lie.
absl::Status SetStorage(const KernelArgs& args, QNormRopeInsert& call) {
  constexpr int64_t kGroup = 64;
  const TensorArg& cache = args.output(1);
  const RowRotation& rotation = call.query.rotation;
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", "fp8_ue8m0"));
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroup));
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, pagefuse_ops::ReadPaged(args, kCache));
  if (format == "fp8_ue8m0") {
    call.storage = QNormStorage::kGrouped;
    call.row_format = Fp8Ue8m0Row(rotation.offset, 2 * rotation.pairs, group);
    call.rows = GroupedRows(call.row_format, paged, cache.data);
  } else {
    call.storage = format == "fp8" ? QNormStorage::kFp8 : QNormStorage::kPlain;
    call.row_type = cache.dtype;
    call.rows = PlainRows(call.query.size * BitWidth(cache.dtype) / 8, paged, cache.data);
  }
  call.slots = {.mapping = SlotMappingOf(args, kSlots),
                .num_slots = paged.num_blocks * paged.block_size,
                .errors = call.query.errors,
                .input = kSlots};
  return absl::OkStatus();
}

absl::Status RunQNorm(KernelArgs& args, const RowPorts& ports) {
  QNormRopeInsert call;
  PF_ASSIGN_OR_RETURN(call.query, RowsOf(args, ports));
  PF_RETURN_IF_ERROR(SetStorage(args, call));
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("eps", 1e-6f));
  call.padded_heads = static_cast<int>(args.output(0).dim(1));
  call.query_out = args.output(0).data;
  call.kv = args.input(kKv).data;
  call.kv_scale = args.input(kKvScale).as<const float>();
  call.query_factor = args.input(kQueryScale).as<const float>();
  return LaunchStatus(LaunchQNormRopeInsert(call, StreamOf(args)));
}

template <class Ports>
void AddRows(OpRegistry& ops, std::string_view op, const Ports& ports,
             absl::Status (*run)(KernelArgs&, const Ports&)) {
  AddKernelTo(
      ops, "pagefuse", op,
      {.name = "cuda",
       .device = Device::kCuda,
       .priority = 10,
       .checks_indices = true,
       .supports = [ports](const KernelQuery& query) { return CheckRowsOf(query, ports.rows); },
       .run = [ports, run](KernelArgs& args) { return run(args, ports); }});
}

}  // namespace

void AddRopeQuantKernels(OpRegistry& ops) {
  const auto def = [&](const char* op) -> const OpDef& { return *ops.Find("pagefuse", op, 1); };
  AddRows(ops, "InvRopeQuant", RowPorts(def("InvRopeQuant"), "o"), RunInvRope);
  AddRows(ops, "IndexerQRopeQuant", IndexerPorts(def("IndexerQRopeQuant")), RunIndexerQuery);
  AddRows(ops, "QNormRopeKvInsert", RowPorts(def("QNormRopeKvInsert"), "q"), RunQNorm);
}

}  // namespace pagefuse::cuda
