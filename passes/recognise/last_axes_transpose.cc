// SPDX-License-Identifier: Apache-2.0
// last-axes-transpose: keys transposed through three dimensions are transposed where they are, keys
// that leave their projection and are transposed in one step do both one after the other, and keys
// that are joined as columns are joined as rows and transposed behind it.
//
//   x [B, H, T, D] -- Reshape [B*H, T, D] -- Transpose(0, 2, 1) -- Reshape [B, H, D, T]
//     =>  x -- Transpose(0, 1, 3, 2)
//   x [B, T, H, D] -- Transpose(0, 2, 3, 1)
//     =>  x -- Transpose(0, 2, 1, 3) -- Transpose(0, 1, 3, 2)
//   Concat <axis = 3> (Transpose(0, 1, 3, 2) (past), Transpose(0, 1, 3, 2) (x))
//     =>  Transpose(0, 1, 3, 2) (Concat <axis = 2> (past, x))
#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "last-axes-transpose";

// The reshaped value [B, H, D, T] that `transpose` leads to, and x where it starts, with x's shape
// as [B, H, T, D]; null if it is another chain.
struct Chain {
  Value* start = nullptr;
  Value* end = nullptr;
  Shape heads;
};

// The target of a Reshape to `shape`: numbers, and -1 for one dim that is none.
std::optional<std::vector<int64_t>> TargetOf(const Shape& shape) {
  std::vector<int64_t> target;
  for (const Dim& dim : shape.dims()) target.push_back(dim.constant().value_or(-1));
  if (std::count(target.begin(), target.end(), -1) > 1) return std::nullopt;
  return target;
}

bool TransposesBy(const Node* node, const std::vector<int64_t>& wanted) {
  if (!node || !node->Is("Transpose")) return false;
  const auto perm = node->IntsAttribute("perm", {});
  return perm.ok() && *perm == wanted;
}

Chain FindChain(const Node& transpose) {
  if (!TransposesBy(&transpose, {0, 2, 1})) return {};
  const Node* before = transpose.input(0)->producer();
  const Node* after = OnlyReader(*transpose.output(0));
  if (!before || !before->Is("Reshape") || !after || !after->Is("Reshape")) return {};
  Value* x = before->input(0);
  Value* y = after->output(0);
  const auto& joined = transpose.input(0)->shape();
  if (!x->shape() || !y->shape() || !joined || y->shape()->rank() != 4) return {};
  const Shape& to = *y->shape();
  const Shape heads{to[0], to[1], to[3], to[2]};
  // Where a batch of one let the view before merge with this one, x has other axes in front.
  if (!ProvablyEqual(heads, *x->shape()) && !TargetOf(heads)) return {};
  if (!ProvablyEqual((*joined)[0], heads[0] * heads[1])) return {};
  if (!ProvablyEqual((*joined)[1], heads[2]) || !ProvablyEqual((*joined)[2], heads[3])) return {};
  return {x, y, heads};
}

bool IsBothAtOnce(const Node& node) { return TransposesBy(&node, {0, 2, 3, 1}); }

bool SwapsLastAxes(const Node* node) { return TransposesBy(node, {0, 1, 3, 2}); }

bool JoinsColumns(const Node& node) {
  const int64_t axis = IntOr(node, "axis", 0);
  return node.Is("Concat") && (axis == 3 || axis == -1) &&
         std::all_of(node.inputs().begin(), node.inputs().end(),
                     [](const Value* input) { return SwapsLastAxes(input->producer()); });
}

void JoinRows(Graph& graph, Node* concat) {
  Value* columns = concat->output(0);
  GraphBuilder builder(graph, concat, columns->name());
  std::vector<Value*> parts;
  for (const Value* input : concat->inputs()) parts.push_back(input->producer()->input(0));
  Value* rows = builder.Add("Concat", parts, {{"axis", 2}});
  const std::vector<Use> uses = columns->uses();
  for (const Use& use : uses) {
    if (SwapsLastAxes(use.node) && ReplaceValue(graph, use.node->output(0), rows)) {
      graph.EraseIfDead(use.node);
    }
  }
  ReplaceValue(graph, columns,
               builder.Add("Transpose", {rows}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}}));
  graph.EraseIfDead(concat);
}

void TakeApart(Graph& graph, Node* transpose) {
  Value* end = transpose->output(0);
  GraphBuilder builder(graph, transpose, end->name());
  Value* heads =
      builder.Add("Transpose", {transpose->input(0)}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  Value* swapped = builder.Add("Transpose", {heads}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  graph.ReplaceAllUses(end, swapped);
  graph.EraseIfDead(transpose);
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Node* node : NodesOf(graph)) {
    if (!IsBothAtOnce(*node)) continue;
    TakeApart(graph, node);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  for (Node* join : NodesOf(graph, JoinsColumns)) {
    JoinRows(graph, join);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  if (changed) PF_RETURN_IF_ERROR(InferShapes(model));
  const std::vector<Node*> transposes =
      NodesOf(graph, [](const Node& node) { return FindChain(node).start != nullptr; });
  for (Node* transpose : transposes) {
    const Chain chain = FindChain(*transpose);
    GraphBuilder builder(graph, transpose, chain.end->name());
    Value* heads = chain.start;
    if (!ProvablyEqual(*heads->shape(), chain.heads)) {
      heads = builder.Add("Reshape", {heads, builder.Ints(*TargetOf(chain.heads))});
      heads->set_shape(chain.heads);
    }
    Value* swapped =
        builder.Add("Transpose", {heads}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    ReplaceNode(chain.end->producer(), swapped);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return changed || !transposes.empty();
}

}  // namespace

std::unique_ptr<Pass> RecogniseLastAxesTranspose() {
  return MakePass(
      kName,
      "Rewrites transposes of keys that go through three axes, or that split heads in the same "
      "step, as a Transpose of the last two of four axes.",
      Run);
}

}  // namespace pagefuse
