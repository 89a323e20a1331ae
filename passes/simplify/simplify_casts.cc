// SPDX-License-Identifier: Apache-2.0
// simplify-casts: removes and merges casts that keep every value.

#include "pagefuse/passes/edit/number_types.h"
#include "pagefuse/passes/simplify/peephole.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

DataType TargetOf(const Node& cast) { return static_cast<DataType>(IntOr(cast, "to", 0)); }

bool RemoveCast(Node& node, Peephole& peephole) {
  Value* input = node.input(0);
  if (input == nullptr || input->dtype() == DataType::kUndefined) return false;
  if (input->dtype() != TargetOf(node)) return false;
  return peephole.Replace(node, input);
}

bool MergeCasts(Node& node, Peephole& peephole) {
  Value* middle = node.input(0);
  Node* first = middle == nullptr ? nullptr : middle->producer();
  if (first == nullptr || !first->Is("Cast") || first->graph() != node.graph()) return false;
  Value* source = first->input(0);
  if (source == nullptr || !KeepsAllNumbers(source->dtype(), TargetOf(*first))) return false;
  if (source->dtype() == TargetOf(node)) return peephole.Replace(node, source);
  return peephole.ReplaceByNode(node, "Cast", {source}, node);
}

bool CastLikeToCast(Node& node, Peephole& peephole) {
  const Value* like = node.input(1);
  if (like == nullptr || like->dtype() == DataType::kUndefined) return false;
  const int64_t type = static_cast<int64_t>(like->dtype());
  return peephole.ReplaceByNode(node, "Cast", {node.input(0)}, {node, {{"to", type}}});
}

}  // namespace

std::unique_ptr<Pass> SimplifyCasts() {
  return MakePeepholePass(
      "simplify-casts",
      "Removes casts to the type that a value already has, merges casts that keep every value, "
      "and turns CastLike into Cast.",
      {{"cast-like-to-cast", "CastLike", CastLikeToCast},
       {"remove-cast", "Cast", RemoveCast},
       {"merge-casts", "Cast", MergeCasts}});
}

}  // namespace pagefuse
