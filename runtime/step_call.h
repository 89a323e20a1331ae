// SPDX-License-Identifier: Apache-2.0
// The call of a step as the last run left it, so that a run with the same shapes does not infer
// them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pagefuse/ops/schema/contents_read.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/runtime/execution_plan.h"

namespace pagefuse {

// The values of a plan in one run after the other, and since which run each has its type and dims.
class RunValues {
 public:
  // Constants are there from the beginning.
  explicit RunValues(const std::vector<PlannedValue>& values);

  bool is_constant(int value) const { return is_constant_[value]; }
  void BeginRun() { ++run_; }
  int64_t run() const { return run_; }
  const TensorArg& operator[](int value) const { return args_[value]; }
  int64_t shape_since(int value) const { return shape_since_[value]; }
  void SetShape(int value, DataType dtype, const std::vector<int64_t>& dims);
  void SetData(int value, void* data) { args_[value].data = data; }
  // Of blocks (TensorArg::block_stride).
  void SetStride(int value, int64_t stride);
  void Set(int value, const Tensor& tensor);

 private:
  int64_t run_ = 0;
  std::vector<bool> is_constant_;
  std::vector<TensorArg> args_;
  std::vector<int64_t> shape_since_;  // by value
};

class StepCall {
 public:
  explicit StepCall(const PlannedStep& step);

  // Puts the step's inputs of this run into `args`, of a step on the device those of the host too. True if its outputs there have the types and
  // dims that inference would tell.
  bool TakeInputs(const PlannedStep& step, const RunValues& values);
  // The outputs in `args` are what inference told of the inputs there, having read these contents.
  void KeepOutputs(const PlannedStep& step, const RunValues& values, const ContentsRead& read);

  KernelArgs args;
  std::vector<int64_t> output_bytes;

 private:
  struct Contents {
    int input = 0;
    std::vector<std::byte> bytes;
  };
  bool SameContents() const;

  static constexpr int64_t kNever = -1;
  int64_t inferred_in_ = kNever;    // the run
  std::vector<Contents> contents_;  // that inference read, those of constants apart
};

}  // namespace pagefuse
