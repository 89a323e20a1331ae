// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/sink_attention.h"

#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/paging/alibi_attention.h"
#include "pagefuse/passes/paging/marked_matches.h"

namespace pagefuse {
namespace {

// The probabilities of the keys, as if there were no sink: their softmax.
Node* LeaveSinkOut(Graph& graph, const SinkMatch& match) {
  GraphBuilder builder(graph, match.softmax, match.softmax->output(0)->name());
  Node* alone = builder.AddNode("", "Softmax", {match.scores}, 1, {{"axis", -1}});
  alone->name = match.softmax->name;
  Value* result = alone->output(0);
  const DataType wanted = match.cut->output(0)->dtype();
  if (match.scores->dtype() != wanted) result = builder.Cast(result, wanted);
  graph.ReplaceAllUses(match.cut->output(0), result);
  return alone;
}

}  // namespace

absl::Status LowerSinkAttention(Model& model, SymbolicContents& contents,
                                ExtrasOfAttention& extras) {
  Graph& graph = *model.graph;
  MarkedMatches marked("a softmax with a sink");
  std::vector<Node*> cuts;  // erased behind the walk, which comes to them
  for (Node* node : NodesOf(graph)) {
    const auto match = SinkMatchAt(node, contents);
    if (!match) continue;
    PF_ASSIGN_OR_RETURN(Value * sinks, SinksByHead(graph, *match, contents));
    marked.Mark(match->sum, {.sinks = sinks});
    PF_RETURN_IF_ERROR(CheckNoBiasBesideSink(graph, LeaveSinkOut(graph, *match), contents));
    cuts.push_back(match->cut);
  }
  EraseAllDead(cuts, contents);
  return marked.Recognise(model, contents, extras);
}

}  // namespace pagefuse
