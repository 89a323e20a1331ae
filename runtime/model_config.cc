// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/model_config.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/config_json.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kGenAi = "genai_config.json";

bool HasConfig(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kConfig, ignored) ||
         fs::is_regular_file(folder / kGeneration, ignored) ||
         fs::is_regular_file(folder / kGenAi, ignored);
}

std::string Ids(std::vector<int64_t> ids) { return StrCat("[", absl::StrJoin(ids, ", "), "]"); }

// Which file said what, to tell where another says something else.
struct Said {
  std::string file;
  std::vector<int64_t> ids;
};

// The first file that names tokens decides.
class TokenReader {
 public:
  explicit TokenReader(ModelConfig& config) : config_(config) {}

  absl::Status Take(const ConfigJson& json) {
    PF_ASSIGN_OR_RETURN(auto begin, json.Tokens("bos_token_id"));
    PF_ASSIGN_OR_RETURN(auto end, json.Tokens("eos_token_id"));
    Compare("bos_token_id", json, begin, begin_);
    Compare("eos_token_id", json, end, end_);
    if (!config_.begin_token && !begin.empty()) config_.begin_token = begin[0];
    if (config_.end_tokens.empty()) config_.end_tokens = end;
    return absl::OkStatus();
  }

 private:
  // More end tokens in the file that counts are no contradiction: configurations of models often
  // name one of several.
  void Compare(std::string_view name, const ConfigJson& json, std::vector<int64_t> ids,
               Said& first) {
    const std::string file = json.path().filename().string();
    if (ids.empty()) return;
    if (first.ids.empty()) {
      first = {file, std::move(ids)};
      return;
    }
    const bool contained =
        std::ranges::all_of(ids, [&](int64_t id) { return std::ranges::count(first.ids, id) > 0; });
    if (contained) return;
    config_.contradictions.push_back(StrCat(name, " is ", Ids(first.ids), " in ", first.file,
                                            ", and ", Ids(ids), " in ", file,
                                            ": the first counts"));
  }

  ModelConfig& config_;
  Said begin_, end_;
};

absl::Status TakeLimit(const ConfigJson& json, const char* name, ModelConfig& config) {
  PF_ASSIGN_OR_RETURN(const std::optional<int64_t> limit, json.Positive(name));
  if (!limit) return absl::OkStatus();
  const std::string place = StrCat(json.path().string(), ", ", name);
  if (config.max_positions && *config.max_positions != *limit) {
    config.contradictions.push_back(StrCat("positions are ", *config.max_positions, " in ",
                                           config.max_positions_file, ", and ", *limit, " in ",
                                           place, ": the smaller counts"));
  }
  if (config.max_positions && *config.max_positions <= *limit) return absl::OkStatus();
  config.max_positions = limit;
  config.max_positions_file = place;
  return absl::OkStatus();
}

absl::Status TakeNumber(const ConfigJson& json, const char* name, double& value) {
  PF_ASSIGN_OR_RETURN(const std::optional<double> number, json.Number(name));
  if (number) value = *number;
  return absl::OkStatus();
}

// Without "do_sample" a model is meant to be run greedily.
absl::Status TakeSampling(const ConfigJson& json, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(const std::optional<bool> samples, json.Flag("do_sample"));
  PF_RETURN_IF_ERROR(TakeNumber(json, "repetition_penalty", sampling.repetition_penalty));
  if (!samples) return absl::OkStatus();
  sampling.temperature = *samples ? 1 : 0;
  if (!*samples) return absl::OkStatus();
  double top_k = static_cast<double>(sampling.top_k);
  PF_RETURN_IF_ERROR(TakeNumber(json, "temperature", sampling.temperature));
  PF_RETURN_IF_ERROR(TakeNumber(json, "top_k", top_k));
  PF_RETURN_IF_ERROR(TakeNumber(json, "top_p", sampling.top_p));
  PF_RETURN_IF_ERROR(TakeNumber(json, "min_p", sampling.min_p));
  sampling.top_k = static_cast<int64_t>(std::clamp(top_k, -1.0, 1e9));
  const absl::Status status = CheckSampling(sampling);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      StrCat("\"", json.path().string(), "\": ", StdView(status.message())));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_path) {
  std::error_code ignored;
  fs::path folder = fs::path(model_path).parent_path();
  if (!HasConfig(folder))
    folder = fs::absolute(fs::path(model_path), ignored).parent_path().parent_path();
  ModelConfig config;
  PF_ASSIGN_OR_RETURN(const ConfigJson generation, ConfigJson::Read(folder / kGeneration));
  PF_ASSIGN_OR_RETURN(const ConfigJson genai, ConfigJson::Read(folder / kGenAi));
  PF_ASSIGN_OR_RETURN(const ConfigJson model, ConfigJson::Read(folder / kConfig));
  // Models of several parts keep what concerns text apart.
  const ConfigJson text = model.Member("text_config");
  TokenReader tokens(config);
  for (const ConfigJson& json : {generation, genai.Member("model"), model, text}) {
    PF_RETURN_IF_ERROR(tokens.Take(json));
  }
  PF_RETURN_IF_ERROR(TakeLimit(genai.Member("model"), "context_length", config));
  PF_RETURN_IF_ERROR(TakeLimit(model, "max_position_embeddings", config));
  PF_RETURN_IF_ERROR(TakeLimit(text, "max_position_embeddings", config));
  PF_RETURN_IF_ERROR(TakeSampling(generation, config.sampling));
  PF_RETURN_IF_ERROR(TakeSampling(genai.Member("search"), config.sampling));
  return config;
}

absl::StatusOr<int64_t> NewTokens(const ModelConfig& config, size_t prompt,
                                  std::optional<int64_t> wanted, int64_t usual) {
  const int64_t count = wanted.value_or(usual);
  if (!config.max_positions) return count;
  const int64_t room = *config.max_positions - static_cast<int64_t>(prompt);
  if (room >= count) return count;
  if (room > 0 && !wanted) return room;
  // Of new tokens that nobody asked for nothing is said.
  const std::string expected =
      wanted ? StrCat(" and ", count, " new ones: expected ", *config.max_positions, " at most")
             : StrCat(": expected less than ", *config.max_positions);
  return absl::InvalidArgumentError(StrCat("a prompt of ", prompt, " tokens", expected,
                                           ", the positions of the model (",
                                           config.max_positions_file, ")"));
}

}  // namespace pagefuse
