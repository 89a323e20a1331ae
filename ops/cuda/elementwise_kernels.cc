// SPDX-License-Identifier: Apache-2.0
// Elementwise ops, and chains of them.
#include <memory>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/element_program.h"

namespace pagefuse::cuda {
namespace {

absl::Status Supports(const KernelQuery& query) { return CompileProgram(*query.node).status(); }

// Constants of a chain that are more than a number go to the device once.
absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<CompiledProgram> compiled, CompileProgram(*args.query.node));
  for (const Tensor* constant : compiled->host_constants) {
    PF_ASSIGN_OR_RETURN(Tensor copy,
                        Tensor::Allocate(constant->dtype(), constant->dims(), *args.allocator));
    if (constant->byte_size() > 0) {
      PF_RETURN_IF_ERROR(args.device->CopyToDevice(copy.mutable_data(), constant->data(),
                                                   static_cast<size_t>(constant->byte_size())));
    }
    compiled->constants.push_back(std::move(copy));
  }
  compiled->host_constants.clear();
  return compiled;
}

absl::Status Run(KernelArgs& args) {
  const auto& compiled = static_cast<const CompiledProgram&>(*args.state);
  const TensorArg& y = args.output(0);
  ElementwiseParams params{
      .program = &compiled.program, .dims = y.dims, .inputs = {}, .output = y.data};
  for (const CompiledProgram::Source& source : compiled.sources) {
    if (source.constant >= 0) {
      const Tensor& constant = compiled.constants[source.constant];
      params.inputs.push_back({constant.data(), constant.dims()});
      continue;
    }
    const TensorArg& input = args.input(source.input);
    // One element is repeated whatever its rank is: a bound of Clip may have more dims than the output.
    if (input.size() == 1) {
      params.inputs.push_back({input.data, {}});
    } else {
      params.inputs.push_back({input.data, input.dims});
    }
  }
  return LaunchStatus(LaunchElementwise(params, StreamOf(args)));
}

Kernel ElementwiseKernel() {
  return {.name = "cuda", .priority = 10, .supports = Supports, .prepare = Prepare, .run = Run};
}

}  // namespace

void AddElementwiseKernels(OpRegistry& ops) {
  for (const std::string_view op :
       {"Abs",        "Add",     "And",       "BitwiseAnd",  "BitwiseNot", "BitwiseOr",
        "BitwiseXor", "Cast",    "CastLike",  "Ceil",        "Clip",       "Cos",
        "Div",        "Elu",     "Equal",     "Erf",         "Exp",        "Floor",
        "Gelu",       "Greater", "HardSwish", "HardSigmoid", "IsInf",      "IsNaN",
        "LeakyRelu",  "Less",    "Log",       "LessOrEqual", "Max",        "Mean",
        "Min",        "Mish",    "Mul",       "Neg",         "Not",        "Or",
        "PRelu",      "Pow",     "Relu",      "Reciprocal",  "Round",      "Sigmoid",
        "Sign",       "Sin",     "Softplus",  "Softsign",    "Sqrt",       "Sub",
        "Sum",        "Swish",   "Tanh",      "Where",       "Xor",        "GreaterOrEqual"}) {
    AddKernelTo(ops, "", op, ElementwiseKernel());
  }
  for (const std::string_view op : {"BiasGelu", "FastGelu", "Gelu", "QuickGelu"}) {
    AddKernelTo(ops, "com.microsoft", op, ElementwiseKernel());
  }
  AddKernelTo(ops, "pagefuse", "Elementwise", ElementwiseKernel());
}

}  // namespace pagefuse::cuda
