// SPDX-License-Identifier: Apache-2.0
// The elementwise functions that are recognised by what they compute: encoding to number formats,
// and decoding from them.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// A function of one element, given by the one way in which graphs write it after recognition.
struct KnownFunction {
  std::string name;  // "e4m3 codes"
  DataType from = DataType::kFloat;
  DataType to = DataType::kUndefined;
  // Writes it for `x` and returns the result.
  Value* (*write)(GraphBuilder& builder, Value* x) = nullptr;
  // Where two functions are compared: every code, the borders between codes with their neighbours,
  // and what lies beyond the largest. Left out is what formats leave open: NaN, infinities and the
  // sign of zero.
  Tensor points;
  Tensor values;                     // at the points
  std::vector<std::string> written;  // op types of its nodes, in order
};

// All of them. Built once; the reference stays valid. Thread-safe.
const std::vector<KnownFunction>& KnownFunctions();

// OK if `values`, those of another function at the same points, are the same numbers. Says where
// they first differ otherwise: `at 7.75 it gives 55, "e4m3 codes" 56`.
absl::Status CompareAtPoints(const KnownFunction& function, const Tensor& values);

}  // namespace pagefuse
