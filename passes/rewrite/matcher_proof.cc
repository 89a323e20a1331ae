// SPDX-License-Identifier: Apache-2.0
// What can be proved of a match only when all its values are bound: shapes, contents, slices.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/rewrite/pattern_evaluator.h"

namespace pagefuse {
namespace {

bool SameDims(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return std::ranges::equal(a, b, [](const Dim& x, const Dim& y) { return ProvablyEqual(x, y); });
}

// Two view nodes of one op on the same input whose shape operands have equal contents.
bool SameOperand(const Pattern& pattern, const MatchScope& scope, const MatchState& state,
                 const Deferred& claim) {
  const Node* wanted = pattern[claim.pattern].value->producer();
  const Node* node = claim.value->producer();
  if (node == nullptr || !node->Is(wanted->op_type())) return false;
  const Value* bound = state.bound[pattern.id(wanted->input(0))];
  if (bound == nullptr || bound != node->input(0) || wanted->input(1) == nullptr) return false;
  const auto ours = KnownDims(wanted->input(1), *scope.contents);
  const auto theirs = KnownDims(node->input(1), *scope.contents);
  return ours.has_value() && theirs.has_value() && SameDims(*ours, *theirs);
}

absl::Status ProveShape(PatternEvaluator& evaluator, const Pattern& pattern,
                        const MatchScope& scope, const MatchState& state, const Deferred& claim) {
  const ShapeContext::Known expected = evaluator.Expected(claim.pattern);
  const std::optional<Shape>& shape = claim.value->shape();
  if (expected.shape.has_value() && shape.has_value() && ProvablyEqual(*expected.shape, *shape)) {
    return absl::OkStatus();
  }
  if (SameOperand(pattern, scope, state, claim)) return absl::OkStatus();
  return absl::NotFoundError(
      StrCat("\"", claim.value->name(), "\": expected shape ",
             expected.shape.has_value()
                 ? expected.shape->ToString()
                 : "of pattern value \"" + pattern[claim.pattern].value->name() + "\" (unknown)",
             ", got ", shape.has_value() ? shape->ToString() : "an unknown one"));
}

absl::Status ProveContents(PatternEvaluator& evaluator, const Pattern& pattern,
                           const MatchScope& scope, const Deferred& claim) {
  const ShapeContext::Known expected = evaluator.Expected(claim.pattern);
  const Tensor* constant = ConstantOf(claim.value);
  if (expected.tensor != nullptr && constant != nullptr &&
      ConstantsEqual(*expected.tensor, *constant)) {
    return absl::OkStatus();
  }
  const auto dims = KnownDims(claim.value, *scope.contents);
  if (expected.value.has_value() && dims.has_value() && SameDims(*expected.value, *dims)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(StrCat("\"", claim.value->name(),
                                    "\": its contents are not provably those of pattern value \"",
                                    pattern[claim.pattern].value->name(), "\""));
}

// One axis of a Slice: [start, end) with a step; all as the exporter wrote them.
struct Range {
  Dim start, end;
  int64_t axis = 0, step = 1;
};

// A bound of a slice of an axis of size `dim` as the position that it means.
Dim Position(const Dim& bound, const Dim& dim) {
  const std::optional<int64_t> number = bound.constant();
  if (!number.has_value()) return bound;
  if (*number >= std::numeric_limits<int32_t>::max()) return dim;
  if (*number <= std::numeric_limits<int32_t>::min()) return Dim(0);
  const std::optional<int64_t> size = dim.constant();
  if (!size.has_value()) return *number < 0 ? dim + bound : bound;
  return Dim(std::clamp<int64_t>(*number < 0 ? *number + *size : *number, 0, *size));
}

std::optional<std::vector<Range>> Ranges(const std::optional<std::vector<Dim>>& starts,
                                         const std::optional<std::vector<Dim>>& ends,
                                         const std::optional<std::vector<Dim>>& axes,
                                         const std::optional<std::vector<Dim>>& steps,
                                         const Shape& data) {
  if (!starts.has_value() || !ends.has_value() || starts->size() != ends->size())
    return std::nullopt;
  std::vector<Range> ranges;
  for (size_t i = 0; i < starts->size(); ++i) {
    Range range;
    range.axis = static_cast<int64_t>(i);
    if (axes.has_value()) {
      if (i >= axes->size() || !(*axes)[i].constant().has_value()) return std::nullopt;
      range.axis = NormalAxis(*(*axes)[i].constant(), data.rank());
    }
    if (steps.has_value()) {
      if (i >= steps->size() || !(*steps)[i].constant().has_value()) return std::nullopt;
      range.step = *(*steps)[i].constant();
    }
    if (range.axis < 0 || range.axis >= data.rank()) return std::nullopt;
    const Dim& dim = data[static_cast<int>(range.axis)];
    const bool forward = range.step > 0;  // backward bounds have meanings of their own
    range.start = forward ? Position((*starts)[i], dim) : (*starts)[i];
    range.end = forward ? Position((*ends)[i], dim) : (*ends)[i];
    const bool everything = forward && range.step == 1 && ProvablyEqual(range.start, Dim(0)) &&
                            (ProvablyEqual(range.end, dim) || (!dim.known() && !range.end.known()));
    if (!everything) ranges.push_back(range);
  }
  std::ranges::sort(ranges, [](const Range& a, const Range& b) { return a.axis < b.axis; });
  return ranges;
}

bool SameBound(const Dim& a, const Dim& b) {
  return ProvablyEqual(a, b) || (!a.known() && !b.known());  // both the end of an unknown axis
}

absl::Status ProveSlice(PatternEvaluator& evaluator, const Pattern& pattern,
                        const MatchScope& scope, const Deferred& claim) {
  const Node& node = *claim.value->producer();
  const Node& wanted = *pattern[claim.pattern].value->producer();
  const auto unequal = [&](std::string_view why) {
    return absl::NotFoundError(StrCat(node.Description(), ": ", why));
  };
  if (node.input(0) == nullptr || !node.input(0)->shape().has_value()) {
    return unequal("the shape of its input is unknown");
  }
  const auto ours = [&](int i) -> std::optional<std::vector<Dim>> {
    const Value* input = wanted.input(i);
    if (input == nullptr) return std::nullopt;
    const int id = pattern.id(input);
    if (pattern[id].kind == PatternKind::kConstant) return KnownDims(input, *scope.contents);
    return evaluator.Expected(id).value;
  };
  const auto theirs = [&](int i) { return KnownDims(node.input(i), *scope.contents); };
  for (int i = 3; i < 5; ++i) {
    if (node.input(i) != nullptr && !theirs(i).has_value())
      return unequal("its axes are not known");
  }
  const Shape& data = *node.input(0)->shape();
  const auto a = Ranges(ours(1), ours(2), ours(3), ours(4), data);
  const auto b = Ranges(theirs(1), theirs(2), theirs(3), theirs(4), data);
  if (!a.has_value() || !b.has_value()) return unequal("its range is not known");
  const bool same =
      std::equal(a->begin(), a->end(), b->begin(), b->end(), [](const Range& x, const Range& y) {
        return x.axis == y.axis && x.step == y.step && SameBound(x.start, y.start) &&
               SameBound(x.end, y.end);
      });
  return same ? absl::OkStatus() : unequal("it takes another range than the pattern");
}

// A Split without sizes makes equal parts; one with sizes may say the same.
absl::Status ProveSplits(const MatchScope& scope, const MatchState& state) {
  for (const auto& [wanted, node] : state.nodes) {
    if (!wanted->Is("Split") || wanted->input(1) != nullptr || node->input(1) == nullptr) continue;
    const auto sizes = KnownInts(node->input(1), *scope.contents);
    if (!sizes.has_value() ||
        std::ranges::count(*sizes, sizes->front()) != static_cast<int64_t>(sizes->size())) {
      return absl::NotFoundError(StrCat(node->Description(), ": its parts are not equal"));
    }
  }
  return absl::OkStatus();
}

// The most axes that a constant has which the pattern's node reads.
int ConstantRank(const Node& pattern_node) {
  int rank = 0;
  for (const Value* input : pattern_node.inputs()) {
    const Tensor* tensor = input == nullptr ? nullptr : ConstantOf(input);
    if (tensor != nullptr) rank = std::max(rank, tensor->rank());
  }
  return rank;
}

bool Broadcasts(const Node& node) { return IsElementwise(node) && !node.Is("Clip"); }

// A number as a list, [1], is a number to an elementwise node where another operand has as many
// axes; else it adds one to the result.
absl::Status ProveNumbers(const MatchState& state) {
  for (const auto& [wanted, node] : state.nodes) {
    if (!Broadcasts(*node)) continue;
    int rank = 0;  // known of some operand that is no such number
    const Value* number = nullptr;
    for (const Value* input : node->inputs()) {
      if (input == nullptr) continue;
      const Tensor* tensor = ConstantOf(input);
      if (tensor != nullptr && tensor->size() == 1) {
        if (number == nullptr || tensor->rank() > ConstantOf(number)->rank()) number = input;
      } else if (input->shape().has_value()) {
        rank = std::max(rank, input->shape()->rank());
      }
    }
    if (number == nullptr) continue;
    const int own = ConstantOf(number)->rank();
    if (own <= std::max(rank, ConstantRank(*wanted))) continue;
    return absl::NotFoundError(StrCat(node->Description(), ": \"", number->name(), "\" has ", own,
                                      " axes, and no other operand is known to have as many"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveDeferred(const Pattern& pattern, const MatchScope& scope,
                           const MatchState& state) {
  PatternEvaluator evaluator(pattern, scope, state);
  for (const Deferred& claim : state.deferred) {
    switch (claim.kind) {
      case Deferred::Kind::kShape:
        PF_RETURN_IF_ERROR(ProveShape(evaluator, pattern, scope, state, claim));
        break;
      case Deferred::Kind::kContents:
        PF_RETURN_IF_ERROR(ProveContents(evaluator, pattern, scope, claim));
        break;
      case Deferred::Kind::kSlice:
        PF_RETURN_IF_ERROR(ProveSlice(evaluator, pattern, scope, claim));
        break;
    }
  }
  PF_RETURN_IF_ERROR(ProveNumbers(state));
  return ProveSplits(scope, state);
}

}  // namespace pagefuse
