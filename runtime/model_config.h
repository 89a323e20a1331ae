// SPDX-License-Identifier: Apache-2.0
// What the files beside a graph say of the model: its special tokens, its limits and its sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/sampler.h"

namespace pagefuse {

struct ModelConfig {
  std::optional<int64_t> begin_token;  // texts begin with it
  std::vector<int64_t> end_tokens;     // an answer ends with one of them
  std::optional<int64_t> max_positions;
  std::string max_positions_file;  // where that stands
  SamplingOptions sampling;  // how the model is meant to be sampled; greedy where no file says
  std::vector<std::string> contradictions;  // what files say differently, and which of it counts
};

// Reads config.json, generation_config.json and genai_config.json in the folder of the graph, or,
// where there is none of them, in the one around it (exports put the graph into "onnx/"). What
// generation_config.json says of tokens goes before genai_config.json, that before config.json; the
// smallest limit counts. How to sample stands in generation_config.json, and "search" of
// genai_config.json overrides it. No file: an empty ModelConfig. InvalidArgument naming file,
// field, expected and found.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_path);

// New tokens behind a prompt of so many: those wanted, else `usual`, or as many as the model has positions
// for. InvalidArgument where it has none, or not all of those wanted.
absl::StatusOr<int64_t> NewTokens(const ModelConfig& config, size_t prompt,
                                  std::optional<int64_t> wanted, int64_t usual);

}  // namespace pagefuse
