// SPDX-License-Identifier: Apache-2.0
// Compares the logits of a rewritten decoder with those of its graph as it was exported, before it
// serves a token, and puts rewrites back where they differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/runnable.h"

namespace pagefuse {

// When a rewritten graph is compared with the graph as it was exported: the first
// time that it is loaded, with what was found kept in a file (verdict_store.h), always, or never.
enum class CheckPaging { kOnce, kAlways, kNever };
// InvalidArgument listing the names once, always and never.
absl::StatusOr<CheckPaging> ParseCheckPaging(std::string_view name);

// How a decoder's graph may be rewritten.
struct RewriteVerdict {
  enum class Outcome {
    kEqual,       // as the options say
    kMended,      // without what is left out below
    kAsExported,  // not at all
    kUnchecked,   // as the options say: nothing could be compared
  };

  Outcome outcome = Outcome::kUnchecked;
  // Rules and passes that do nothing, besides those of the options.
  std::vector<std::string> left_out, disabled;
  // Of kMended and kAsExported: node and rule, and how the logits differed. Of kUnchecked: why.
  std::string reason;
  int64_t probes = 0;   // that were compared
  int64_t skipped = 0;  // for which there was no time
  int64_t starved = 0;  // for which there was no memory; such a verdict is not kept

  bool differs() const { return outcome == Outcome::kMended || outcome == Outcome::kAsExported; }
  // "the logits of 31 probes are those of the graph as it was exported"
  std::string Text() const;
};

struct RewriteCheckOptions {
  // For all that is made ready and run, from the call on; the first probe of each comparison runs
  // whatever it takes, and finding a rewrite that is wrong is not counted.
  double seconds = 2;
  // Of logits, relative to the largest of a row; that of their type if left out.
  std::optional<double> tolerance = {};
};

// Whether anything of the model can be compared: a graph that came with a paged cache has no other
// form here.
bool HasExportedForm(const Model& model);

// The options under which the verdict lets the graph run.
EngineOptions UnderVerdict(const EngineOptions& options, const RewriteVerdict& verdict);

// Runs probes (probes.h) on `exported` as it is, a text alone, over its own past or from the first
// token for each new one, and on what the options make of it; `made` is that, if
// it is made already. Rows of
// logits are equal up to what their types allow, NaN being equal to NaN, and prefer the same token
// where the two best lie apart. Weights and caches are compared as the graph has them, and then, as
// they are stored, within four times the documented error of their formats. Where rows differ, the
// first rewrite that changes them is found by halving, its rule is left out, and all is compared
// again. An error only of what cannot run at all.
absl::StatusOr<RewriteVerdict> CheckRewrites(const Model& exported, const EngineOptions& options,
                                             Runnable* made = nullptr,
                                             const RewriteCheckOptions& check = {});

// Compares alone, without formats that round, and gives the number of probes. InvalidArgument naming
// a probe and the logits that differ; Unimplemented with the reason where nothing can be compared.
absl::StatusOr<int64_t> CompareRewrites(const Model& exported, const EngineOptions& options,
                                        const RewriteCheckOptions& check = {});

}  // namespace pagefuse
