#include "pagefuse/passes/canonicalise/view_rules.h"

#include <algorithm>
#include <optional>

#include "pagefuse/passes/pattern.h"

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
  Value* operand = AddInts(peephole.graph(), "shape", target, peephole.contents());
  return peephole.ReplaceByNode(node, "Reshape", {source, operand});
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

}  // namespace

bool RemoveView(Node& node, Peephole& peephole) {
  for (Value* value : SourcesOf(node)) {
    if (SameShapes(node.output(0), value) && CanReplaceWholly(*node.output(0), *value)) {
      return peephole.Replace(node, value);
    }
  }
  return false;
}

bool MergeViews(Node& node, Peephole& peephole) {
  const std::vector<Value*> sources = SourcesOf(node);
  if (sources.size() < 2) return false;
  Value* source = sources.back();
  if (ShapeOf(source) == nullptr || ShapeOf(node.output(0)) == nullptr) return false;
  const auto target = ConstantTarget(*ShapeOf(source), *ShapeOf(node.output(0)),
                                     WrittenMinusOne(node, peephole.contents()));
  return target.has_value() && ReshapeTo(node, source, *target, peephole);
}

bool CanonicalReshape(Node& node, Peephole& peephole) {
  if (ShapeOf(node.input(0)) == nullptr || ShapeOf(node.output(0)) == nullptr) return false;
  const auto target = ConstantTarget(*ShapeOf(node.input(0)), *ShapeOf(node.output(0)),
                                     WrittenMinusOne(node, peephole.contents()));
  if (!target.has_value() || HasConstant(node, *target)) return false;
  return ReshapeTo(node, node.input(0), *target, peephole);
}

bool MergeUnsqueezes(Node& node, Peephole& peephole) {
  const Node* inner = node.input(0) == nullptr ? nullptr : node.input(0)->producer();
  if (inner == nullptr || !inner->Is("Unsqueeze") || inner->graph() != node.graph()) return false;
  const Shape* shape = ShapeOf(node.output(0));
  const Shape* middle = ShapeOf(node.input(0));
  const auto outer_axes = KnownInts(node.input(1), peephole.contents());
  const auto inner_axes = KnownInts(inner->input(1), peephole.contents());
  if (shape == nullptr || middle == nullptr || !outer_axes || !inner_axes) return false;
  // Axes of the result: the outer ones as they are, the inner ones at the places where they end up.
  std::vector<int64_t> axes;
  for (int64_t axis : *outer_axes) axes.push_back(NormalAxis(axis, shape->rank()));
  std::vector<int64_t> places;  // of the middle value's axes in the result
  for (int64_t i = 0; i < shape->rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) places.push_back(i);
  }
  for (int64_t axis : *inner_axes) {
    const int64_t normal = NormalAxis(axis, middle->rank());
    if (normal < 0 || normal >= static_cast<int64_t>(places.size())) return false;
    axes.push_back(places[normal]);
  }
  std::sort(axes.begin(), axes.end());
  Value* operand = AddInts(peephole.graph(), "axes", axes, peephole.contents());
  return peephole.ReplaceByNode(node, "Unsqueeze", {inner->input(0), operand});
}

}  // namespace pagefuse
