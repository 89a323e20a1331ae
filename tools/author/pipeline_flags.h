// SPDX-License-Identifier: Apache-2.0
// The options that say which passes run over a model and how, which `opt` and the tools for pass
// authors share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/cache_flags.h"
#include "tools/cli/command_line.h"
#include "tools/cli/weight_flags.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse::tools {

struct PipelineFlags {
  CacheFlags cache;
  WeightFlags weights;
  std::optional<int64_t> block_size, rewrite_limit;
  std::vector<std::string> passes, disabled, disabled_rules, options, rules;
  bool fuse_only = false;
};

void AddPipelineFlags(Command command, PipelineFlags& flags);

absl::StatusOr<PipelineOptions> ReadPipelineFlags(const PipelineFlags& flags);

// OK if the model has the paged cache that the flags ask for, or they ask for none.
absl::Status CheckPaged(const Model& model, const PipelineFlags& flags);

inline constexpr int kMaxSamples = 100;

// Where a model that is to be compared gets its numbers.
struct SampleFlags {
  std::vector<std::string> data;  // folders of a test case
  int samples = 1;
};

void AddSampleFlags(Command command, SampleFlags& flags);

// Writes what the flags say into the options, and random numbers for weights that are not there.
absl::Status ReadSampleFlags(const SampleFlags& flags, Model& model, PipelineOptions& options);

}  // namespace pagefuse::tools
