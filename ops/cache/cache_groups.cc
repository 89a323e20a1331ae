// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cache/cache_groups.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr std::string_view kMetadataKey = "pagefuse.cache_groups";
constexpr std::string_view kKindNames[] = {"full", "window", "state", "compressed"};

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("metadata \"", kMetadataKey, "\": ", what));
}

// Whether the window alone tells the kind.
bool IsPlain(CacheKind kind) { return kind == CacheKind::kFull || kind == CacheKind::kWindow; }

absl::StatusOr<CacheKind> ReadKind(const nlohmann::json& item, int64_t window) {
  const auto found = item.find("kind");
  if (found == item.end()) return window > 0 ? CacheKind::kWindow : CacheKind::kFull;
  for (size_t i = 0; i < std::size(kKindNames) && found->is_string(); ++i) {
    if (found->get<std::string>() == kKindNames[i]) return static_cast<CacheKind>(i);
  }
  return Bad(StrCat("expected kind full, window, state or compressed, got ", found->dump()));
}

absl::StatusOr<int64_t> ReadSize(const nlohmann::json& item, const char* name) {
  const auto found = item.find(name);
  if (found == item.end() || !found->is_number_integer()) {
    return Bad(StrCat("a group needs an integer \"", name, "\""));
  }
  return found->get<int64_t>();
}

// A window belongs to the kinds that keep last rows, windows of a compressor to its two kinds.
absl::Status CheckSizes(const CacheGroup& group) {
  const bool keeps_last = group.kind == CacheKind::kWindow || group.kind == CacheKind::kState;
  const auto within = [](int64_t size, int64_t least, int64_t most) {
    return size >= least && size <= most;
  };
  constexpr int64_t kMaxRatio = int64_t{1} << 30;
  const bool fits = within(group.block_size, 1, kMaxBlockSize) &&
                    within(group.ratio, 1, IsPlain(group.kind) ? 1 : kMaxRatio) &&
                    within(group.sliding_window, keeps_last ? 1 : 0,
                           keeps_last ? std::numeric_limits<int64_t>::max() : 0);
  if (fits) return absl::OkStatus();
  return Bad(StrCat("group \"", group.name, "\": a size is out of range: kind ", NameOf(group.kind),
                    ", sliding_window ", group.sliding_window, ", ratio ", group.ratio,
                    ", block_size ", group.block_size));
}

absl::StatusOr<CacheGroup> ReadGroup(const nlohmann::json& item) {
  if (!item.is_object() || !item.contains("name") || !item["name"].is_string()) {
    return Bad("a group needs a string \"name\"");
  }
  CacheGroup group;
  group.name = item["name"];
  PF_ASSIGN_OR_RETURN(group.sliding_window, ReadSize(item, "sliding_window"));
  PF_ASSIGN_OR_RETURN(group.block_size, ReadSize(item, "block_size"));
  PF_ASSIGN_OR_RETURN(group.kind, ReadKind(item, group.sliding_window));
  if (item.contains("ratio")) {
    PF_ASSIGN_OR_RETURN(group.ratio, ReadSize(item, "ratio"));
  }
  PF_RETURN_IF_ERROR(CheckSizes(group));
  const auto caches = item.find("caches");
  if (caches == item.end() || !caches->is_array()) return Bad("a group needs a list \"caches\"");
  for (const nlohmann::json& cache : *caches) {
    if (!cache.is_string()) return Bad("a cache is named by a string");
    group.caches.push_back(cache);
  }
  return group;
}

}  // namespace

std::string_view NameOf(CacheKind kind) { return kKindNames[static_cast<int>(kind)]; }

std::string NameOf(const CacheGroupKey& key) {
  switch (key.kind) {
    case CacheKind::kFull:
      return "full";
    case CacheKind::kWindow:
      return StrCat("window_", key.window);
    case CacheKind::kState:
      return StrCat("state_", key.window, "_by_", key.ratio);
    case CacheKind::kCompressed:
      return StrCat("compressed_", key.ratio);
  }
  return "";
}

int64_t CacheGroup::FirstVisible(int64_t position) const {
  if (sliding_window == 0) return 0;
  return std::max<int64_t>(0, position - sliding_window + 1);
}

int64_t CacheGroup::FirstNeeded(int64_t length) const {
  if (kind != CacheKind::kState) return FirstVisible(length);
  return FirstVisible(length / ratio * ratio + ratio - 1);
}

CacheGroup MakeCacheGroup(const CacheGroupKey& key, int64_t block_size) {
  // The sizes of the published state caches: a block of 4 rows where windows have 4 tokens.
  constexpr int64_t kShortWindow = 4, kRowsOfShort = 4, kRowsOfOthers = 8;
  constexpr int64_t kTokensOfCompressed = 256;
  if (key.kind == CacheKind::kState) {
    block_size = key.ratio == kShortWindow ? kRowsOfShort : kRowsOfOthers;
  }
  if (key.kind == CacheKind::kCompressed) {
    block_size = std::clamp<int64_t>(kTokensOfCompressed / key.ratio, 1, block_size);
  }
  return {.name = NameOf(key),
          .kind = key.kind,
          .sliding_window = key.window,
          .ratio = key.ratio,
          .block_size = block_size,
          .caches = {}};
}

void WriteCacheGroups(Model& model, const std::vector<CacheGroup>& groups) {
  nlohmann::json list = nlohmann::json::array();
  for (const CacheGroup& group : groups) {
    nlohmann::json item = {{"name", group.name},
                           {"sliding_window", group.sliding_window},
                           {"block_size", group.block_size},
                           {"caches", group.caches}};
    if (!IsPlain(group.kind)) item["kind"] = std::string(NameOf(group.kind));
    if (group.ratio != 1) item["ratio"] = group.ratio;
    list.push_back(std::move(item));
  }
  SetMetadata(model.metadata, kMetadataKey, list.dump());
}

absl::StatusOr<std::vector<CacheGroup>> ReadCacheGroups(const Model& model) {
  const auto text = FindMetadata(model.metadata, kMetadataKey);
  if (!text) {
    return absl::NotFoundError(StrCat("the model has no metadata \"", kMetadataKey, "\""));
  }
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return Bad("expected a JSON list");
  std::vector<CacheGroup> groups;
  for (const nlohmann::json& item : json) {
    PF_ASSIGN_OR_RETURN(groups.emplace_back(), ReadGroup(item));
  }
  return groups;
}

}  // namespace pagefuse
