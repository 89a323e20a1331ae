// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/match_pass.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/function_pass.h"

namespace pagefuse {

namespace {

// Whether something was fused.
absl::StatusOr<bool> FuseFirst(std::string_view name, const std::vector<Node*>& places,
                               const MatchFusion& fuse, const GraphScope& scope,
                               PassContext& context) {
  for (Node* node : places) {
    const std::string at = node->output(0)->name();
    const absl::Status fused = fuse(*node, scope, context);
    if (fused.ok()) return true;  // nodes behind it may be gone
    if (absl::IsInternal(fused)) return fused;
    const bool near = absl::IsFailedPrecondition(fused);
    if (near || absl::IsUnimplemented(fused)) {
      context.AddMissedMatch(name, at, StdView(fused.message()), near ? 3 : 2);
    }
  }
  return false;
}

// The same once in each graph of the model.
absl::StatusOr<bool> FuseOnceEach(std::string_view name, const MatchPlaces& places,
                                  const MatchFusion& fuse, Model& model, PassContext& context) {
  bool any = false;
  for (const GraphScope& scope : AllGraphs(model)) {
    PF_ASSIGN_OR_RETURN(const bool fused,
                        FuseFirst(name, places(*scope.graph), fuse, scope, context));
    if (!fused) continue;
    PF_RETURN_IF_ERROR(context.Rewrote(model, name));
    any = true;
  }
  return any;
}

}  // namespace

std::unique_ptr<Pass> MakeMatchPass(std::string_view name, std::string_view description,
                                    MatchPlaces places, MatchFusion fuse) {
  const auto run = [name = std::string(name), places = std::move(places), fuse = std::move(fuse)](
                       Model& model, PassContext& context) -> absl::StatusOr<bool> {
    bool changed = false;
    bool again = true;
    while (again) {
      PF_ASSIGN_OR_RETURN(again, FuseOnceEach(name, places, fuse, model, context));
      changed = changed || again;
    }
    return changed;
  };
  return MakePass(name, description, run);
}

absl::StatusOr<AttentionMatch> ReadAnyAttention(IndexingAnalysis& reader, Value* output,
                                                bool biased) {
  auto match = ReadAttention(reader, output);
  absl::Status read = match.status();
  if (match.ok() && !biased) read = CheckNoBias(*match);
  if (absl::IsFailedPrecondition(read)) return absl::UnimplementedError(read.message());
  return match;
}

absl::Status ReplaceMatch(
    const ReadMatch& read, const FusionPlace& place,
    const std::function<absl::StatusOr<std::vector<Value*>>(Replacement&)>& build) {
  Value* output = read.match.output.value;
  std::vector<Value*> results = {output};
  if (read.sums) results.push_back(read.sums->element.value);
  PF_RETURN_IF_ERROR(ServesOnly(read.reader, results));
  Replacement replacement(*place.scope.graph, *output, place.rule);
  return replacement.Finish(build(replacement), results, *place.scope.opsets,
                            place.context.contents);
}

std::vector<Node*> IntegerChoices(const Graph& graph) {
  return NodesOf(graph, [](const Node& node) {
    return node.Is("Where") && !IsFloatingPoint(node.output(0)->dtype());
  });
}

}  // namespace pagefuse
