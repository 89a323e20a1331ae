// SPDX-License-Identifier: Apache-2.0
// Reads the settings of the paged cache off a graph, independently of the options that were asked
// for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

struct CacheSettings {
  // A name of cache_choice.h, or full=NAME,window=NAME where layers with a window have another; of
  // several in one kind of layers, all with commas.
  std::string format;
  std::optional<int64_t> block_size = {};  // as the metadata says; nullopt where it does not
  // Of the index keys by which rows are chosen; nullopt where all rows are attended to.
  std::optional<std::string> index_format = {};
  // Layers that keep the type of their keys though others of their kind do not.
  std::vector<int64_t> skipped_layers = {};
};

// nullopt for a graph that attends over no paged cache.
std::optional<CacheSettings> CacheSettingsOf(const Model& model);

// InvalidArgument if the options kv_cache, kv_cache_skip_layers, indexer_cache or block_size ask for another cache
// than the graph has, which says what that is. OK for a graph without one.
absl::Status CheckCacheOptions(const Model& model,
                               const std::map<std::string, std::string>& options);

}  // namespace pagefuse
