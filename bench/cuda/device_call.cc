// SPDX-License-Identifier: Apache-2.0
#include "device_call.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kOpset = 1;

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Valued(absl::StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

const OpDef& OpOf(const CallSpec& spec) {
  return *OpRegistry::Global().Find("pagefuse", spec.op, kOpset);
}

}  // namespace

DeviceCall::DeviceCall(const Gpu& gpu, const CallSpec& spec, uint32_t seed) {
  scratch_ = std::make_unique<Scratch>(gpu.context->memory());
  args_.opset = kOpset;
  args_.scratch = scratch_.get();
  args_.device = gpu.context.get();
  AddInputs(gpu, spec, seed);
  AddOutputs(gpu, spec);
  args_.node = node_;
  const KernelQuery query{.node = node_, .opset = kOpset, .device = Device::kCuda};
  const KernelChoice choice = Valued(ChooseKernel(query));
  if (choice.kernel == nullptr) CheckOk(absl::UnimplementedError(node_->Description()));
  kernel_ = choice.kernel;
  state_ = Valued(PrepareState(query, *kernel_, &gpu.context->memory(), gpu.context.get()));
  args_.state = state_.get();
}

void DeviceCall::AddInputs(const Gpu& gpu, const CallSpec& spec, uint32_t seed) {
  std::vector<Value*> values;
  for (const CallInput& input : spec.inputs) {
    known_.push_back(input.known);
    if (input.dtype == DataType::kUndefined) {
      args_.inputs.emplace_back();
      args_.on_host.emplace_back();
      values.push_back(nullptr);
      continue;
    }
    const auto bytes = static_cast<size_t>(Valued(ByteSize(input.dtype, input.dims)));
    memory_.emplace_back(gpu, bytes, input.known.defined() ? Fill::kZeros : input.fill,
                         seed + static_cast<uint32_t>(values.size()));
    if (input.known.defined()) CopyUp(gpu, memory_.back().as(), input.known.data(), bytes);
    args_.inputs.push_back({input.dtype, input.dims, memory_.back().as()});
    args_.on_host.push_back({input.dtype, input.dims, known_.back().mutable_data()});
    values.push_back(graph_.AddInput("in" + std::to_string(values.size()), input.dtype,
                                     Shape::FromInts(input.dims)));
  }
  std::vector<Value*> outputs;
  for (int i = 0; i < spec.num_outputs; ++i) {
    outputs.push_back(graph_.AddValue("out" + std::to_string(i)));
  }
  node_ = graph_.AddNode("pagefuse", spec.op, values, outputs);
  for (const auto& [name, value] : spec.attributes) node_->SetAttribute(name, {value, "", ""});
}

void DeviceCall::AddOutputs(const Gpu& gpu, const CallSpec& spec) {
  const OpDef& op = OpOf(spec);
  std::vector<ShapeContext::Known> known;
  for (size_t i = 0; i < args_.inputs.size(); ++i) {
    known.emplace_back();
    const TensorArg& input = args_.inputs[i];
    if (!input.present()) continue;
    known.back() = {input.dtype, Shape::FromInts(input.dims), std::nullopt,
                    known_[i].defined() ? &known_[i] : nullptr};
  }
  ShapeContext context(*node_, kOpset, std::move(known));
  CheckOk(op.Infer(context));
  for (int i = 0; i < spec.num_outputs; ++i) {
    const ShapeContext::Known& output = context.outputs()[static_cast<size_t>(i)];
    node_->output(i)->set_dtype(output.dtype);
    node_->output(i)->set_shape(output.shape);
    TensorArg arg{output.dtype, output.shape->constant().value(), nullptr};
    for (const auto& [out, in] : op.aliases()) {
      if (out == i) arg.data = args_.input(in).data;
    }
    if (arg.data == nullptr) {
      memory_.emplace_back(gpu, static_cast<size_t>(Valued(ByteSize(arg.dtype, arg.dims))),
                           Fill::kZeros);
      arg.data = memory_.back().as();
    }
    args_.outputs.push_back(arg);
  }
}

void DeviceCall::Launch() { CheckOk(kernel_->run(args_)); }

Timing TimeCalls(const Gpu& gpu, const CallSpec& spec, size_t bytes) {
  std::vector<std::unique_ptr<DeviceCall>> calls;
  const int sets = SetsFor(gpu, bytes);
  for (int i = 0; i < sets; ++i) {
    calls.push_back(std::make_unique<DeviceCall>(gpu, spec, static_cast<uint32_t>(100 * i + 1)));
  }
  return TimeLaunches(gpu, sets, [&](int set) { calls[static_cast<size_t>(set)]->Launch(); });
}

}  // namespace pagefuse::cuda_bench
