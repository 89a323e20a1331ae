// SPDX-License-Identifier: Apache-2.0
// Compares a computed tensor with an expected one, by a named rule.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

struct CompareRule {
  enum class Kind {
    kBytes,       // every byte is equal
    kAllclose,    // |got - want| <= atol + rtol * |want| in double; infinities are equal; NaN: see
                  // below
    kUlp,         // float16, bfloat16: at most `max_ulp` units in the last place apart
    kInt4Scale,   // float: low four mantissa bits equal (a zero point), the rest within rtol
    kRowsAsSets,  // integers: each row of the last axis holds the same set, -1 only at the end of a
                  // row
  };
  Kind kind = Kind::kBytes;
  double rtol = 0;
  double atol = 0;
  std::optional<double> rel_l2 = {};  // kAllclose: also norm(got - want) <= rel_l2 * norm(want)
  bool finite_only = false;           // kAllclose: only where the expected number is finite
  bool nan_is_equal = false;          // kAllclose, kUlp: NaN agrees with NaN; else NaN never passes
  int64_t max_ulp = 0;
  double max_fraction = 1;  // kUlp: share of the elements that may differ at all
};

// What is used where a case names no rule. For the outputs of a single op: bytes for integers,
// bools and strings, two units in the last place for float16 and bfloat16, else 1e-3 relative and
// 1e-7 absolute.
CompareRule DefaultRule(DataType type);

// The same for the outputs of a graph of many nodes that computes in type `computed`: float16 gets
// 1e-2 absolute and 2^-9 relative, bfloat16 8e-2 and 2^-6, whatever floating-point type the outputs
// are of.
CompareRule GraphRule(DataType type, DataType computed);

// OK, or InvalidArgument that tells the first difference: `at [1, 0, 3]: expected 0.5, got 0.75 (2
// of 96 elements differ)`. Types and shapes must agree.
absl::Status CompareTensors(const CompareRule& rule, const Tensor& got, const Tensor& want);

}  // namespace pagefuse
