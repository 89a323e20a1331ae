// SPDX-License-Identifier: Apache-2.0
// Inserts into and reads from the caches of DeepSeek's latent attention and of its indexer on the device: KCacheQuantInsert,
// KCacheDequantGather, IndexerKQuantInsert, IndexerKGather, MlaCacheInsert and MlaGatherUpconvert.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/cuda/slot_mapping.h"
#include "pagefuse/ops/kernels/cuda/grouped_gather.h"
#include "pagefuse/ops/kernels/cuda/grouped_insert.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"

namespace pagefuse::cuda {
namespace {

using pagefuse_ops::HasHadamard;
using pagefuse_ops::InsertPorts;
using pagefuse_ops::ReadPaged;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// --- inserts ---

struct InsertPortNumbers : InsertPorts {
  int plain;  // of MlaCacheInsert

  explicit InsertPortNumbers(const OpDef& op) {
    slot_mapping = PortNumber(op.inputs(), "slot_mapping");
    cache = PortNumber(op.inputs(), "kv_cache");
    plain = PortNumber(op.inputs(), "k_pe");
  }
};

CheckedSlots SlotsOf(const KernelArgs& args, const InsertPorts& ports, const PagedBytes& paged) {
  return {.mapping = SlotMappingOf(args, ports.slot_mapping),
          .num_slots = CheckedMul(paged.num_blocks, paged.block_size).value_or(kMost),
          .errors = IndexErrorsOf(args),
          .input = ports.slot_mapping};
}

// Of the rows of input 0. Elements that are not coded stand behind the coded ones.
absl::StatusOr<GroupedInsert> InsertOf(const KernelArgs& args, const InsertPorts& ports,
                                       const GroupedRowFormat& format) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, ports.cache));
  const TensorArg& source = args.input(0);
  const int64_t element_bytes = BitWidth(source.dtype) / 8;
  GroupedInsert insert;
  insert.format = format;
  insert.source_type = source.dtype;
  insert.coded = source.as<const uint8_t>();
  insert.coded_stride = source.dim(1) * element_bytes;
  if (format.plain > 0 && insert.coded != nullptr) {
    insert.plain = insert.coded + format.coded * element_bytes;
    insert.plain_stride = insert.coded_stride;
  }
  insert.rows = GroupedRows(format, paged, args.output(0).data);
  insert.slots = SlotsOf(args, ports, paged);
  return insert;
}

absl::Status RunKCacheInsert(KernelArgs& args, const InsertPortNumbers& ports) {
  PF_ASSIGN_OR_RETURN(const GroupedInsert insert, InsertOf(args, ports, Fp8Ue8m0Row()));
  return LaunchStatus(LaunchGroupedInsert(insert, StreamOf(args)));
}

absl::StatusOr<GroupedRowFormat> IndexerFormat(const KernelArgs& args) {
  const int64_t size = args.input(0).dim(1);
  PF_ASSIGN_OR_RETURN(const std::string codes, args.node->StringAttribute("format", "fp8"));
  if (codes == "mxfp4") return IndexerMxfp4Row(size);
  PF_ASSIGN_OR_RETURN(const std::string scale, args.node->StringAttribute("scale_fmt", "ue8m0"));
  return IndexerFp8Row(size, size, /*power_of_two=*/scale == "ue8m0");
}

absl::Status CheckHadamardLength(int64_t size) {
  if (size <= kLongestHadamardRow) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat("hadamard rows of more than ", kLongestHadamardRow, " elements, got ", size));
}

absl::Status SupportsIndexerInsert(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const bool hadamard, HasHadamard(*query.node));
  const Value* rows = query.node->input(0);
  if (!hadamard || rows == nullptr || !rows->shape() || rows->shape()->rank() != 2) {
    return absl::OkStatus();
  }
  return CheckHadamardLength((*rows->shape())[1].constant().value_or(0));
}

absl::Status RunIndexerInsert(KernelArgs& args, const InsertPortNumbers& ports) {
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format, IndexerFormat(args));
  PF_ASSIGN_OR_RETURN(GroupedInsert insert, InsertOf(args, ports, format));
  PF_ASSIGN_OR_RETURN(insert.hadamard, HasHadamard(*args.node));
  if (insert.hadamard) PF_RETURN_IF_ERROR(CheckHadamardLength(format.coded));
  return LaunchStatus(LaunchGroupedInsert(insert, StreamOf(args)));
}

JoinedInsert::Part PartOf(const TensorArg& rows) {
  if (!rows.present()) return {};
  return {rows.as<const uint8_t>(), rows.dim(1) * BitWidth(rows.dtype) / 8};
}

// The rows of a token side by side, as they are.
absl::Status RunJoinedInsert(KernelArgs& args, const InsertPortNumbers& ports) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, ports.cache));
  JoinedInsert insert;
  insert.parts[0] = PartOf(args.input(0));
  insert.parts[1] = PartOf(args.input(ports.plain));
  insert.rows =
      PlainRows(insert.parts[0].bytes + insert.parts[1].bytes, paged, args.output(0).data);
  insert.slots = SlotsOf(args, ports, paged);
  return LaunchStatus(LaunchJoinedInsert(insert, StreamOf(args)));
}

absl::Status RunMlaInsert(KernelArgs& args, const InsertPortNumbers& ports) {
  if (args.output(0).dtype != DataType::kUint8) return RunJoinedInsert(args, ports);
  const TensorArg& plain = args.input(ports.plain);
  constexpr int64_t kGroup = 128;
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroup));
  const GroupedRowFormat format = Fp8DsMlaRow(args.input(0).dim(1), plain.dim(1), group);
  PF_ASSIGN_OR_RETURN(GroupedInsert insert, InsertOf(args, ports, format));
  insert.plain = plain.as<const uint8_t>();
  insert.plain_stride = 2 * plain.dim(1);
  return LaunchStatus(LaunchGroupedInsert(insert, StreamOf(args)));
}

// --- reads ---

struct GatherPortNumbers {
  int cache, table, seq_lens, gather_lens, workspace_starts, cu_seq_lens;

  explicit GatherPortNumbers(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    cache = in("kv_cache"), table = in("block_table");
    seq_lens = in("seq_lens"), gather_lens = in("gather_lens");
    workspace_starts = in("workspace_starts"), cu_seq_lens = in("cu_seq_lens");
  }
};

absl::StatusOr<PagedRequests> RequestsOf(const KernelArgs& args, const GatherPortNumbers& ports,
                                         const GroupedRowFormat& format) {
  PF_ASSIGN_OR_RETURN(PagedBytes paged, ReadPaged(args, ports.cache));
  const TensorArg& table = args.input(ports.table);
  PagedRequests pages;
  pages.format = format;
  pages.block_table = table.as<const int32_t>();
  pages.requests = table.dim(0);
  pages.columns = table.dim(1);
  pages.capacity = CheckedMul(pages.columns, paged.block_size).value_or(kMost);
  paged.block_size = std::max<int64_t>(paged.block_size, 1);
  pages.rows = GroupedRows(format, paged, args.input(ports.cache).data);
  pages.errors = IndexErrorsOf(args);
  pages.table_input = ports.table;
  return pages;
}

absl::Status RunKCacheGather(KernelArgs& args, const GatherPortNumbers& ports) {
  const TensorArg& workspace = args.output(0);
  LastRowsGather gather;
  PF_ASSIGN_OR_RETURN(gather.pages, RequestsOf(args, ports, Fp8Ue8m0Row()));
  PF_ASSIGN_OR_RETURN(gather.offset, args.node->IntAttribute("offset", 0));
  gather.seq_lens_input = ports.seq_lens;
  gather.gather_lens_input =
      args.input(ports.gather_lens).present() ? ports.gather_lens : ports.seq_lens;
  gather.seq_lens = args.input(gather.seq_lens_input).as<const int32_t>();
  gather.gather_lens = args.input(gather.gather_lens_input).as<const int32_t>();
  gather.workspace_rows = workspace.dim(1);
  gather.workspace = workspace.as<uint8_t>();
  return LaunchStatus(LaunchLastRowsGather(gather, StreamOf(args)));
}

absl::Status RunMlaGather(KernelArgs& args, const GatherPortNumbers& ports) {
  const TensorArg& workspace = args.output(0);
  RequestRowsGather gather;
  PF_ASSIGN_OR_RETURN(gather.pages, RequestsOf(args, ports, Fp8DsMlaRow()));
  gather.seq_lens = args.input(ports.seq_lens).as<const int32_t>();
  gather.starts = args.input(ports.workspace_starts).as<const int32_t>();
  gather.seq_lens_input = ports.seq_lens;
  gather.starts_input = ports.workspace_starts;
  gather.workspace_rows = workspace.dim(0);
  gather.workspace = workspace.as<uint8_t>();
  return LaunchStatus(LaunchRequestRowsGather(gather, StreamOf(args)));
}

absl::Status RunIndexerGather(KernelArgs& args, const GatherPortNumbers& ports) {
  const TensorArg& codes = args.output(0);
  const TensorArg& scales = args.output(1);
  const int64_t size = codes.dim(1);
  KeyGather gather;
  PF_ASSIGN_OR_RETURN(gather.pages,
                      RequestsOf(args, ports, IndexerFp8Row(size, size / scales.dim(1))));
  gather.starts = args.input(ports.cu_seq_lens).as<const int32_t>();
  gather.starts_input = ports.cu_seq_lens;
  gather.rows = codes.dim(0);
  gather.codes = codes.as<uint8_t>();
  gather.scales = scales.as<uint8_t>();
  return LaunchStatus(LaunchKeyGather(gather, StreamOf(args)));
}

template <class Ports>
void AddTo(OpRegistry& ops, std::string_view op, absl::Status (*run)(KernelArgs&, const Ports&),
           std::function<absl::Status(const KernelQuery&)> supports = {}) {
  const Ports ports(*ops.Find("pagefuse", op, 1));
  AddKernelTo(ops, "pagefuse", op,
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .supports = std::move(supports),
               .run = [ports, run](KernelArgs& args) { return run(args, ports); }});
}

}  // namespace

void AddGroupedRowKernels(OpRegistry& ops) {
  AddTo(ops, "KCacheQuantInsert", RunKCacheInsert);
  AddTo(ops, "IndexerKQuantInsert", RunIndexerInsert, SupportsIndexerInsert);
  AddTo(ops, "MlaCacheInsert", RunMlaInsert);
  AddTo(ops, "KCacheDequantGather", RunKCacheGather);
  AddTo(ops, "MlaGatherUpconvert", RunMlaGather);
  AddTo(ops, "IndexerKGather", RunIndexerGather);
}

}  // namespace pagefuse::cuda
