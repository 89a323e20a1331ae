#include "pagefuse/passes/paging/marked_matches.h"

#include <memory>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
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

void MarkedMatches::Mark(Node* last, const GroupedAttentionExtras& extras) {
  const std::string mark = StrCat(what_, ", ", named_.size());
  named_[mark] = {extras, std::exchange(last->name, mark)};
}

absl::Status MarkedMatches::Recognise(Model& model, SymbolicContents& contents,
                                      GroupedAttentionMatches& matches) {
  if (named_.empty()) return absl::OkStatus();
  PF_RETURN_IF_ERROR(RunPasses(model, contents));
  for (const auto& node : model.graph->nodes()) {
    const auto it = node->Is("Attention") ? named_.find(node->name) : named_.end();
    if (it == named_.end()) continue;
    node->name = it->second.name;
    const GroupedAttentionExtras& extras = it->second.extras;
    GroupedAttentionExtras& match = matches[node.get()];
    if (extras.sinks) match.sinks = extras.sinks;
    if (extras.slopes) match.slopes = extras.slopes;
    if (extras.counted) match.counted = extras.counted;
    named_.erase(it);
  }
  if (named_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("node \"", named_.begin()->second.name,
                                              "\": sums values by ", what_,
                                              ", and is no attention without it"));
}

}  // namespace pagefuse
