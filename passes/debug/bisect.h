// SPDX-License-Identifier: Apache-2.0
// Finds the first rewrite of a pipeline that changes the results of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

// Judges the model that the first so many rewrites leave: nothing if it is good, else what is wrong
// with it ("\"logits\" differ"). An error ends the search.
using RewriteJudge = std::function<absl::StatusOr<std::string>(const Model& after, int64_t limit)>;

struct BisectStep {
  int64_t limit = 0;
  std::string wrong;  // empty: good
};

struct Bisection {
  int64_t rewrites = 0;  // of the whole pipeline
  std::vector<BisectStep> steps;
  std::optional<Rewrite> bad;  // none where all is good
};

// Runs the pipeline to all its rewrites, and, if the judge finds that wrong, halves. A pipeline that
// fails is wrong by its error. InvalidArgument if the model is wrong before any rewrite.
absl::StatusOr<Bisection> Bisect(const Model& model, const PipelineOptions& options,
                                 const RewriteJudge& judge);

// Compares all outputs with those of `before`, on the feeds of the options or made-up ones.
// Unimplemented with the reason if `before` does not run.
absl::StatusOr<RewriteJudge> OutputJudge(const Model& before, const PipelineOptions& options);

// `365 rewrites; all: "logits" differ; 1-182 equal; 1-273 differ`
std::string BisectionText(const Bisection& bisection);

}  // namespace pagefuse
