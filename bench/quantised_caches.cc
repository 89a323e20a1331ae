// SPDX-License-Identifier: Apache-2.0
// What the formats of a cache of latent rows do to the logits.
//
//   quantised_caches FOLDER
//
// The folder has model.onnx, greedy.json (prompt, greedy) and, of an independent implementation,
// quantised.json: by format, the relative L2 error of the logits of `prompt + greedy` without its
// last token in one pass, and that of the positions that choose the greedy tokens (decode_part).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

struct Mode {
  const char* kv_cache;
  const char* indexer_cache;
  const char* recorded;  // its name in quantised.json
};
// Latent rows have fp8_ds_mla, those of DeepSeek-V4's windows fp8_ue8m0: a folder has one of both.
constexpr Mode kModes[] = {{"bf16", "bf16", "bfloat16"},
                           {"fp8", "none", "fp8_ds_mla"},
                           {"fp8", "none", "fp8_ue8m0"},
                           {"none", "fp8", "indexer_fp8"},
                           {"none", "mxfp4", "indexer_mxfp4"},
                           {"fp8", "fp8", "fp8_ds_mla+indexer_fp8"},
                           {"fp8", "fp8", "fp8_ue8m0+indexer_fp8"},
                           {"fp8", "mxfp4", "fp8_ue8m0+indexer_mxfp4"}};

struct Folder {
  std::string path;
  std::vector<int64_t> tokens = {};  // prompt and greedy, but the last
  std::vector<int64_t> greedy = {};
  nlohmann::json recorded = {};
};

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(StrCat(path, ": expected an object"));
  return json;
}

absl::StatusOr<Folder> ReadFolder(const std::string& path) {
  Folder folder{.path = path};
  PF_ASSIGN_OR_RETURN(const nlohmann::json greedy, ReadJson(path + "/greedy.json"));
  PF_ASSIGN_OR_RETURN(folder.recorded, ReadJson(path + "/quantised.json"));
  folder.tokens = greedy.value("prompt", std::vector<int64_t>());
  folder.greedy = greedy.value("greedy", std::vector<int64_t>());
  if (folder.tokens.empty() || folder.greedy.empty()) {
    return absl::InvalidArgumentError(StrCat(path, "/greedy.json: no prompt or no greedy tokens"));
  }
  folder.tokens.insert(folder.tokens.end(), folder.greedy.begin(), folder.greedy.end() - 1);
  return folder;
}

// Logits of all positions, and what they cost.
struct Result {
  Tensor logits = {};  // [1, T, V]
  int64_t bytes = 0;
  bool has_index_keys = false;
};

absl::StatusOr<Result> Run(const Folder& folder, const Mode& mode) {
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(folder.path + "/model.onnx"));
  PagedModelOptions options;
  options.kv_cache = mode.kv_cache;
  options.session.pipeline.options["indexer_cache"] = mode.indexer_cache;
  options.all_logits = true;
  PF_ASSIGN_OR_RETURN(auto paged, PagedModel::Create(std::move(model), options));
  const auto length = static_cast<int64_t>(folder.tokens.size());
  PF_RETURN_IF_ERROR(paged->Reserve({length}, length));
  const SequenceId sequence = paged->cache().AddSequence();
  Result result{.bytes = paged->layout().bytes_per_token(),
                .has_index_keys = paged->cache_settings().index_format.has_value()};
  PF_ASSIGN_OR_RETURN(result.logits, paged->Step({{.sequence = sequence, .ids = folder.tokens}}));
  return result;
}

int64_t BestOf(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

struct Error {
  double relative_l2 = 0;
  double same_best = 0;  // share of positions
};

// Over the last `positions`.
Error ErrorOf(const Tensor& logits, const Tensor& exact, int64_t positions) {
  const int64_t words = exact.dims().back();
  const auto got = logits.values<float>().last(positions * words);
  const auto want = exact.values<float>().last(positions * words);
  double difference = 0, norm = 0;
  int64_t same = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * static_cast<double>(got[i] - want[i]);
    norm += want[i] * static_cast<double>(want[i]);
  }
  for (int64_t p = 0; p < positions; ++p) {
    same += BestOf(got.subspan(p * words, words)) == BestOf(want.subspan(p * words, words));
  }
  return {std::sqrt(difference / norm), static_cast<double>(same) / static_cast<double>(positions)};
}

void PrintRow(const Folder& folder, const Mode& mode, const Result& result, const Result& exact) {
  const auto all = static_cast<int64_t>(folder.tokens.size());
  const auto steps = static_cast<int64_t>(folder.greedy.size());
  const Error whole = ErrorOf(result.logits, exact.logits, all);
  const Error decode = ErrorOf(result.logits, exact.logits, steps);
  const nlohmann::json recorded = folder.recorded.value(mode.recorded, nlohmann::json::object());
  const double known = recorded.value("rel_l2", 0.0);
  const double known_decode =
      recorded.value("decode_part", nlohmann::json::object()).value("rel_l2", 0.0);
  const char* index = result.has_index_keys ? mode.indexer_cache : "-";
  std::printf("| %s | %s | %lld | %.4f | %.4f | %.2f | %.1f %% | %.4f | %.4f |\n", mode.kv_cache,
              index, static_cast<long long>(result.bytes), whole.relative_l2, known,
              known > 0 ? whole.relative_l2 / known : 0.0, 100 * whole.same_best,
              decode.relative_l2, known_decode);
}

// Whether the exact logits choose the greedy tokens.
absl::Status CheckGreedy(const Folder& folder, const Tensor& logits) {
  const int64_t words = logits.dims().back();
  const auto steps = static_cast<int64_t>(folder.greedy.size());
  const auto rows = logits.values<float>().last(steps * words);
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t best = BestOf(rows.subspan(i * words, words));
    if (best == folder.greedy[i]) continue;
    return absl::InternalError(StrCat("mode none: token ", i, ": expected ", folder.greedy[i],
                                      " of greedy.json, got ", best));
  }
  return absl::OkStatus();
}

absl::Status PrintTable(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const Folder folder, ReadFolder(path));
  PF_ASSIGN_OR_RETURN(const Result exact, Run(folder, {"none", "none", ""}));
  PF_RETURN_IF_ERROR(CheckGreedy(folder, exact.logits));
  std::printf("%s: none, %lld bytes a token, chooses the %zu tokens of greedy.json\n\n",
              path.c_str(), static_cast<long long>(exact.bytes), folder.greedy.size());
  std::printf(
      "| rows | index keys | bytes a token | relative L2 | recorded | ratio | same best token | "
      "decode part | recorded |\n|---|---|---|---|---|---|---|---|---|\n");
  for (Mode mode : kModes) {
    if (!folder.recorded.contains(mode.recorded)) continue;
    if (!exact.has_index_keys) {
      const std::string_view keys = mode.indexer_cache;
      if (keys == "fp8" || keys == "mxfp4") continue;
      mode.indexer_cache = "none";
    }
    PF_ASSIGN_OR_RETURN(const Result result, Run(folder, mode));
    PrintRow(folder, mode, result, exact);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  CLI::App app("errors of the logits by the format of a cache of latent rows");
  std::string folder;
  app.add_option("folder", folder, "model.onnx, greedy.json and quantised.json")->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::PrintTable(folder);
  if (!status.ok())
    std::fprintf(stderr, "quantised_caches: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
