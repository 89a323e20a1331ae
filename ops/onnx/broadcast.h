// SPDX-License-Identifier: Apache-2.0
// Walks an output and its broadcast inputs row by row (numpy's rules).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pagefuse::onnx_ops {

// The loop nest of a broadcast, with neighbouring dims merged where all inputs allow it, so that
// rows are as long as possible.
class BroadcastPlan {
 public:
  // Every input's dims must broadcast to `output`'s (shape inference checks that).
  BroadcastPlan(const std::vector<int64_t>& output,
                const std::vector<std::vector<int64_t>>& inputs);

  int64_t size() const { return size_; }  // output elements
  // The distance between neighbouring elements of a row of input `k`: 1, or 0 where it is broadcast
  // along the row.
  int64_t row_stride(int k) const { return strides_.back()[k]; }
  // The merged dims, never none, and whether input `k` is repeated along one of them.
  const std::vector<int64_t>& dims() const { return dims_; }
  bool repeats(size_t axis, size_t k) const { return strides_[axis][k] == 0; }
  // Fills the inputs' elements that belong to an output element; returns its index in the row.
  int64_t OffsetsAt(int64_t position, std::vector<int64_t>& offsets) const;

  // Calls f(position, n, offsets) for each run of at most a row in output elements [begin, end):
  // `position` is the first output element of the run, `n` its length, offsets[k] the element of
  // input k that belongs to it.
  template <typename F>
  void ForEachRow(int64_t begin, int64_t end, const F& f) const {
    std::vector<int64_t> offsets(num_inputs_);
    while (begin < end) {
      const int64_t column = OffsetsAt(begin, offsets);
      const int64_t n = std::min(dims_.back() - column, end - begin);
      f(begin, n, offsets.data());
      begin += n;
    }
  }

 private:
  size_t num_inputs_;
  int64_t size_ = 1;
  std::vector<int64_t> dims_;                  // merged; never empty
  std::vector<std::vector<int64_t>> strides_;  // [dim][input]
};

}  // namespace pagefuse::onnx_ops
