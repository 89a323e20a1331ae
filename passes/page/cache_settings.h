// What the paged cache of a graph is, read off the graph and not off what was asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "pagefuse/ir/model.h"

namespace pagefuse {

struct CacheSettings {
  std::string format;                      // a name of cache_choice.h; of several, all with commas
  std::optional<int64_t> block_size = {};  // as the metadata says; nullopt where it does not
};

// nullopt for a graph without a PagedAttention.
std::optional<CacheSettings> CacheSettingsOf(const Model& model);

// InvalidArgument if the options kv_cache or block_size ask for another cache than the graph has,
// which says what that is. OK for a graph without one.
absl::Status CheckCacheOptions(const Model& model,
                               const std::map<std::string, std::string>& options);

}  // namespace pagefuse
