// SPDX-License-Identifier: Apache-2.0
// GroupedMatMul on the device. Weights lie there as the graph has them.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/grouped_products.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/pagefuse/linear/experts.h"
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"

namespace pagefuse::cuda {
namespace {

struct GroupedPorts {
  int x, ids, weights, scales;

  explicit GroupedPorts(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    x = in("x"), ids = in("expert_ids"), weights = in("weights"), scales = in("scales");
  }
};

// Codes, as MatMulNBits has them, and whether x is rounded to int8 as the host's kernel does.
absl::Status SetCodes(const KernelArgs& args, const TensorArg& scales,
                      GroupedProductParams& params) {
  PF_ASSIGN_OR_RETURN(const microsoft_ops::NBitsSizes sizes,
                      pagefuse_ops::CodeSizesOf(*args.node, params.k, params.n));
  params.weight.rows = true;
  params.weight.bits = static_cast<int>(sizes.bits);
  params.weight.block = sizes.block;
  params.weight.scales = scales.data;
  params.rounds_x = microsoft_ops::SupportsInt8(*args.node, sizes).ok();
  return absl::OkStatus();
}

absl::Status RunGroupedMatMul(KernelArgs& args, const GroupedPorts& ports) {
  const TensorArg &x = args.input(ports.x), &ids = args.input(ports.ids);
  const TensorArg &w = args.input(ports.weights), &y = args.output(0);
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, args.node->IntAttribute("transB", 0));
  GroupedProductParams params{.rows = y.dims[0]};
  PF_ASSIGN_OR_RETURN(params.repeat, pagefuse_ops::RepeatOf(*args.node));
  params.experts = w.dims[0];
  params.n = y.dims[1];
  params.k = x.dims[1];
  params.type = x.dtype;
  params.x = x.data;
  params.y = y.data;
  params.ids = ids.data;
  params.wide_ids = ids.dtype == DataType::kInt64;
  params.errors = IndexErrorsOf(args);
  params.ids_input = ports.ids;
  params.weight = {.type = w.dtype, .data = w.data, .rows = trans_b != 0};
  if (const TensorArg& scales = args.input(ports.scales); scales.present()) {
    PF_RETURN_IF_ERROR(SetCodes(args, scales, params));
  }
  params.scratch = args.scratch->Get(std::max<size_t>(GroupedProductScratchBytes(params), 1));
  return LaunchStatus(LaunchGroupedProduct(params, StreamOf(args)));
}

}  // namespace

void AddGroupedProductKernels(OpRegistry& ops) {
  const GroupedPorts ports(*ops.Find("pagefuse", "GroupedMatMul", 1));
  AddKernelTo(
      ops, "pagefuse", "GroupedMatMul",
      {.name = "cuda", .priority = 10, .checks_indices = true, .run = [ports](KernelArgs& args) {
         return RunGroupedMatMul(args, ports);
       }});
}

}  // namespace pagefuse::cuda
