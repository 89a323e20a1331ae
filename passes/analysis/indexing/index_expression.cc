#include "pagefuse/passes/analysis/indexing/index_expression.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

absl::Status StoppedAt(const Value* value, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("\"", value->name(), "\" ", why));
}

// Steps of indices are far below it; sums and products of two that are not above do not overflow.
constexpr int64_t kLargestStep = int64_t{1} << 31;
bool IsLarge(int64_t number) { return number > kLargestStep || number < -kLargestStep; }

bool IsOne(const Dim& dim) { return dim.constant() == 1; }

IndexExpression Combine(const IndexExpression& a, const IndexExpression& b, int sign) {
  const int rank = static_cast<int>(std::max(a.coefficients.size(), b.coefficients.size()));
  IndexExpression left = AlignedToRank(a, rank);
  const IndexExpression right = AlignedToRank(b, rank);
  left.constant = sign > 0 ? left.constant + right.constant : left.constant - right.constant;
  for (int axis = 0; axis < rank; ++axis) {
    left.coefficients[axis] += sign * right.coefficients[axis];
  }
  return left;
}

// A constant whose elements all agree, or count up by a fixed step along its one long axis.
absl::StatusOr<IndexExpression> ReadConstant(const Value* value, const Tensor& tensor) {
  constexpr int64_t kMaxElements = 1 << 20;
  if (tensor.size() == 0 || tensor.size() > kMaxElements) {
    return StoppedAt(value, "is a constant of unfit size");
  }
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> values, IntegerValues(tensor));
  IndexExpression result{.constant = values[0],
                         .coefficients = std::vector<int64_t>(tensor.rank(), 0)};
  if (values.size() == 1) return result;
  if (std::any_of(values.begin(), values.end(), IsLarge)) {
    return StoppedAt(value, "is a constant of numbers too large for indices");
  }
  const int64_t step = values[1] - values[0];
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[0] + static_cast<int64_t>(i) * step) {
      return StoppedAt(value, "is a constant that neither repeats nor counts up");
    }
  }
  if (step == 0) return result;
  int long_axis = -1;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (tensor.dims()[axis] == 1) continue;
    if (long_axis >= 0) return StoppedAt(value, "counts up over several axes");
    long_axis = axis;
  }
  result.coefficients[long_axis] = step;
  return result;
}

// One call of ReadIndexExpression. A value that two operands share is read twice, so that sums of
// sums can take forever: the values that are read are counted.
struct Reading {
  const SymbolicContents& contents;
  int values_left = 512;
};

absl::StatusOr<IndexExpression> Read(const Value* value, Reading& reading);

absl::StatusOr<IndexExpression> ReadRange(const Node* node, Reading& reading) {
  PF_ASSIGN_OR_RETURN(IndexExpression start, Read(node->input(ports::Range::kStart), reading));
  PF_ASSIGN_OR_RETURN(IndexExpression step, Read(node->input(ports::Range::kDelta), reading));
  auto number = step.constant.constant();
  if (!number)
    return StoppedAt(node->input(ports::Range::kDelta), "is a step that is not a known number");
  return IndexExpression{.constant = start.constant, .coefficients = {*number}};
}

// Unsqueeze, Squeeze, Expand, Reshape that only add or drop axes of length 1.
absl::StatusOr<IndexExpression> ReadRealigned(const Node* node, Reading& reading) {
  PF_ASSIGN_OR_RETURN(std::vector<int> axes, AxisMap(node));
  PF_ASSIGN_OR_RETURN(IndexExpression source, Read(node->input(0), reading));
  IndexExpression result{.constant = source.constant, .coefficients = {}};
  for (int axis : axes) {
    result.coefficients.push_back(axis < 0 ? 0 : source.coefficients[axis]);
  }
  return result;
}

// OK unless broadcasting may repeat `operand` along an axis that its index counts along: symbols
// that differ may be 1 and not 1.
absl::Status CheckSpans(const IndexExpression& index, const Value* operand, const Value* result) {
  if (!operand->shape() || !result->shape()) return StoppedAt(result, "has an unknown shape");
  const Shape& own = *operand->shape();
  for (int axis = 0; axis < own.rank(); ++axis) {
    const Dim& whole = result->shape()->back(own.rank() - 1 - axis);
    if (index.coefficients[axis] == 0 || ProvablyEqual(own[axis], whole)) continue;
    return StoppedAt(operand, StrCat("counts along axis ", axis, ", ", own[axis].ToString(),
                                     " long, and may be repeated to ", whole.ToString()));
  }
  return absl::OkStatus();
}

// The two operands of an elementwise node, see ReadIndexOperands.
absl::StatusOr<std::pair<IndexExpression, IndexExpression>> ReadOperands(const Node& node,
                                                                         Reading& reading) {
  PF_ASSIGN_OR_RETURN(IndexExpression a, Read(node.input(0), reading));
  PF_ASSIGN_OR_RETURN(IndexExpression b, Read(node.input(1), reading));
  PF_RETURN_IF_ERROR(CheckSpans(a, node.input(0), node.output(0)));
  PF_RETURN_IF_ERROR(CheckSpans(b, node.input(1), node.output(0)));
  return std::make_pair(std::move(a), std::move(b));
}

absl::StatusOr<IndexExpression> ReadProduct(const Node* node, Reading& reading) {
  PF_ASSIGN_OR_RETURN(auto operands, ReadOperands(*node, reading));
  auto& [a, b] = operands;
  const int rank = static_cast<int>(std::max(a.coefficients.size(), b.coefficients.size()));
  auto is_number = [](const IndexExpression& e) {
    return e.constant.is_constant() && std::all_of(e.coefficients.begin(), e.coefficients.end(),
                                                   [](int64_t c) { return c == 0; });
  };
  if (!is_number(b)) std::swap(a, b);
  if (!is_number(b)) return StoppedAt(node->output(0), "is a product of two expressions");
  const int64_t factor = *b.constant.constant();
  if (IsLarge(factor)) return StoppedAt(node->output(0), "is a multiple too large for an index");
  IndexExpression result = AlignedToRank(a, rank);
  result.constant = result.constant * Dim(factor);
  for (int64_t& coefficient : result.coefficients) coefficient *= factor;
  return result;
}

absl::StatusOr<IndexExpression> ReadAnySteps(const Value* value, Reading& reading) {
  if (auto it = reading.contents.find(value); it != reading.contents.end() &&
                                              it->second.size() == 1 && it->second[0].known() &&
                                              value->shape()) {
    return IndexExpression{.constant = it->second[0],
                           .coefficients = std::vector<int64_t>(value->shape()->rank(), 0)};
  }
  if (value->IsConstant()) return ReadConstant(value, *value->initializer());
  const Node* node = value->producer();
  if (!node) return StoppedAt(value, "is an input of the graph, not an index");
  if (node->Is("Range")) return ReadRange(node, reading);
  if (node->Is("Unsqueeze") || node->Is("Squeeze") || node->Is("Reshape") || node->Is("Expand")) {
    return ReadRealigned(node, reading);
  }
  if (node->Is("Cast") || node->Is("Identity")) return Read(node->input(0), reading);
  if (node->Is("Mul")) return ReadProduct(node, reading);
  if (node->Is("Add") || node->Is("Sub")) {
    PF_ASSIGN_OR_RETURN(const auto operands, ReadOperands(*node, reading));
    const auto& [a, b] = operands;
    return node->Is("Add") ? a + b : a - b;
  }
  return StoppedAt(value, StrCat("(", node->op_type(), ") is no affine index expression"));
}

absl::StatusOr<IndexExpression> Read(const Value* value, Reading& reading) {
  if (--reading.values_left < 0) return StoppedAt(value, "is computed in too many steps");
  PF_ASSIGN_OR_RETURN(IndexExpression result, ReadAnySteps(value, reading));
  if (std::any_of(result.coefficients.begin(), result.coefficients.end(), IsLarge)) {
    return StoppedAt(value, "has steps too large for indices");
  }
  return result;
}

}  // namespace

IndexExpression IndexExpression::operator-(const IndexExpression& other) const {
  return Combine(*this, other, -1);
}
IndexExpression IndexExpression::operator+(const IndexExpression& other) const {
  return Combine(*this, other, 1);
}

IndexExpression AlignedToRank(const IndexExpression& expression, int rank) {
  IndexExpression result = expression;
  const int missing = rank - static_cast<int>(expression.coefficients.size());
  result.coefficients.insert(result.coefficients.begin(), std::max(0, missing), 0);
  return result;
}

absl::StatusOr<std::vector<int>> AxisMap(const Node* node) {
  const Value* in = node->input(0);
  const Value* out = node->output(0);
  if (!in->shape() || !out->shape()) return StoppedAt(out, "has an unknown shape");
  const Shape& from = *in->shape();
  const Shape& to = *out->shape();
  std::vector<int> map;
  if (node->Is("Expand")) {
    for (int axis = 0; axis < to.rank(); ++axis) {
      const int source = axis - (to.rank() - from.rank());
      const bool repeats = source < 0 || IsOne(from[source]);
      if (!repeats && !ProvablyEqual(from[source], to[axis])) {
        return StoppedAt(out, StrCat("may repeat axis ", axis, ", ", from[source].ToString(),
                                     " long, to ", to[axis].ToString()));
      }
      map.push_back(repeats ? -1 : source);
    }
    return map;
  }
  // Both lists of axes without those of length 1 must be the same.
  std::vector<int> long_axes;
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (!IsOne(from[axis])) long_axes.push_back(axis);
  }
  size_t next = 0;
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (IsOne(to[axis])) {
      map.push_back(-1);
      continue;
    }
    if (next == long_axes.size() || !ProvablyEqual(from[long_axes[next]], to[axis])) {
      return StoppedAt(out, "rearranges indices");
    }
    map.push_back(long_axes[next++]);
  }
  if (next != long_axes.size()) return StoppedAt(out, "rearranges indices");
  return map;
}

absl::StatusOr<std::pair<IndexExpression, IndexExpression>> ReadIndexOperands(
    const Node& node, const SymbolicContents& contents) {
  Reading reading{.contents = contents};
  return ReadOperands(node, reading);
}

absl::StatusOr<IndexExpression> ReadIndexExpression(const Value* value,
                                                    const SymbolicContents& contents) {
  Reading reading{.contents = contents};
  return Read(value, reading);
}

}  // namespace pagefuse
