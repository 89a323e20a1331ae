#include "pagefuse/passes/page/sink_attention.h"

#include <map>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/page/alibi_attention.h"
#include "pagefuse/passes/page/recognise_again.h"

namespace pagefuse {
namespace {

// The probabilities of the keys, as if there were no sink: their softmax.
Node* LeaveSinkOut(Graph& graph, const SinkSite& site) {
  GraphBuilder builder(graph, site.softmax, site.softmax->output(0)->name());
  Node* alone = builder.AddNode("", "Softmax", {site.scores}, 1);
  alone->SetAttribute("axis", MakeAttribute(int64_t{-1}));
  alone->name = site.softmax->name;
  Value* result = alone->output(0);
  const DataType wanted = site.cut->output(0)->dtype();
  if (site.scores->dtype() != wanted) {
    result = builder.Add("Cast", {result}, "to", static_cast<int64_t>(wanted));
  }
  graph.ReplaceAllUses(site.cut->output(0), result);
  return alone;
}

}  // namespace

absl::Status LowerSinkAttention(Model& model, SymbolicContents& contents,
                                GroupedAttentionSites& sites) {
  Graph& graph = *model.graph;
  // Sites are known again by the name of their last node.
  struct Named {
    Value* sinks;
    std::string name;
  };
  std::map<std::string, Named> named;
  std::vector<Node*> cuts;  // erased behind the walk, which comes to them
  for (Node* node : NodesOf(graph)) {
    const auto site = SinkSiteAt(node, contents);
    if (!site) continue;
    PF_ASSIGN_OR_RETURN(Value * sinks, SinksByHead(graph, *site, contents));
    const std::string mark = StrCat("attention with a sink, ", named.size());
    named[mark] = {sinks, site->sum->name};
    site->sum->name = mark;
    PF_RETURN_IF_ERROR(CheckNoBiasBesideSink(graph, LeaveSinkOut(graph, *site), contents));
    cuts.push_back(site->cut);
  }
  for (Node* cut : cuts) graph.EraseIfDead(cut);
  if (named.empty()) return absl::OkStatus();
  PF_RETURN_IF_ERROR(RecogniseAgain(model, contents));
  for (const auto& node : graph.nodes()) {
    const auto it = node->Is("Attention") ? named.find(node->name) : named.end();
    if (it == named.end()) continue;
    node->name = it->second.name;
    sites[node.get()] = {.sinks = it->second.sinks};
    named.erase(it);
  }
  if (named.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("node \"", named.begin()->second.name,
             "\": sums values by a softmax with a sink, and is no attention without it"));
}

}  // namespace pagefuse
