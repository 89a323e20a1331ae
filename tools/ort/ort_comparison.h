// SPDX-License-Identifier: Apache-2.0
// Compares what ONNX Runtime computed with what is computed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::tools {

// The largest differences between outputs: floats, relative to the largest of them above 1, and
// elements of other types that differ at all.
class OrtComparison {
 public:
  OrtComparison() = default;
  // Of a graph that computes in 16 bits, whatever its outputs are.
  explicit OrtComparison(bool is_half) : is_half_(is_half) {}

  // InvalidArgument naming the output if types or shapes differ.
  absl::Status Add(const std::string& name, const Tensor& ours, const Tensor& theirs);
  absl::Status Add(const std::vector<std::string>& names, const std::vector<Tensor>& ours,
                   const std::vector<Tensor>& theirs);

  // Where products are summed in another order a value beside a tie is rounded the other way: one
  // byte of codes in a thousand may be its neighbour, and what follows may be off by a step of it.
  bool equal() const;
  // InvalidArgument with the differences unless they are equal.
  absl::Status Check() const;

  int outputs() const { return outputs_; }
  double largest() const { return largest_; }
  const std::string& worst() const { return worst_; }  // the output that `largest` is of
  int64_t code_bytes() const { return code_bytes_; }
  int64_t different_codes() const { return different_codes_; }

 private:
  double tolerance() const;

  int outputs_ = 0;
  double largest_ = 0;
  std::string worst_;
  int64_t code_bytes_ = 0, different_codes_ = 0;
  bool is_half_ = false;  // some are of 16 bits, and so are what they were computed of
};

}  // namespace pagefuse::tools
