// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/verdict_store.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#define XXH_INLINE_ALL
#include "xxhash.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/runtime/build_id.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

// Of a longer initialiser so many pages count, evenly spread.
constexpr size_t kPages = 64, kPageBytes = 4096;

class Hash {
 public:
  Hash() { XXH3_128bits_reset(&state_); }

  void Add(std::string_view text) {
    const size_t size = text.size();
    XXH3_128bits_update(&state_, &size, sizeof size);
    XXH3_128bits_update(&state_, text.data(), size);
  }
  void Add(const std::vector<std::string>& texts) {
    Add(StrCat(texts.size()));
    for (const std::string& text : texts) Add(text);
  }
  void Add(const std::map<std::string, std::string>& options) {
    for (const auto& [name, value] : options) {
      Add(name);
      Add(value);
    }
  }
  void AddBytes(const Tensor& tensor) {
    const std::string_view bytes(static_cast<const char*>(tensor.data()),
                                 static_cast<size_t>(tensor.byte_size()));
    if (bytes.size() <= kPages * kPageBytes) return Add(bytes);
    for (size_t page = 0; page < kPages; ++page) {
      Add(bytes.substr((bytes.size() - kPageBytes) / (kPages - 1) * page, kPageBytes));
    }
  }

  std::string Digits() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_;
};

void AddModel(const Model& exported, Hash& hash) {
  // Structure and small constants; a copy, for graphs are walked to be changed.
  Model model = exported.Clone();
  hash.Add(PrintModel(model, {.max_elements = 0, .value_infos = false}));
  for (const GraphScope& scope : AllGraphs(model)) {
    for (const Value* value : scope.graph->initializers()) {
      const Tensor& tensor = *value->initializer();
      if (tensor.dtype() != DataType::kString && tensor.data() != nullptr) hash.AddBytes(tensor);
    }
    for (const auto& node : scope.graph->nodes()) {
      for (const auto& [name, attribute] : node->attributes()) {
        const auto* tensor = std::get_if<Tensor>(&attribute.value);
        if (tensor != nullptr && tensor->data() != nullptr) hash.AddBytes(*tensor);
      }
    }
  }
}

void AddOptions(const EngineOptions& options, Hash& hash) {
  hash.Add(options.session.device == nullptr ? "" : options.session.device->name());
  const PipelineOptions pipeline = PagedPipeline(PagedOptions(options));
  hash.Add(pipeline.passes);
  hash.Add(pipeline.disabled);
  hash.Add(pipeline.left_out);
  hash.Add(pipeline.options);
  hash.Add(options.session.force_kernel);
  hash.Add(StrCat(pipeline.page, options.session.optimise, options.session.load_passes));
  for (const RuleFile& rules : pipeline.rules) hash.Add(rules.text);
  for (const std::string& plugin : options.session.plugins) {
    const auto bytes = ReadFile(plugin);
    hash.Add(bytes.ok() ? *bytes : plugin);
  }
}

constexpr std::pair<RewriteVerdict::Outcome, const char*> kOutcomes[] = {
    {RewriteVerdict::Outcome::kEqual, "equal"},
    {RewriteVerdict::Outcome::kMended, "mended"},
    {RewriteVerdict::Outcome::kAsExported, "as exported"},
    {RewriteVerdict::Outcome::kUnchecked, "unchecked"}};

std::string TextOf(const RewriteVerdict& verdict) {
  nlohmann::ordered_json json;
  for (const auto& [outcome, name] : kOutcomes) {
    if (outcome == verdict.outcome) json["outcome"] = name;
  }
  json["left_out"] = verdict.left_out;
  json["disabled"] = verdict.disabled;
  json["reason"] = verdict.reason;
  json["probes"] = verdict.probes;
  json["skipped"] = verdict.skipped;
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<RewriteVerdict> VerdictOf(const nlohmann::json& json) {
  RewriteVerdict verdict;
  bool known = false;
  for (const auto& [outcome, name] : kOutcomes) {
    if (json.value("outcome", "") != name) continue;
    verdict.outcome = outcome;
    known = true;
  }
  if (!known) return std::nullopt;
  verdict.left_out = json.at("left_out").get<std::vector<std::string>>();
  verdict.disabled = json.at("disabled").get<std::vector<std::string>>();
  verdict.reason = json.at("reason").get<std::string>();
  verdict.probes = json.at("probes").get<int64_t>();
  verdict.skipped = json.at("skipped").get<int64_t>();
  return verdict;
}

}  // namespace

std::string VerdictFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return cache + "/pagefuse/verdicts";
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/pagefuse/verdicts";
}

std::string RunKey(const Model& exported, const EngineOptions& options) {
  Hash hash;
  hash.Add(BuildId());
  AddModel(exported, hash);
  AddOptions(options, hash);
  return hash.Digits();
}

VerdictStore::VerdictStore(const std::string& folder, const Model& exported,
                           const EngineOptions& options) {
  const std::string place = folder.empty() ? VerdictFolder() : folder;
  if (place.empty() || BuildId().empty()) return;
  path_ = StrCat(place, "/", RunKey(exported, options), ".json");
}

std::optional<RewriteVerdict> VerdictStore::Find() const {
  if (path_.empty()) return std::nullopt;
  const auto text = ReadFile(path_);
  if (!text.ok()) return std::nullopt;
  try {
    return VerdictOf(nlohmann::json::parse(*text));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // it is compared again, and written anew
  }
}

void VerdictStore::Keep(const RewriteVerdict& verdict) const {
  if (path_.empty() || verdict.outcome == RewriteVerdict::Outcome::kUnchecked) return;
  if (verdict.starved > 0) return;
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  WriteWholeFile(path_, TextOf(verdict)).IgnoreError();
}

}  // namespace pagefuse
