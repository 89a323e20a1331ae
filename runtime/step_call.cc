// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/step_call.h"

#include <cstring>

namespace pagefuse {
namespace {

// An inference that reads more than this is made anew in each run.
constexpr int64_t kMostContents = 4096;

}  // namespace

RunValues::RunValues(const std::vector<PlannedValue>& values)
    : is_constant_(values.size()), args_(values.size()), shape_since_(values.size(), 0) {
  for (size_t i = 0; i < values.size(); ++i) {
    is_constant_[i] = values[i].value->IsConstant();
    const Tensor* tensor =
        values[i].on_device ? &values[i].constant : values[i].value->initializer();
    if (tensor != nullptr && tensor->defined()) Set(static_cast<int>(i), *tensor);
  }
}

void RunValues::SetShape(int value, DataType dtype, const std::vector<int64_t>& dims) {
  TensorArg& arg = args_[value];
  if (arg.dtype == dtype && arg.dims == dims) return;
  arg.dtype = dtype;
  arg.dims = dims;
  shape_since_[value] = run_;
}

void RunValues::SetStride(int value, int64_t stride) {
  TensorArg& arg = args_[value];
  if (arg.block_stride == stride) return;
  arg.block_stride = stride;
  shape_since_[value] = run_;
}

void RunValues::Set(int value, const Tensor& tensor) {
  SetShape(value, tensor.dtype(), tensor.dims());
  SetStride(value, tensor.block_stride());
  // Kernels do not write inputs; aliased outputs are checked to be writable before.
  SetData(value, const_cast<void*>(tensor.data()));
}

StepCall::StepCall(const PlannedStep& step) : output_bytes(step.outputs.size()) {
  args.node = step.node;
  args.opset = step.opset;
  args.state = step.state.get();
  args.inputs.resize(step.inputs.size());
  args.outputs.resize(step.outputs.size());
  if (step.on_device) args.on_host.resize(step.inputs.size());
}

bool StepCall::TakeInputs(const PlannedStep& step, const RunValues& values) {
  bool same = inferred_in_ != kNever;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const int value = step.inputs[i];
    if (value < 0) continue;
    if (inferred_in_ < values.shape_since(value)) {
      args.inputs[i] = values[value];
      same = false;
    } else {
      args.inputs[i].data = values[value].data;
    }
  }
  for (size_t i = 0; i < args.on_host.size(); ++i) {
    const int value = step.host_inputs[i];
    if (!same) args.on_host[i] = args.inputs[i];
    args.on_host[i].data = value < 0 ? nullptr : values[value].data;
  }
  if (same && SameContents()) return true;
  inferred_in_ = kNever;
  return false;
}

bool StepCall::SameContents() const {
  for (const Contents& contents : contents_) {
    const void* data = args.host_input(contents.input).data;
    if (std::memcmp(data, contents.bytes.data(), contents.bytes.size()) != 0) return false;
  }
  return true;
}

void StepCall::KeepOutputs(const PlannedStep& step, const RunValues& values,
                           const ContentsRead& read) {
  contents_.clear();
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] < 0 || !read.contains(i) || values.is_constant(step.inputs[i])) continue;
    const TensorArg& input = args.host_input(static_cast<int>(i));
    const int64_t bytes = ByteSize(input.dtype, input.dims).value_or(kMostContents + 1);
    if (bytes > kMostContents) return;
    if (bytes == 0) continue;
    if (input.data == nullptr) return;  // on a device: they are not compared
    const auto* first = input.as<std::byte>();
    contents_.push_back({static_cast<int>(i), {first, first + bytes}});
  }
  inferred_in_ = values.run();
}

}  // namespace pagefuse
