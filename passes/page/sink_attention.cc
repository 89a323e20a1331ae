#include "pagefuse/passes/page/sink_attention.h"

#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/page/alibi_attention.h"
#include "pagefuse/passes/page/marked_sites.h"

namespace pagefuse {
namespace {

// The probabilities of the keys, as if there were no sink: their softmax.
Node* LeaveSinkOut(Graph& graph, const SinkSite& site) {
  GraphBuilder builder(graph, site.softmax, site.softmax->output(0)->name());
  Node* alone = builder.AddNode("", "Softmax", {site.scores}, 1, {{"axis", -1}});
  alone->name = site.softmax->name;
  Value* result = alone->output(0);
  const DataType wanted = site.cut->output(0)->dtype();
  if (site.scores->dtype() != wanted) result = builder.Cast(result, wanted);
  graph.ReplaceAllUses(site.cut->output(0), result);
  return alone;
}

}  // namespace

absl::Status LowerSinkAttention(Model& model, SymbolicContents& contents,
                                GroupedAttentionSites& sites) {
  Graph& graph = *model.graph;
  MarkedSites marked("a softmax with a sink");
  std::vector<Node*> cuts;  // erased behind the walk, which comes to them
  for (Node* node : NodesOf(graph)) {
    const auto site = SinkSiteAt(node, contents);
    if (!site) continue;
    PF_ASSIGN_OR_RETURN(Value * sinks, SinksByHead(graph, *site, contents));
    marked.Mark(site->sum, {.sinks = sinks});
    PF_RETURN_IF_ERROR(CheckNoBiasBesideSink(graph, LeaveSinkOut(graph, *site), contents));
    cuts.push_back(site->cut);
  }
  for (Node* cut : cuts) graph.EraseIfDead(cut);
  return marked.Recognise(model, contents, sites);
}

}  // namespace pagefuse
