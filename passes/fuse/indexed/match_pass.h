// SPDX-License-Identifier: Apache-2.0
// The base of passes that fuse attention and scores which are read by element, one at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/attention/attention_match.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Where it is worth a look.
using MatchPlaces = std::function<std::vector<Node*>(const Graph&)>;
// Fuses what the node ends. FailedPrecondition: why it is left, which the pass notes; Unimplemented: as
// well, of what is read less far than to what the pass is for; Internal: the graph is broken; others: it
// is nothing for this pass.
using MatchFusion = std::function<absl::Status(Node&, const GraphScope&, PassContext&)>;

// Tries each place of each graph, and all of them again when one has been fused, until none is.
std::unique_ptr<Pass> MakeMatchPass(std::string_view name, std::string_view description,
                                    MatchPlaces places, MatchFusion fuse);

// As ReadAttention, and without a bias if there may be none; Unimplemented for what FailedPrecondition
// is there: attention in any form.
absl::StatusOr<AttentionMatch> ReadAnyAttention(IndexingAnalysis& reader, Value* output,
                                                bool biased = true);

// A match of attention as it was read, with its log-sum-exps where it has some.
struct ReadMatch {
  const IndexingAnalysis& reader;
  const AttentionMatch& match;
  const std::optional<LogSums>& sums;
};

// Where a pass works, and in whose name.
struct FusionPlace {
  std::string_view rule;
  const GraphScope& scope;
  PassContext& context;
};

// Puts what `build` makes in place of the results of a match. FailedPrecondition where somebody else
// reads what was computed between.
absl::Status ReplaceMatch(
    const ReadMatch& read, const FusionPlace& place,
    const std::function<absl::StatusOr<std::vector<Value*>>(Replacement&)>& build);

// Choices between integers: where lists of slots and of columns end.
std::vector<Node*> IntegerChoices(const Graph& graph);

}  // namespace pagefuse
