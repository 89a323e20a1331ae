// SPDX-License-Identifier: Apache-2.0
// The pipeline: the list of all passes in order, and the runner that times, verifies, counts and
// dumps around each of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

// The passes for a whole decoder, in order: it gets a paged cache. A name may occur more than once (tidying between stages).
std::vector<std::unique_ptr<Pass>> DecoderPipeline();
// The passes for a part of a graph with caches in standard ops: it keeps its inputs and outputs.
std::vector<std::unique_ptr<Pass>> FragmentPipeline();
// All of them, and behind them those of stage export, which run when a file is written for other
// runtimes (lower/lower.h).
std::vector<std::unique_ptr<Pass>> AllPasses();
// Names of the passes of stage export, in order.
std::vector<std::string> ExportStage();
// Names of the passes for a graph that is run as it came. They only take away copies that no memory
// has room for: a matrix of an expert for each token, slices of constants, a transposed embedding;
// and let elementwise ops run in one pass over memory, each by its own kernel.
std::vector<std::string> LoadPasses();
// The pass of that name; NotFound listing the nearest names.
absl::StatusOr<std::unique_ptr<Pass>> FindPass(std::string_view name);

struct PipelineOptions {
  std::vector<std::string> passes = {};             // run these instead of the default pipeline
  std::vector<std::string> disabled = {};           // names to skip
  std::map<std::string, std::string> options = {};  // PassContext::options
  bool page = true;                                 // stages page and quantise
  std::vector<std::string> print_after = {};  // names, or "*" for every pass that changed something
  std::ostream* print_to = nullptr;
  int64_t print_max_elements = -1;        // PrintOptions::max_elements of what is printed
  std::vector<std::string> explain = {};  // rule or pass names, "*" for all; a pass has its rules'
  bool verify = false;  // compare numbers before and after each rewrite on made-up inputs
  std::string reproducer_dir =
      {};  // on failure: the graph before the failing pass, and the command
  std::optional<int64_t> rewrite_limit = {};  // stop after so many rewrites
  bool log_rewrites = false;                  // PipelineReport::log
  bool keep_going = false;                    // with `verify`: a difference is noted and no error
  int samples = 1;                            // with `verify`: made-up inputs to compare on
  std::vector<std::map<std::string, Tensor>> feeds = {};  // with `verify`: inputs in their place
  bool side_by_side = false;               // with `explain`: misses show pattern and graph
  std::vector<std::string> left_out = {};  // rules that do nothing
  std::vector<RuleFile> rules = {};        // further rules (rewrite/text/rule_text.h)
};

struct PassRun {
  std::string name;
  // With `verify`: kVerifiedEqual, or why a rewrite could not be compared, or how it differs.
  std::string verified = {};
  bool changed = false;
  double milliseconds = 0;
  int64_t nodes_after = 0;
};

// Infers shapes and runs one pass.
absl::StatusOr<bool> RunPass(const Pass& pass, Model& model, PassContext& context);

struct PipelineReport {
  PipelineReport();
  PipelineReport(const PipelineReport&);
  PipelineReport(PipelineReport&&) noexcept;
  PipelineReport& operator=(const PipelineReport&);
  PipelineReport& operator=(PipelineReport&&) noexcept;
  ~PipelineReport();

  std::vector<PassRun> runs;
  std::map<std::string, int> counts;  // rewrites by rule
  std::string why_not_paged;  // node and condition; empty if nobody wanted pages or all is paged
  std::vector<UnfusedPlace> unfused;  // by the pass unfused-places
  // What `explain` names: misses, nearest first, places that failed alike as one
  // (explain/near_misses.h), and lines on what there is none of.
  std::vector<MissedMatch> misses;
  std::vector<std::string> unmissed;
  int64_t rewrites = 0;      // that were done
  bool stopped = false;      // at PipelineOptions::rewrite_limit
  std::vector<Rewrite> log;  // with `log_rewrites` or `verify`: all of them, in order
};

// Runs the passes on the model in place. On failure the Status names the pass; the model is then in
// an unspecified but valid state. NotFound or InvalidArgument, with nothing run, for a name in the
// options that no pass, rule or option has; InvalidArgument if the options ask for another cache
// than a graph has that was paged before.
absl::StatusOr<PipelineReport> RunPipeline(Model& model, const PipelineOptions& options = {});

}  // namespace pagefuse
