// SPDX-License-Identifier: Apache-2.0
// Merges what is computed head by head, or part by part along an axis, and concatenated again into
// one computation over all parts:
//
//   Concat (f (x[0], y), f (x[1], y), ..)  =>  f (x, y)
//
// where f mixes no parts. Parts of which several are the same, as keys that heads share, are
// repeated.
#include <algorithm>
#include <map>

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {

bool IsElementwiseOp(const Node& node) {
  return IsAnyOf(node, {"Add",   "Sub",     "Mul",   "Div",        "Max",  "Min",   "Neg",
                        "Exp",   "Log",     "Tanh",  "Cast",       "Abs",  "Relu",  "Pow",
                        "Sqrt",  "Clip",    "Mod",   "Reciprocal", "Sign", "Round", "Ceil",
                        "Floor", "Sigmoid", "Where", "And",        "Or",   "Not",   "Swish"});
}

namespace {

constexpr int kMostNodes = 64;  // above one part

int64_t LengthOf(const AxisPart& part) { return part.end - part.begin; }

using Parts = std::vector<Value*>;

class HeadJoiner {
 public:
  HeadJoiner(Node& node, Peephole& peephole, bool writes)
      : node_(node), peephole_(peephole), writes_(writes) {}

  // What the parts are together; null if that is not known. Without `writes`, any value that is not
  // null.
  Value* Joined(const Parts& parts, int64_t axis) {
    const auto known = joined_.find({parts, axis});
    if (known != joined_.end()) return known->second;
    Value* result = Find(parts, axis);
    joined_[{parts, axis}] = result;
    return result;
  }

 private:
  Value* Find(const Parts& parts, int64_t axis) {
    if (++nodes_ > kMostNodes) return nullptr;
    if (Value* whole = Whole(parts, axis)) return whole;
    const Node* first = parts[0]->producer();
    if (!first || first->num_outputs() != 1) return nullptr;
    for (const Value* part : parts) {
      const Node* node = part->producer();
      if (!node || node->op_type() != first->op_type() || node->domain() != first->domain() ||
          node->num_inputs() != first->num_inputs() || !HaveSameAttributes(*node, *first) ||
          !IsReadOnce(part)) {
        return nullptr;
      }
    }
    const Shape* shape = ShapeOf(parts[0]);
    if (!shape) return nullptr;
    const auto rank = static_cast<int64_t>(shape->rank());
    const bool along =
        IsElementwiseOp(*first) || (first->Is("MatMul") && axis < rank - 2) ||
        (first->Is("Softmax") && NormalAxis(IntOr(*first, "axis", -1), rank) != axis);
    if (along) return JoinedOperands(parts, axis, rank);
    const auto perm = first->Is("Transpose") ? PermutationOf(*first) : std::nullopt;
    return perm ? JoinedOperands(parts, (*perm)[axis], rank) : nullptr;
  }

  // All parts of one value in order, or each of them several times.
  Value* Whole(const Parts& parts, int64_t axis) {
    std::vector<AxisPart> found;
    for (const Value* part : parts) {
      const auto one = PartOf(*part, axis, peephole_.contents());
      if (!one || one->whole != (found.empty() ? one->whole : found[0].whole) ||
          one->end - one->begin != LengthOf(found.empty() ? *one : found[0])) {
        return nullptr;
      }
      found.push_back(*one);
    }
    const int64_t length = LengthOf(found[0]);
    const auto size = (*ShapeOf(found[0].whole))[static_cast<int>(axis)].constant();
    if (!size || length < 1 || *size % length != 0) return nullptr;
    const auto count = static_cast<int64_t>(parts.size()), different = *size / length;
    if (count % different != 0) return nullptr;
    const int64_t times = count / different;
    for (int64_t i = 0; i < count; ++i) {
      if (found[i].begin != i / times * length) return nullptr;
    }
    if (times == 1 || !writes_) return found[0].whole;
    std::vector<int64_t> places;
    for (const AxisPart& part : found) {
      for (int64_t i = 0; i < length; ++i) places.push_back(part.begin + i);
    }
    Value* index = peephole_.Ints("heads", places);
    return peephole_.AddNode(node_, "Gather", {found[0].whole, index}, {{"axis", axis}});
  }

  // `axis`: of operands of that rank, which is the result's.
  Value* JoinedOperands(const Parts& parts, int64_t axis, int64_t rank) {
    const Node& first = *parts[0]->producer();
    std::vector<Value*> operands;
    bool any = false;
    for (int i = 0; i < first.num_inputs(); ++i) {
      Value* operand = first.input(i);
      const bool same = std::ranges::all_of(
          parts, [&](const Value* part) { return part->producer()->input(i) == operand; });
      if (!operand) {
        if (!same) return nullptr;
        operands.push_back(nullptr);
        continue;
      }
      const Shape* shape = ShapeOf(operand);
      if (!shape || (first.Is("Transpose") && shape->rank() != rank)) return nullptr;
      const int64_t own = axis - (rank - shape->rank());
      const bool repeats = own < 0 || (*shape)[static_cast<int>(own)] == Dim(1);
      if (same && repeats) {
        operands.push_back(operand);
        continue;
      }
      if (own < 0) return nullptr;
      Parts inner;
      for (const Value* part : parts) {
        Value* one = part->producer()->input(i);
        if (!one || !SameShapes(one, operand)) return nullptr;
        inner.push_back(one);
      }
      Value* joined = Joined(inner, own);
      if (!joined) return nullptr;
      operands.push_back(joined);
      any = true;
    }
    if (!any) return nullptr;
    if (!writes_) return parts[0];
    return peephole_.AddNode(node_, first.op_type(), operands, first);
  }

  Node& node_;
  Peephole& peephole_;
  const bool writes_;
  int nodes_ = 0;
  std::map<std::pair<Parts, int64_t>, Value*> joined_;
};

// True if a rotation may have made the parts: rope reads its halves as one value.
bool MayBeHalves(const Node& concat) {
  return std::ranges::any_of(concat.inputs(), [](const Value* part) {
    const Node* producer = part->producer();
    return producer && (producer->Is("Add") || producer->Is("Sub"));
  });
}

}  // namespace

bool JoinWrites(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.output(0));
  if (!shape) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  Value *whole = nullptr, *indices = nullptr;
  int64_t end = 0;
  std::vector<Value*> updates;
  for (const Value* input : node.inputs()) {
    const Node* write = input->producer();
    if (!write || !write->Is("ScatterND") || !write->attributes().empty() || !IsReadOnce(input)) {
      return false;
    }
    const auto part = PartOf(*write->input(0), axis, peephole.contents());
    if (!part || part->begin != end || (whole && part->whole != whole) ||
        (indices && write->input(1) != indices)) {
      return false;
    }
    whole = part->whole;
    indices = write->input(1);
    end = part->end;
    updates.push_back(write->input(2));
  }
  const Shape* places = indices ? ShapeOf(indices) : nullptr;
  const auto depth = places ? places->back(0).constant() : std::nullopt;
  if (!depth || axis < *depth || updates.size() < 2 || !SameShapes(node.output(0), whole)) {
    return false;
  }
  const int64_t joined = axis - *depth + places->rank() - 1;
  Value* rows = peephole.AddNode(node, "Concat", updates, {{"axis", joined}});
  return peephole.ReplaceByNode(node, "ScatterND", {whole, indices, rows});
}

bool JoinConcats(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.output(0));
  if (!shape) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  std::vector<Value*> parts;
  for (Value* input : node.inputs()) {
    const Node* inner = input->producer();
    const bool joins = inner && inner->Is("Concat") && IsReadOnce(input) && !MayBeHalves(*inner) &&
                       NormalAxis(IntOr(*inner, "axis", 0), shape->rank()) == axis;
    if (joins) {
      parts.insert(parts.end(), inner->inputs().begin(), inner->inputs().end());
    } else {
      parts.push_back(input);
    }
  }
  if (parts.size() == node.inputs().size()) return false;
  return peephole.ReplaceByNode(node, "Concat", parts, {{"axis", axis}});
}

bool JoinHeads(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.output(0));
  if (!shape || node.num_inputs() < 2 || !node.input(0)->producer()) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), shape->rank());
  const Parts parts(node.inputs().begin(), node.inputs().end());
  for (const Value* part : parts) {
    if (!SameShapes(part, parts[0])) return false;
  }
  if (!HeadJoiner(node, peephole, /*writes=*/false).Joined(parts, axis)) return false;
  Value* joined = HeadJoiner(node, peephole, /*writes=*/true).Joined(parts, axis);
  return joined && SameShapes(node.output(0), joined) && peephole.Replace(node, joined);
}

}  // namespace pagefuse
