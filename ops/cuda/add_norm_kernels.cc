// SPDX-License-Identifier: Apache-2.0
// AddNorm on the device.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/add_norm.h"

namespace pagefuse::cuda {
namespace {

struct AddNormPorts {
  int x, residual, x_weight, weight, sum, y;

  explicit AddNormPorts(const OpDef& op) {
    x = PortNumber(op.inputs(), "x"), residual = PortNumber(op.inputs(), "residual");
    x_weight = PortNumber(op.inputs(), "x_weight"), weight = PortNumber(op.inputs(), "weight");
    sum = PortNumber(op.outputs(), "sum"), y = PortNumber(op.outputs(), "y");
  }
};

absl::Status RunAddNorm(KernelArgs& args, const AddNormPorts& ports) {
  constexpr float kEpsilon = 1e-5f;
  const TensorArg& x = args.input(ports.x);
  AddNormParams params{.type = x.dtype};
  params.n = x.dim(-1);
  params.rows = x.size() / std::max<int64_t>(params.n, 1);
  PF_ASSIGN_OR_RETURN(params.x_epsilon, args.node->FloatAttribute("x_epsilon", kEpsilon));
  PF_ASSIGN_OR_RETURN(params.epsilon, args.node->FloatAttribute("epsilon", kEpsilon));
  params.x = x.data;
  params.residual = args.input(ports.residual).data;
  params.x_weight = args.input(ports.x_weight).data;
  params.weight = args.input(ports.weight).data;
  params.sum = args.output(ports.sum).data;
  params.y = args.output(ports.y).data;
  params.constant_weights = args.node->input(ports.x_weight)->IsConstant() &&
                            args.node->input(ports.weight)->IsConstant();
  return LaunchStatus(LaunchAddNorm(params, StreamOf(args)));
}

}  // namespace

void AddAddNormKernels(OpRegistry& ops) {
  const AddNormPorts ports(*ops.Find("pagefuse", "AddNorm", 1));
  AddKernelTo(ops, "pagefuse", "AddNorm",
              {.name = "cuda", .priority = 10, .run = [ports](KernelArgs& args) {
                 return RunAddNorm(args, ports);
               }});
}

}  // namespace pagefuse::cuda
