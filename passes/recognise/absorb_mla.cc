// SPDX-License-Identifier: Apache-2.0
// absorb-mla: attention over keys and values that are expanded from latent rows becomes attention
// over the latent rows themselves (DeepSeek-V2, section 2.1.2): the expansion of keys moves to the
// query, that of values behind the attention. Keys are then one head, and a cache need hold nothing
// but the latent rows.
//
//   latent [B, 1, T, L] -- MatMul W [L, H (P + V)] -- Reshape -- Transpose -- Split -- k_nope, v
//   y = Attention (Concat (q_nope, q_pe), Concat (k_nope, Expand (k_pe)), v, mask)
//     =>  o = Attention (Concat (q_nope W_UK, q_pe), Concat (latent, k_pe), latent, mask)
//         y = o W_UV
//
// Products move, so that numbers differ by rounding.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/latent_attention.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;

constexpr std::string_view kName = "absorb-mla";

absl::StatusOr<LatentAttention> FindUse(const Node& attention) {
  if (attention.input(Attention::kPastKey) || attention.num_outputs() != 1) {
    return MatchFailure("attention has a past, or further outputs");
  }
  return FindLatentAttention(attention);
}

// The absorbed form before `attention`; what its result becomes.
absl::StatusOr<Value*> Absorbed(Graph& graph, Node* attention, const LatentAttention& match) {
  GraphBuilder builder(graph, attention, attention->output(0)->name());
  PF_ASSIGN_OR_RETURN(const AbsorbedOperands operands,
                      AbsorbExpansion(graph, builder, *attention, match));
  const auto& [query, w_uv] = operands;
  Value* latent = RowsAsExpanded(builder, match, match.latent);
  if (latent->shape()->rank() == 3) latent = builder.Add("Unsqueeze", {latent, builder.Ints({1})});
  Value* key = builder.Add("Concat", {latent, match.k_pe}, {{"axis", -1}});
  Node* absorbed = builder.AddNode(
      "", "Attention", {query, key, latent, attention->input(Attention::kMask)}, 1, *attention);
  TakePlace(*absorbed, *attention);
  return builder.Add("MatMul", {absorbed->output(0), w_uv});
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const bool on = context.Option("absorb_mla", "off") == "on";
  Graph& graph = *model.graph;
  bool changed = false;
  for (Node* node : NodesOf(graph)) {
    if (!node->Is("Attention")) continue;
    const absl::StatusOr<LatentAttention> match =
        on ? FindUse(*node) : MatchFailure("option absorb_mla is not on");
    if (!match.ok()) {
      context.AddMissedMatch(kName, NodeLabel(*node), std::string(match.status().message()));
      continue;
    }
    changed = true;
    PF_ASSIGN_OR_RETURN(Value * y, Absorbed(graph, node, *match));
    ReplaceNode(node, y);
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> AbsorbMla() {
  return MakePass(
      kName,
      "Moves the expansion of latent keys and values out of attention, which then runs over the "
      "latent rows (option absorb_mla=on).",
      Run, {AbsorbMlaOption()});
}

}  // namespace pagefuse
