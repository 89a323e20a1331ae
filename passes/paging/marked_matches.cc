// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/marked_matches.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/head_order.h"
#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

absl::Status RunPasses(Model& model, SymbolicContents& contents) {
  const std::unique_ptr<Pass> passes[] = {RecogniseAttentionForms(), RecogniseAttention(),
                                          RecogniseAttentionInputs(), RecogniseAttentionMask()};
  for (const auto& pass : passes) {
    PassContext context;
    contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &contents));
    context.contents = contents;
    PF_RETURN_IF_ERROR(pass->Run(model, context).status());
  }
  contents.clear();
  return InferShapes(model, &contents);
}

}  // namespace

void MarkedMatches::Mark(Node* last, const AttentionExtras& extras) {
  // No node of the file is called so.
  std::string mark = StrCat(what_, ", ", named_.size());
  const auto taken = [&mark](const auto& node) { return node->name == mark; };
  while (std::ranges::any_of(last->graph()->nodes(), taken)) mark += "'";
  named_[mark] = {extras, std::exchange(last->name, mark)};
  SetMetadata(last->metadata, kKeepsHeads, "");
}

absl::Status MarkedMatches::Recognise(Model& model, SymbolicContents& contents,
                                      ExtrasOfAttention& extras) {
  if (named_.empty()) return absl::OkStatus();
  PF_RETURN_IF_ERROR(RunPasses(model, contents));
  for (const auto& node : model.graph->nodes()) {
    const auto it = node->Is("Attention") ? named_.find(node->name) : named_.end();
    if (it == named_.end()) continue;
    node->name = it->second.name;
    const AttentionExtras& taken = it->second.extras;
    AttentionExtras& match = extras.At(node.get());
    if ((taken.sinks && match.sinks) || (taken.slopes && match.slopes)) {
      return Unfit(*node, StrCat("sums values by ", what_, ", and by another"));
    }
    if (taken.sinks) match.sinks = taken.sinks;
    if (taken.slopes) match.slopes = taken.slopes;
    if (taken.most_keys) match.most_keys = taken.most_keys;
    if (taken.counted) match.counted = taken.counted;
    named_.erase(it);
  }
  if (named_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("node \"", named_.begin()->second.name,
                                              "\": sums values by ", what_,
                                              ", and is no attention without it"));
}

void EraseAllDead(const std::vector<Node*>& nodes, SymbolicContents& contents) {
  absl::flat_hash_set<const Node*> gone;
  for (Node* node : nodes) {
    if (gone.contains(node)) continue;
    for (const Node* erased : EraseDead(node, contents)) gone.insert(erased);
  }
}

}  // namespace pagefuse
