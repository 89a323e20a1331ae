#include "pagefuse/passes/quantise/cache_site.h"

#include <algorithm>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"

namespace pagefuse {
namespace {

constexpr int kCaches[] = {kPagedCacheInsertIn["key_cache"], kPagedCacheInsertIn["value_cache"]};
constexpr int kCacheOuts[] = {kPagedCacheInsertOut["key_cache_out"],
                              kPagedCacheInsertOut["value_cache_out"]};

// Another type, and scales beside it, only the caller of the graph can give a cache.
absl::Status CheckInputs(const Node& insert) {
  for (int i : kCaches) {
    const Value* cache = insert.input(i);
    const bool is_cache = cache != nullptr && cache->is_input() && cache->shape().has_value() &&
                          cache->shape()->rank() == 4;
    if (is_cache) continue;
    return absl::FailedPreconditionError(
        StrCat("quantise-kv-cache: ", insert.Description(), ": input ", i, ": expected a graph ",
               "input of shape [num_blocks, block_size, Hk, D], got ",
               cache == nullptr ? std::string("none") : StrCat("\"", cache->name(), "\"")));
  }
  return absl::OkStatus();
}

// Only PagedAttention knows how to read a quantised cache.
absl::Status CheckReaders(const Node& insert) {
  for (int i : kCacheOuts) {
    for (const Use& use : insert.output(i)->uses()) {
      if (use.node->Is("PagedAttention", "pagefuse")) continue;
      return absl::FailedPreconditionError(StrCat("quantise-kv-cache: ", use.node->Description(),
                                                  " reads \"", insert.output(i)->name(),
                                                  "\" and takes no quantised cache"));
    }
  }
  return absl::OkStatus();
}

// The list of a group's caches, each as what takes its place.
nlohmann::json Renamed(const nlohmann::json& caches, const CacheNames& names) {
  nlohmann::json renamed = nlohmann::json::array();
  for (const nlohmann::json& cache : caches) {
    const auto it = cache.is_string() ? names.find(cache.get<std::string>()) : names.end();
    if (it == names.end()) {
      renamed.push_back(cache);
    } else {
      for (const std::string& name : it->second) renamed.push_back(name);
    }
  }
  return renamed;
}

}  // namespace

absl::Status SiteError(const CacheSite& site, const Node& node, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("quantise-kv-cache: ", node.Description(), ": layer ",
                                           site.layer.index, ": ", site.choice.name, ": ", what));
}

std::vector<Node*> ReadersOf(const Node& insert) {
  std::vector<Node*> readers;
  for (int i : kCacheOuts) {
    for (const Use& use : insert.output(i)->uses()) {
      if (std::find(readers.begin(), readers.end(), use.node) == readers.end()) {
        readers.push_back(use.node);
      }
    }
  }
  return readers;
}

absl::Status CheckCache(const Node& insert) {
  PF_RETURN_IF_ERROR(CheckInputs(insert));
  return CheckReaders(insert);
}

absl::Status RenameInGroups(Model& model, const CacheNames& names) {
  const auto text = FindMetadata(model.metadata, "pagefuse.cache_groups");
  if (!text || names.empty()) return absl::OkStatus();
  nlohmann::json groups = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!groups.is_array()) {
    return absl::InvalidArgumentError("metadata \"pagefuse.cache_groups\" is no list");
  }
  for (auto& group : groups) {
    if (!group.is_object() || !group["caches"].is_array()) {
      return absl::InvalidArgumentError(
          "metadata \"pagefuse.cache_groups\": a group has no list \"caches\"");
    }
    group["caches"] = Renamed(group["caches"], names);
  }
  SetMetadata(model.metadata, "pagefuse.cache_groups", groups.dump());
  return absl::OkStatus();
}

}  // namespace pagefuse
