// SPDX-License-Identifier: Apache-2.0
// Proves which lengths an axis can have under numpy's broadcast, wherever the graph runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {

// One axis of a value, counted from the front.
struct AxisOf {
  const Value* value = nullptr;
  int axis = 0;

  // Unknown if the value is not known to have the axis.
  Dim dim() const;
};

// OK if both axes are provably of one length. FailedPrecondition with both values and dims, also if
// one of them is not known to have the axis.
absl::Status CheckSameLength(const AxisOf& axis, const AxisOf& as);

// A condition of rules: for each pair of axes, of pattern values by name, CheckSameLength. Pairs
// with an optional input that is missing are left out.
struct SameLength {
  std::string value;
  int axis = 0;
  std::string as;
  int as_axis = 0;
};
Condition SameLengths(std::vector<SameLength> pairs);

// As CheckSameLength, of axes that a graph broadcasts: a length that is provably 1 is repeated, and
// fits too; min(n, length) fits, for a number from 2 on, nowhere but where it is the length.
absl::Status CheckRepeats(const AxisOf& axis, const AxisOf& as);

// True if the axis (counted from the last one, 0) of `value` is provably `length` long, or if the
// value is broadcast from one that is: it is then `length` long wherever the graph runs, unless
// `length` is 1 there. A broadcast of `past + seq` and `total` is a length without a name, which
// this proves to be `past + seq` or that to be 1.
bool Reaches(const Value* value, int from_last, const Dim& length,
             const SymbolicContents& contents);

}  // namespace pagefuse
