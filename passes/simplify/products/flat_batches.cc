// SPDX-License-Identifier: Apache-2.0
// Keeps heads as an axis of their own where a graph flattens them into the batch, [B, H, m, k] as
// [B * H, m, k]: in products of three axes, as PyTorch's bmm and baddbmm have them, and in
// elementwise ops between two such views.

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

// [B, H, m, k] behind a view [B * H, m, k]; null if it is another view.
Value* HeadsBehind(const Value* flat) {
  const Node* view = flat->producer();
  const Shape* to = ShapeOf(flat);
  const Shape* from = view && view->Is("Reshape") ? ShapeOf(view->input(0)) : nullptr;
  if (!to || !from || to->rank() != 3 || from->rank() != 4) return nullptr;
  const bool joins = ProvablyEqual((*from)[2], (*to)[1]) && ProvablyEqual((*from)[3], (*to)[2]) &&
                     ProvablyEqual((*from)[0] * (*from)[1], (*to)[0]);
  return joins ? view->input(0) : nullptr;
}

class HeadsWriter {
 public:
  HeadsWriter(Node& node, Peephole& peephole) : node_(node), peephole_(peephole) {}

  // The first value with such heads behind one of the values, or behind its transpose.
  static const Value* KnownHeads(const std::vector<Value*>& flat) {
    for (const Value* value : flat) {
      if (const Value* heads = HeadsBehind(value)) return heads;
      if (const Node* turn = Turn(value)) {
        if (const Value* heads = HeadsBehind(turn->input(0))) return heads;
      }
    }
    return nullptr;
  }

  // [B * H, m, k] as [B, H, m, k] with B and H of `like`; null if that cannot be said.
  Value* Heads(Value* flat, const Value* like) {
    const Shape* shape = ShapeOf(flat);
    const Shape& lead = *ShapeOf(like);
    if (!shape || shape->rank() != 3 || !ProvablyEqual(lead[0] * lead[1], (*shape)[0])) {
      return nullptr;
    }
    if (Value* heads = HeadsBehind(flat)) {
      const Shape& own = *ShapeOf(heads);
      const bool same = ProvablyEqual(own[0], lead[0]) && ProvablyEqual(own[1], lead[1]);
      return same ? heads : nullptr;
    }
    if (const Node* turn = Turn(flat)) {
      Value* heads = Heads(turn->input(0), like);
      if (!heads) return nullptr;
      const std::vector<int64_t> swap_last = {0, 1, 3, 2};
      return peephole_.AddNode(node_, "Transpose", {heads}, {{"perm", swap_last}});
    }
    // One by one, so that sizes that inputs have too are read from these.
    Value* with_heads = const_cast<Value*>(like);
    Value* target = peephole_.AddNode(
        node_, "Concat", {Size(with_heads, 0), Size(with_heads, 1), Size(flat, 1), Size(flat, 2)},
        {{"axis", 0}});
    return peephole_.AddNode(node_, "Reshape", {flat, target});
  }

  // Of a product, those of what it is of: the product itself may be fused away.
  Value* Size(Value* value, int axis) {
    const Node* product = value->producer();
    const Shape* from = product && product->Is("MatMul") ? ShapeOf(product->input(0)) : nullptr;
    const Shape* to = ShapeOf(value);
    if (from && to && from->rank() == to->rank() && ProvablyEqual((*from)[axis], (*to)[axis])) {
      return Size(product->input(0), axis);
    }
    return peephole_.AddNode(node_, "Shape", {value}, {{"start", axis}, {"end", axis + 1}});
  }

 private:
  // The Transpose(0, 2, 1) that the value is.
  static const Node* Turn(const Value* value) {
    const Node* node = value->producer();
    const auto perm = node && node->Is("Transpose") ? PermutationOf(*node) : std::nullopt;
    return perm && *perm == std::vector<int64_t>{0, 2, 1} ? node : nullptr;
  }

  Node& node_;
  Peephole& peephole_;
};

// What elementwise ops make of flat batches, of heads.
class HeadsMover {
 public:
  HeadsMover(Node& node, Peephole& peephole, const Value* like, bool writes)
      : writer_(node, peephole), node_(node), peephole_(peephole), like_(like), writes_(writes) {}

  Value* Moved(Value* value) {
    constexpr int kMostNodes = 16;
    if (Value* heads = HeadsBehind(value)) {
      any_ = true;
      return writes_ ? writer_.Heads(value, like_) : heads;
    }
    const Node* node = value->producer();
    if (++nodes_ > kMostNodes) return nullptr;
    if (!node || !IsElementwiseOp(*node) || node->num_outputs() != 1 || !IsReadOnce(value)) {
      const Shape* shape = ShapeOf(value);
      const Shape& lead = *ShapeOf(like_);
      const bool flat =
          shape && shape->rank() == 3 && ProvablyEqual(lead[0] * lead[1], (*shape)[0]);
      return flat && writes_ ? writer_.Heads(value, like_) : flat ? value : nullptr;
    }
    std::vector<Value*> operands;
    for (Value* input : node->inputs()) {
      const Shape* shape = input ? ShapeOf(input) : nullptr;
      if (!shape) return nullptr;
      operands.push_back(shape->rank() == 0 ? input : Moved(input));
      if (!operands.back()) return nullptr;
    }
    if (!writes_) return value;
    return peephole_.AddNode(node_, node->op_type(), operands, *node);
  }

  bool any() const { return any_; }

 private:
  HeadsWriter writer_;
  Node& node_;
  Peephole& peephole_;
  const Value* like_;
  const bool writes_;
  bool any_ = false;
  int nodes_ = 0;
};

// A value above with heads, as the result of the view has them.
const Value* HeadsAbove(const Value* value, const Shape& wanted, int& values_left,
                        int nodes_away = 8) {
  if (const Value* heads = HeadsBehind(value)) {
    const Shape& own = *ShapeOf(heads);
    const bool same = ProvablyEqual(own[0], wanted[0]) && ProvablyEqual(own[1], wanted[1]);
    return same ? heads : nullptr;
  }
  const Node* node = value->producer();
  if (!node || nodes_away == 0 || --values_left < 0 || !IsElementwiseOp(*node)) return nullptr;
  for (const Value* input : node->inputs()) {
    const Value* heads = input ? HeadsAbove(input, wanted, values_left, nodes_away - 1) : nullptr;
    if (heads) return heads;
  }
  return nullptr;
}

}  // namespace

bool ProductOfFlatBatches(Node& node, Peephole& peephole) {
  const Shape *left = ShapeOf(node.input(0)), *right = ShapeOf(node.input(1));
  if (!left || !right || left->rank() != 3 || right->rank() != 3) return false;
  const Value* like = HeadsWriter::KnownHeads(node.inputs());
  if (!like || !ProvablyEqual((*left)[0], (*right)[0])) return false;
  HeadsWriter writer(node, peephole);
  Value* a = writer.Heads(node.input(0), like);
  Value* b = a ? writer.Heads(node.input(1), like) : nullptr;
  if (!a || !b) return false;
  Value* product = peephole.AddNode(node, "MatMul", {a, b});
  Value* target = peephole.AddNode(
      node, "Concat",
      {writer.Size(node.input(0), 0), writer.Size(node.input(0), 1), writer.Size(node.input(1), 2)},
      {{"axis", 0}});
  return peephole.ReplaceByNode(node, "Reshape", {product, target});
}

bool ElementwiseOfFlatBatches(Node& node, Peephole& peephole) {
  const Shape *from = ShapeOf(node.input(0)), *to = ShapeOf(node.output(0));
  const Node* inner = node.input(0)->producer();
  if (!from || !to || from->rank() != 3 || to->rank() != 4 || !inner || !IsElementwiseOp(*inner) ||
      !ProvablyEqual((*to)[0] * (*to)[1], (*from)[0]) || !ProvablyEqual((*to)[2], (*from)[1]) ||
      !ProvablyEqual((*to)[3], (*from)[2])) {
    return false;
  }
  int values_left = 1024;
  const Value* like = HeadsAbove(node.input(0), *to, values_left);
  if (!like) return false;
  HeadsMover dry(node, peephole, like, /*writes=*/false);
  if (!dry.Moved(node.input(0)) || !dry.any()) return false;
  Value* moved = HeadsMover(node, peephole, like, /*writes=*/true).Moved(node.input(0));
  return moved && peephole.Replace(node, moved);
}

}  // namespace pagefuse
