// Integer tensors read as affine functions of their own indices: `Unsqueeze(Range(0, S), 1) + past`
// is i0 + past.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// element[i0, i1, ...] = constant + sum over axes of coefficients[axis] * i_axis. An axis of length
// 1 has coefficient 0.
struct IndexExpression {
  Dim constant = 0;
  std::vector<int64_t> coefficients;  // one an axis of the value

  IndexExpression operator-(const IndexExpression& other) const;
  IndexExpression operator+(const IndexExpression& other) const;
};

// The same expression seen with `rank` axes (new ones in front), as numpy broadcasting lines
// tensors up.
IndexExpression AlignedToRank(const IndexExpression& expression, int rank);

// InvalidArgument naming the value where the reading stopped.
absl::StatusOr<IndexExpression> ReadIndexExpression(const Value* value,
                                                    const SymbolicContents& contents);

// The two operands of an elementwise node with numpy's broadcast, neither of which is repeated
// along an axis that it counts along; InvalidArgument if that is not certain.
absl::StatusOr<std::pair<IndexExpression, IndexExpression>> ReadIndexOperands(
    const Node& node, const SymbolicContents& contents);

// By output axis of an Unsqueeze, Squeeze, Reshape or Expand that only adds or drops axes of length
// 1 (or repeats them): the input axis it comes from, -1 for a new one. InvalidArgument if the node
// moves elements otherwise.
absl::StatusOr<std::vector<int>> AxisMap(const Node* node);

}  // namespace pagefuse
