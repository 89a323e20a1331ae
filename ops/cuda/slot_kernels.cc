// SPDX-License-Identifier: Apache-2.0
// TopKSlots, ReqIndexToSlot and CombineTopKWindow on the device.
#include <string_view>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/slots.h"
#include "pagefuse/ops/pagefuse/indexer/slot_lookup.h"

namespace pagefuse::cuda {
namespace {

// --- TopKSlots, ReqIndexToSlot ---

// -1: the op has no such input.
struct LookupPorts {
  SlotLookup::Inputs in;
  int valid;
};

absl::Status RunLookup(KernelArgs& args, const LookupPorts& ports) {
  PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", 1));
  const auto numbers = [&](int input) {
    return input < 0 ? nullptr : args.input(input).as<const int32_t>();
  };
  const TensorArg& indices = args.input(ports.in.indices);
  const TensorArg& table = args.input(ports.in.table);
  SlotLookup call;
  call.tokens = indices.dim(0);
  call.count = indices.dim(1);
  call.indices = indices.as<const int32_t>();
  call.requests = numbers(ports.in.requests);
  call.table = table.as<const int32_t>();
  call.num_requests = table.dim(0);
  call.columns = table.dim(1);
  call.block_size = static_cast<int32_t>(block_size);
  call.limit = pagefuse_ops::IndexLimit(call.columns, block_size);
  call.has_limit = ports.valid >= 0;
  if (call.has_limit) call.valid = args.input(ports.valid).as<const uint8_t>();
  call.prefills = numbers(ports.in.prefills);
  call.starts = numbers(ports.in.starts);
  if (call.starts != nullptr) call.num_starts = args.input(ports.in.starts).size();
  call.slots = args.output(0).as<int32_t>();
  call.counts = args.output(1).as<int32_t>();
  call.errors = IndexErrorsOf(args);
  call.inputs = ports.in;
  return LaunchStatus(LaunchSlotLookup(call, StreamOf(args)));
}

// --- CombineTopKWindow ---

absl::Status RunWindow(KernelArgs& args, const TopKWindow::Inputs& in) {
  PF_ASSIGN_OR_RETURN(const int64_t window, args.node->IntAttribute("window_size", 0));
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("compress_ratio", 1));
  PF_ASSIGN_OR_RETURN(const int64_t most, args.node->IntAttribute("topk", 0));
  const TensorArg& topk = args.input(in.topk);
  TopKWindow call;
  call.tokens = topk.dim(0);
  call.columns = topk.dim(1);
  call.requests = args.input(in.lengths).dim(0);
  call.topk = topk.as<const int32_t>();
  call.starts = args.input(in.starts).as<const int32_t>();
  call.lengths = args.input(in.lengths).as<const int32_t>();
  call.gathered = args.input(in.gathered).as<const int32_t>();
  call.workspace_rows = args.input(in.workspace_rows).as<const int64_t>();
  call.window_offset = args.input(in.window_offset).as<const int64_t>();
  call.window = static_cast<int32_t>(window);
  call.ratio = static_cast<int32_t>(ratio);
  call.most = static_cast<int32_t>(most);
  call.width = args.output(0).dim(1);
  call.combined = args.output(0).as<int32_t>();
  call.counts = args.output(1).as<int32_t>();
  call.errors = IndexErrorsOf(args);
  call.inputs = in;
  return LaunchStatus(LaunchTopKWindow(call, StreamOf(args)));
}

// Of an op of domain pagefuse, from its table of ports.
template <class Ports, class Run>
void Add(OpRegistry& ops, std::string_view op, const Ports& ports, Run run) {
  const std::vector<Port>& inputs = ops.Find("pagefuse", op, 1)->inputs();
  const auto numbers = ports([&](std::string_view name) { return PortNumber(inputs, name); });
  AddKernelTo(ops, "pagefuse", op,
              {.name = "cuda",
               .device = Device::kCuda,
               .priority = 10,
               .checks_indices = true,
               .run = [numbers, run](KernelArgs& args) { return run(args, numbers); }});
}

}  // namespace

void AddSlotKernels(OpRegistry& ops) {
  const auto topk_slots = [](const auto& in) {
    return LookupPorts{.in = {.indices = in("topk_indices"),
                              .requests = in("token_to_req"),
                              .table = in("block_table"),
                              .prefills = -1,
                              .starts = -1},
                       .valid = in("is_valid")};
  };
  Add(ops, "TopKSlots", topk_slots, RunLookup);
  const auto req_index = [](const auto& in) {
    return LookupPorts{.in = {.indices = in("token_indices"),
                              .requests = in("req_id"),
                              .table = in("block_table"),
                              .prefills = in("prefill_request_id"),
                              .starts = in("workspace_starts")},
                       .valid = -1};
  };
  Add(ops, "ReqIndexToSlot", req_index, RunLookup);
  const auto window = [](const auto& in) {
    return TopKWindow::Inputs{.topk = in("topk_indices"),
                              .starts = in("query_start_loc"),
                              .lengths = in("seq_lens"),
                              .gathered = in("gather_lens"),
                              .workspace_rows = in("workspace_rows"),
                              .window_offset = in("window_offset")};
  };
  Add(ops, "CombineTopKWindow", window, RunWindow);
}

}  // namespace pagefuse::cuda
