// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/simplify/view_rules.h"

#include <algorithm>
#include <optional>

#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

// Which dims of a Reshape's target are known to be written as -1.
std::optional<size_t> WrittenMinusOne(const Node& node, const SymbolicContents& contents) {
  if (!node.Is("Reshape")) return std::nullopt;
  const auto target = KnownDims(node.input(1), contents);
  if (!target.has_value()) return std::nullopt;
  for (size_t i = 0; i < target->size(); ++i) {
    if ((*target)[i] == Dim(-1)) return i;
  }
  return std::nullopt;
}

// The same of a node that only puts dims of 1 into what a Reshape gives, or takes them out.
std::optional<size_t> MinusOneOf(const Node& node, const SymbolicContents& contents) {
  const bool in = node.Is("Unsqueeze");
  const Node* reshape = node.input(0)->producer();
  const Shape* shape = ShapeOf(in ? node.output(0) : node.input(0));
  if ((!in && !node.Is("Squeeze")) || !reshape || !reshape->Is("Reshape") || !shape) {
    return WrittenMinusOne(node, contents);
  }
  const auto at = WrittenMinusOne(*reshape, contents);
  const auto axes = KnownInts(node.input(1), contents);
  if (!at || !axes) return std::nullopt;
  std::vector<bool> ones(shape->rank());
  for (int64_t axis : *axes) {
    const int64_t normal = NormalAxis(axis, shape->rank());
    if (normal < 0 || normal >= shape->rank()) return std::nullopt;
    ones[normal] = true;
  }
  // The longer of both shapes has them; the others are counted.
  size_t others = 0;
  for (size_t i = 0; i < ones.size(); ++i) {
    if (in ? !ones[i] && others == *at : i == *at) {
      if (ones[i]) return std::nullopt;
      return in ? i : others;
    }
    others += ones[i] ? 0 : 1;
  }
  return std::nullopt;
}

// A constant target (0 copies the input's dim, one -1 is inferred) for Reshape from `from` to `to`.
// A -1 is used only where it stands alone beside positive numbers, or where the target had it
// already: beside a dim that may be 0 it has no answer.
std::optional<std::vector<int64_t>> ConstantTarget(const Shape& from, const Shape& to,
                                                   std::optional<size_t> minus_one) {
  std::vector<int64_t> target(to.rank());
  std::vector<size_t> symbolic;
  bool has_zero = false;
  for (int i = 0; i < to.rank(); ++i) {
    const std::optional<int64_t> number = to[i].constant();
    if (!number.has_value()) symbolic.push_back(i);
    has_zero = has_zero || (number.has_value() && *number == 0);
    target[i] = number.value_or(-1);
  }
  // A target of 0 would copy instead.
  if (has_zero) return std::nullopt;
  if (symbolic.size() <= 1) return target;
  std::vector<size_t> left;
  for (size_t i : symbolic) {
    const bool copies = static_cast<int>(i) < from.rank() && ProvablyEqual(from[i], to[i]);
    if (copies && minus_one != i) {
      target[i] = 0;
    } else {
      left.push_back(i);
    }
  }
  if (left.size() > 1 || (left.size() == 1 && minus_one != left.front())) return std::nullopt;
  return target;
}

bool HasConstant(const Node& node, const std::vector<int64_t>& target) {
  if (!node.Is("Reshape") || ConstantOf(node.input(1)) == nullptr) return false;
  const auto ints = IntegerValues(*ConstantOf(node.input(1)));
  return ints.ok() && *ints == target && IntOr(node, "allowzero", 0) == 0;
}

bool ReshapeTo(Node& node, Value* source, const std::vector<int64_t>& target, Peephole& peephole) {
  Value* operand = peephole.Ints("shape", target);
  return peephole.ReplaceByNode(node, "Reshape", {source, operand});
}

bool IsReadByViewsAlone(const Value& value) {
  return !value.is_output() && !value.uses().empty() &&
         std::ranges::all_of(
             value.uses(), [](const Use& use) { return IsViewNode(*use.node) && use.index == 0; });
}

// The values that the node is a view of, the nearest first.
std::vector<Value*> SourcesOf(const Node& node) {
  std::vector<Value*> sources;
  Value* value = node.input(0);
  while (value != nullptr && sources.size() < kMaxViews) {
    sources.push_back(value);
    const Node* producer = value->producer();
    if (producer == nullptr || producer->graph() != node.graph() || !IsViewNode(*producer)) break;
    value = producer->input(0);
  }
  return sources;
}

// Those behind more than one view, of known shape, that are looked at: the farthest, and a few near
// ones, so that long chains cost no more than their length.
std::vector<Value*> FarSources(const Node& node) {
  constexpr size_t kNear = 6;
  const std::vector<Value*> sources = SourcesOf(node);
  std::vector<Value*> far;
  for (size_t i = sources.size(); i-- > 1;) {
    const bool looked_at = i + 1 == sources.size() || i <= kNear;
    if (looked_at && ShapeOf(sources[i]) != nullptr) far.push_back(sources[i]);
  }
  return far;
}

// A view that moves nothing but dims of 1: those that it takes out, by axes of its source, and those
// that it puts in, by axes of its result.
struct Realignment {
  std::vector<int64_t> out, in;
  size_t nodes() const { return (out.empty() ? 0 : 1) + (in.empty() ? 0 : 1); }
};

bool IsOne(const Dim& dim) { return dim.constant() == 1; }

// Axes of the dims of 1 before each of the others, and behind the last.
std::vector<std::vector<int64_t>> OnesBetween(const Shape& shape) {
  std::vector<std::vector<int64_t>> gaps(1);
  for (int i = 0; i < shape.rank(); ++i) {
    if (IsOne(shape[i])) {
      gaps.back().push_back(i);
    } else {
      gaps.emplace_back();
    }
  }
  return gaps;
}

std::optional<Realignment> RealignmentOf(const Shape& from, const Shape& to) {
  std::vector<Dim> others[2];
  for (const Dim& dim : from.dims()) {
    if (!IsOne(dim)) others[0].push_back(dim);
  }
  for (const Dim& dim : to.dims()) {
    if (!IsOne(dim)) others[1].push_back(dim);
  }
  if (!ProvablyEqual(Shape(others[0]), Shape(others[1]))) return std::nullopt;
  const auto before = OnesBetween(from), after = OnesBetween(to);
  Realignment result;
  for (size_t gap = 0; gap < before.size(); ++gap) {
    const auto kept = static_cast<int64_t>(std::min(before[gap].size(), after[gap].size()));
    result.out.insert(result.out.end(), before[gap].begin() + kept, before[gap].end());
    result.in.insert(result.in.end(), after[gap].begin() + kept, after[gap].end());
  }
  return result;
}

bool Realign(Node& node, Value* source, const Realignment& by, Peephole& peephole) {
  Value* axes = peephole.Ints("axes", by.out.empty() ? by.in : by.out);
  return peephole.ReplaceByNode(node, by.out.empty() ? "Unsqueeze" : "Squeeze", {source, axes});
}

}  // namespace

bool RemoveView(Node& node, Peephole& peephole) {
  // A list that stays a list, whatever is known of its length.
  const Shape *from = ShapeOf(node.input(0)), *to = ShapeOf(node.output(0));
  if (from && to && from->rank() == 1 && to->rank() == 1 &&
      CanReplaceWholly(*node.output(0), *node.input(0))) {
    if (!(*from)[0].is_constant()) node.input(0)->set_shape(*to);
    return peephole.Replace(node, node.input(0));
  }
  for (Value* value : SourcesOf(node)) {
    if (SameShapes(node.output(0), value) && CanReplaceWholly(*node.output(0), *value)) {
      return peephole.Replace(node, value);
    }
  }
  return false;
}

// Views inside of a chain are left to the last one, which sees what all of them come to.
bool MergeViews(Node& node, Peephole& peephole) {
  if (ShapeOf(node.output(0)) == nullptr || IsReadByViewsAlone(*node.output(0))) return false;
  const auto minus_one = MinusOneOf(node, peephole.contents());
  for (Value* source : FarSources(node)) {
    const auto target = ConstantTarget(*ShapeOf(source), *ShapeOf(node.output(0)), minus_one);
    if (target.has_value()) return ReshapeTo(node, source, *target, peephole);
  }
  return false;
}

bool MergeRealignments(Node& node, Peephole& peephole) {
  if (ShapeOf(node.output(0)) == nullptr) return false;
  for (Value* source : FarSources(node)) {
    const auto by = RealignmentOf(*ShapeOf(source), *ShapeOf(node.output(0)));
    if (by && by->nodes() == 1) return Realign(node, source, *by, peephole);
  }
  return false;
}

bool CanonicalReshape(Node& node, Peephole& peephole) {
  if (ShapeOf(node.input(0)) == nullptr || ShapeOf(node.output(0)) == nullptr) return false;
  const auto target = ConstantTarget(*ShapeOf(node.input(0)), *ShapeOf(node.output(0)),
                                     WrittenMinusOne(node, peephole.contents()));
  if (!target.has_value() || HasConstant(node, *target)) return false;
  return ReshapeTo(node, node.input(0), *target, peephole);
}

}  // namespace pagefuse
