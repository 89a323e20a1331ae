// SPDX-License-Identifier: Apache-2.0
// Moves Transposes around elementwise ops, where this leaves fewer of them: the ops are computed in
// another layout.
//
//   T(T'(a) + b)      =>  a + T(b)         where T undoes T'
//   T(a) * f(T(b))    =>  T(a * f(b))
//
// What is looked at is the tree of elementwise ops above a value, as far as nothing else reads its
// nodes, or nodes are computed twice; its leaves lie as they come or transposed.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

using Permutation = std::vector<int64_t>;

Permutation Identity(size_t rank) {
  Permutation perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

// `first`, then `second`.
Permutation Composed(const Permutation& first, const Permutation& second) {
  Permutation both;
  for (int64_t axis : second) both.push_back(first[axis]);
  return both;
}

Permutation Inverse(const Permutation& perm) {
  Permutation inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}

// What elementwise ops read: the value, and how it lies there.
struct Leaf {
  Value* value = nullptr;   // as the ops read it
  Value* source = nullptr;  // it is the transpose of
  Permutation perm;
  size_t trailing = 0;    // of fewer axes than the result: it is along so many of the last ones
  bool constant = false;  // transposed when it is folded
  bool dropped = false;   // its Transpose is read by nothing else
};

class ElementwiseTree {
 public:
  // `shares`: goes on through values that are read elsewhere too.
  ElementwiseTree(const Value* root, size_t rank, bool shares = false)
      : rank_(rank), shares_(shares) {
    ok_ = Read(root);
    for (auto& [value, leaf] : leaves_) leaf.dropped = IsReadInside(*value);
  }

  bool ok() const { return ok_ && !leaves_.empty(); }

  // How many Transposes would go and come if the tree were computed in the layout that `after` makes
  // of its own. Nullopt if some leaf cannot lie so.
  std::optional<int> Saved(const Permutation& after) const {
    int saved = 0;
    for (const auto& [value, leaf] : leaves_) {
      if (leaf.trailing > 0) {
        if (!KeepsLast(after, leaf.trailing)) return std::nullopt;
        continue;
      }
      if (leaf.constant) continue;
      const Permutation now = Composed(leaf.perm, after);
      saved += !MovesNothing(leaf.perm) && leaf.dropped ? 1 : 0;
      saved -= MovesNothing(now) || IsTurnedProduct(leaf, now) ? 0 : 1;
    }
    return saved;
  }

  // How most leaves are transposed.
  Permutation MostCommon() const {
    std::map<Permutation, int> counts;
    for (const auto& [value, leaf] : leaves_) {
      if (leaf.dropped && !MovesNothing(leaf.perm)) ++counts[leaf.perm];
    }
    Permutation best = Identity(rank_);
    int most = 0;
    for (const auto& [perm, count] : counts) {
      if (count > most) best = perm;
      most = std::max(most, count);
    }
    return best;
  }

  // How all leaves are transposed; nullopt if one is not, or otherwise.
  std::optional<Permutation> Common() const {
    const Permutation& perm = leaves_.begin()->second.perm;
    const bool alike = std::ranges::all_of(leaves_, [&perm](const auto& entry) {
      const Leaf& leaf = entry.second;
      return leaf.source != leaf.value && leaf.perm == perm;
    });
    return alike ? std::optional(perm) : std::nullopt;
  }

  // The tree above `value` in the layout that `after` makes of its own.
  Value* Write(Value* value, const Permutation& after, Node& before, Peephole& peephole) {
    const auto known = written_.find(value);
    if (known != written_.end()) return known->second;
    return written_[value] = WriteNew(value, after, before, peephole);
  }

 private:
  // False if the tree cannot be turned.
  bool Read(const Value* value) {
    constexpr int kMostNodes = 32;
    const Node* node = value->producer();
    if (!node || !IsElementwiseOp(*node) || node->num_outputs() != 1 || ++nodes_ > kMostNodes) {
      return false;
    }
    inside_.insert({value, node});
    for (Value* input : node->inputs()) {
      if (!input || !ShapeOf(input)) return false;
      const auto rank = static_cast<size_t>(ShapeOf(input)->rank());
      if (IsNumber(*input) || inside_.contains(input) || leaves_.contains(input)) continue;
      const Node* producer = input->producer();
      const bool goes_on = rank == rank_ && producer && producer->graph() == node->graph() &&
                           IsElementwiseOp(*producer) &&
                           (shares_ ? !input->is_output() : IsReadOnce(input));
      if (goes_on ? !Read(input) : !AddLeaf(*node, input, rank)) return false;
    }
    return true;
  }

  static bool IsNumber(const Value& value) {
    const Tensor* tensor = ConstantOf(&value);
    return ShapeOf(&value)->rank() == 0 || (tensor && tensor->rank() == 1 && tensor->size() == 1);
  }

  bool IsReadInside(const Value& value) const {
    return !value.is_output() && std::ranges::all_of(value.uses(), [this](const Use& use) {
      return use.node->num_outputs() == 1 && inside_.contains(use.node->output(0));
    });
  }

  bool AddLeaf(const Node& reader, Value* value, size_t rank) {
    if (rank > rank_) return false;
    Leaf leaf = {.value = value, .source = value, .perm = Identity(rank_)};
    leaf.trailing = rank < rank_ ? rank : 0;
    leaf.constant = rank == rank_ && ConstantOf(value) != nullptr;
    const Node* producer = value->producer();
    if (rank == rank_ && producer && producer->Is("Transpose") &&
        producer->graph() == reader.graph()) {
      const auto perm = PermutationOf(*producer);
      if (!perm || perm->size() != rank_) return false;
      leaf.source = producer->input(0);
      leaf.perm = *perm;
    }
    leaves_.emplace(value, std::move(leaf));
    return true;
  }

  static bool KeepsLast(const Permutation& perm, size_t count) {
    for (size_t i = perm.size() - count; i < perm.size(); ++i) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }

  // A product that is transposed as well by exchanging its factors, of which one is transposed
  // already.
  static bool IsTurnedProduct(const Leaf& leaf, const Permutation& now) {
    const Node* product = leaf.source->producer();
    if (!MovesNothing(leaf.perm) || !product || !product->Is("MatMul") || now.size() < 2 ||
        !IsReadOnce(leaf.source)) {
      return false;
    }
    Permutation swap = Identity(now.size());
    std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
    if (now != swap) return false;
    return std::ranges::any_of(product->inputs(), [&swap](const Value* factor) {
      const Node* transpose = factor->producer();
      const auto perm =
          transpose && transpose->Is("Transpose") ? PermutationOf(*transpose) : std::nullopt;
      return perm == swap;
    });
  }

  Value* WriteNew(Value* value, const Permutation& after, Node& before, Peephole& peephole) {
    const auto leaf = leaves_.find(value);
    if (leaf != leaves_.end()) {
      if (leaf->second.trailing > 0) return value;
      const Permutation now = Composed(leaf->second.perm, after);
      if (MovesNothing(now)) return leaf->second.source;
      return peephole.AddNode(before, "Transpose", {leaf->second.source}, {{"perm", now}});
    }
    const auto inside = inside_.find(value);
    if (inside == inside_.end()) return value;  // a number
    const Node* node = inside->second;
    std::vector<Value*> operands;
    for (Value* input : node->inputs()) operands.push_back(Write(input, after, before, peephole));
    Value* copy = peephole.AddNode(before, node->op_type(), operands, *node);
    if (!shares_) copy->producer()->name = node->name;
    return copy;
  }

  size_t rank_;
  bool shares_;
  bool ok_ = false;
  int nodes_ = 0;
  std::map<const Value*, const Node*> inside_;
  std::map<const Value*, Leaf> leaves_;
  std::map<const Value*, Value*> written_;
};

// True if the value is a Transpose, or one number is computed of each of its elements.
bool LeadsToTranspose(const Value* value) {
  constexpr int kMostSteps = 6;
  for (int step = 0; value && value->producer() && step < kMostSteps; ++step) {
    const Node& node = *value->producer();
    if (node.Is("Transpose")) return true;
    if (!IsElementwiseOp(node) || !IsReadOnce(value)) return false;
    const auto other = std::ranges::find_if(
        node.inputs(), [](const Value* input) { return input && input->producer() != nullptr; });
    value = other == node.inputs().end() ? nullptr : *other;
  }
  return false;
}

}  // namespace

// What is read elsewhere too is computed twice, until its other readers are turned as well.
bool ElementwiseBetweenTransposes(Node& node, Peephole& peephole) {
  const auto outer = PermutationOf(node);
  if (!outer) return false;
  ElementwiseTree tree(node.input(0), outer->size(), /*shares=*/true);
  const auto inner = tree.ok() ? tree.Common() : std::nullopt;
  if (!inner) return false;
  Value* turned = tree.Write(node.input(0), Inverse(*inner), node, peephole);
  const Permutation both = Composed(*inner, *outer);
  if (MovesNothing(both)) return peephole.Replace(node, turned);
  return peephole.ReplaceByNode(node, "Transpose", {turned}, {{"perm", both}});
}

bool TransposeIntoElementwise(Node& node, Peephole& peephole) {
  const auto perm = PermutationOf(node);
  if (!perm || !IsReadOnce(node.input(0))) return false;
  ElementwiseTree tree(node.input(0), perm->size());
  const auto saved = tree.ok() ? tree.Saved(*perm) : std::nullopt;
  if (!saved || *saved + 1 <= 0) return false;
  return peephole.Replace(node, tree.Write(node.input(0), *perm, node, peephole));
}

bool TransposeOfElementwise(Node& node, Peephole& peephole) {
  const Shape* shape = ShapeOf(node.output(0));
  if (!shape || shape->rank() < 2) return false;
  if (std::ranges::count_if(node.inputs(), LeadsToTranspose) < 2) return false;
  ElementwiseTree tree(node.output(0), static_cast<size_t>(shape->rank()));
  if (!tree.ok()) return false;
  const Permutation common = tree.MostCommon();
  if (MovesNothing(common)) return false;
  const Permutation back = Inverse(common);
  const auto saved = tree.Saved(back);
  if (!saved || *saved - 1 <= 0) return false;
  Value* turned = tree.Write(node.output(0), back, node, peephole);
  node.name.clear();  // the copy has it
  return peephole.ReplaceByNode(node, "Transpose", {turned}, {{"perm", common}});
}

}  // namespace pagefuse
