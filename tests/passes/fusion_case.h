// SPDX-License-Identifier: Apache-2.0
// Graphs of standard ops that must become fused ops, with the numbers that they give: an op's own
// decomposition, or a case of the fusion corpus.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

using Feeds = std::map<std::string, Tensor>;

struct FusionCase {
  std::string name;
  std::string group;  // the op, or the family in the corpus
  Model plain;
  bool must_fuse = true;
  std::vector<Feeds> feeds;
  PipelineOptions options;
  // OK if the graph that the passes gave has the fused ops that it should.
  std::function<absl::Status(const Graph&)> check_fused;
  // OK if outputs are close enough to others.
  std::function<absl::Status(const std::vector<Tensor>& got, const std::vector<Tensor>& want)>
      compare;
};

// Every call of a fused op that has a decomposition, as its nodes.
absl::Status Decompose(Model& model);

// A case folder whose model is one call of a fused op: its decomposition must become that call
// again, with equal attributes. `symbols`: how many tokens there are differs from run to run.
absl::StatusOr<FusionCase> LoadDecompositionCase(const std::string& folder, bool symbols);
// The same from a text; its feeds are made up.
absl::StatusOr<FusionCase> ParseDecompositionCase(const std::string& name, const std::string& text);
// A folder with an expect.json.
absl::StatusOr<FusionCase> LoadCorpusCase(const std::string& folder);

// What became of one graph.
struct FusionOutcome {
  Model model;                           // after the passes
  absl::Status fusion;                   // as the case wants it, with the nearest misses
  std::vector<MissedMatch> misses = {};  // where it is not
};

// Runs the passes on a copy of the graph.
absl::StatusOr<FusionOutcome> RunFusion(const FusionCase& fusion_case, const Model& plain);
// What did not fire on it, and why: a run that explains takes longer.
absl::StatusOr<std::vector<MissedMatch>> MissesOf(const FusionCase& fusion_case,
                                                  const Model& plain);

// Both graphs on every one of `feeds`. Unimplemented where the second cannot be run.
absl::Status SameNumbers(const FusionCase& fusion_case, const std::vector<Feeds>& feeds,
                         const Model& got, const Model& want);

// True if a fused op that is put in for slots that are not negative gets some that are.
bool WritesNegativeSlots(const Model& fused, const Feeds& feeds);

// True if some value of the graph is a NaN on these feeds.
bool ComputesNan(const Model& model, const Feeds& feeds);

// The feeds of the case, and others: floats of other magnitudes and signs.
std::vector<Feeds> MoreFeeds(const FusionCase& fusion_case);

}  // namespace pagefuse
