// SPDX-License-Identifier: Apache-2.0
// What the ops of this folder share: contents of tensors, and errors that name them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::microsoft_ops {

// The elements of a tensor as floats, where they lie if that is their type; null and empty for an
// absent tensor.
class FloatValues {
 public:
  FloatValues() = default;
  static absl::StatusOr<FloatValues> Of(const TensorArg& tensor);
  const float* data() const { return borrowed_ != nullptr ? borrowed_ : own_.data(); }
  bool present() const { return present_; }
  int64_t size() const { return size_; }

 private:
  const float* borrowed_ = nullptr;
  std::vector<float> own_;
  int64_t size_ = 0;
  bool present_ = false;
};

// Where an output is written as floats: in its own memory if that is its type, else in `slot` of
// the scratch memory, from which StoreFloats rounds it.
float* FloatsOf(const KernelArgs& args, const TensorArg& output, int slot);
absl::Status StoreFloats(const float* values, const TensorArg& output);

// Integer contents of int32 and int64 tensors.
int64_t IntAt(const TensorArg& tensor, int64_t i);

// InvalidArgument `node "x" (Op): <input or attribute>: <what>`.
absl::Status ValueError(const KernelArgs& args, std::string_view where, std::string_view what);

}  // namespace pagefuse::microsoft_ops
