// SPDX-License-Identifier: Apache-2.0
#include "tools/author/pipeline_flags.h"

#include <utility>

#include "tools/check/testcase.h"
#include "tools/cli/command.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/passes/verify/missing_weights.h"

namespace pagefuse::tools {
namespace {

// A file holds the weights that its graph has.
absl::Status UseWeightFlags(const WeightFlags& flags, PipelineOptions& options) {
  PF_ASSIGN_OR_RETURN(const WeightFormat weights, ReadWeightFlags(flags, options.options));
  if (!weights.changes_nothing()) options.options["weights"] = weights.name;
  return absl::OkStatus();
}

}  // namespace

void AddPipelineFlags(Command command, PipelineFlags& flags) {
  command.Group("Passes");
  command.AddList("--passes", flags.passes, "run these passes in this order");
  command.AddList("--disable-pass", flags.disabled, "passes to leave out");
  command.AddList("--disable-rule", flags.disabled_rules, "rules to leave out");
  const Option no_page =
      command.AddFlag("--no-page", flags.fuse_only, "canonicalize, recognise and fuse only");
  for (Option& option : AddCacheFlags(command, flags.cache)) option.Excludes(no_page);
  AddWeightFlags(command, flags.weights);
  command
      .AddNumber("--block-size", flags.block_size, {1, kMaxBlockSize},
                 "tokens a block of the paged cache [16]")
      .Excludes(no_page);
  AddPassOptions(command, flags.options);
  AddRuleFiles(command, flags.rules);
  command.AddNumber("--rewrite-limit", flags.rewrite_limit, {.least = 0},
                    "stop after so many rewrites");
}

absl::StatusOr<PipelineOptions> ReadPipelineFlags(const PipelineFlags& flags) {
  PipelineOptions options;
  options.passes = flags.passes;
  options.disabled = flags.disabled;
  options.left_out = flags.disabled_rules;
  options.page = !flags.fuse_only;
  options.rewrite_limit = flags.rewrite_limit;
  PF_RETURN_IF_ERROR(ReadCacheFlags(flags.cache, options.options));
  PF_RETURN_IF_ERROR(UseWeightFlags(flags.weights, options));
  if (flags.block_size) options.options["block_size"] = StrCat(*flags.block_size);
  PF_RETURN_IF_ERROR(ReadPassOptions(flags.options, options));
  PF_RETURN_IF_ERROR(ReadRuleFiles(flags.rules, options));
  return options;
}

// Whoever asks for a cache wants one.
absl::Status CheckPaged(const Model& model, const PipelineFlags& flags) {
  const bool wants = flags.cache.format || flags.cache.index_format || flags.block_size;
  if (!wants || CacheSettingsOf(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(flags.cache.format         ? "--kv-cache"
             : flags.cache.index_format ? "--indexer-cache"
                                        : "--block-size",
             ": the graph has no paged cache that it could be said of"));
}

void AddSampleFlags(Command command, SampleFlags& flags) {
  command.AddTexts("--data", flags.data,
                   "test-case folder whose inputs to compare on, in place of made-up ones");
  command.AddNumber("--samples", flags.samples, {1, kMaxSamples}, "made-up inputs to compare on")
      .ShowsDefault();
}

absl::Status ReadSampleFlags(const SampleFlags& flags, Model& model, PipelineOptions& options) {
  PF_RETURN_IF_ERROR(FillMissingWeights(model));
  options.samples = flags.samples;
  for (const std::string& folder : flags.data) {
    PF_ASSIGN_OR_RETURN(TestCase test_case, LoadTestCase(folder));
    for (TestDataSet& data : test_case.data_sets) options.feeds.push_back(std::move(data.feeds));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::tools
