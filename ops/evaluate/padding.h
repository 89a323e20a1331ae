// SPDX-License-Identifier: Apache-2.0
// Finds the rows of a decoder's outputs that belong to padding. Nobody reads them, and what a graph
// computes there depends on rounding, so they are not compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

class Padding {
 public:
  // As the feed "attention_mask" [B, T] says of "input_ids" [B, S], the last S of T columns; none
  // if there are no such feeds.
  explicit Padding(const std::map<std::string, Tensor>& feeds);

  // Columns that the mask hides, of all sequences.
  int64_t count() const;

  // A copy of an output with zeros in the rows of padding. The axis of an output [B, ...] that
  // counts tokens has T or S elements, and is the only such one whose size the graph leaves open
  // (or the only one, where it leaves none open); an output without it comes back as it is.
  Tensor Blank(const Value& output, const Tensor& tensor) const;

 private:
  int AxisOfTokens(const Value& output, const std::vector<int64_t>& dims) const;

  int64_t batch_ = 0, total_ = 0, length_ = 0;
  std::vector<bool> hidden_;  // [B, T]
};

}  // namespace pagefuse
