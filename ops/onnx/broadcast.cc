// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/broadcast.h"

namespace pagefuse::onnx_ops {
namespace {

// Strides of an input in output dims: 0 where it is repeated.
std::vector<int64_t> InputStrides(const std::vector<int64_t>& output,
                                  const std::vector<int64_t>& input) {
  std::vector<int64_t> strides(output.size(), 0);
  int64_t step = 1;
  for (size_t i = 0; i < input.size(); ++i) {
    const size_t axis = output.size() - 1 - i;
    const int64_t dim = input[input.size() - 1 - i];
    if (dim != 1) strides[axis] = step;
    step *= dim;
  }
  return strides;
}

}  // namespace

BroadcastPlan::BroadcastPlan(const std::vector<int64_t>& output,
                             const std::vector<std::vector<int64_t>>& inputs)
    : num_inputs_(inputs.size()) {
  std::vector<std::vector<int64_t>> by_input;
  for (const auto& input : inputs) by_input.push_back(InputStrides(output, input));
  for (size_t axis = 0; axis < output.size(); ++axis) {
    size_ *= output[axis];
    if (output[axis] == 1) continue;
    std::vector<int64_t> strides(num_inputs_);
    bool merges = !dims_.empty();
    for (size_t k = 0; k < num_inputs_; ++k) {
      strides[k] = by_input[k][axis];
      merges = merges && strides_.back()[k] == strides[k] * output[axis];
    }
    if (merges) {
      dims_.back() *= output[axis];
      strides_.back() = std::move(strides);
    } else {
      dims_.push_back(output[axis]);
      strides_.push_back(std::move(strides));
    }
  }
  if (dims_.empty()) {
    dims_.push_back(1);
    strides_.emplace_back(num_inputs_, 1);
  }
}

int64_t BroadcastPlan::OffsetsAt(int64_t position, std::vector<int64_t>& offsets) const {
  const int64_t column = position % dims_.back();
  for (size_t k = 0; k < num_inputs_; ++k) offsets[k] = column * strides_.back()[k];
  int64_t rest = position / dims_.back();
  for (size_t d = dims_.size() - 1; d-- > 0;) {
    const int64_t index = rest % dims_[d];
    rest /= dims_[d];
    for (size_t k = 0; k < num_inputs_; ++k) offsets[k] += index * strides_[d][k];
  }
  return column;
}

}  // namespace pagefuse::onnx_ops
