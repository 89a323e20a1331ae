// A layer's cache that is to be stored in another format, and what every such rewrite needs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/passes/page/cache_plan.h"

namespace pagefuse {

struct CacheSite {
  Node* insert = nullptr;  // PagedCacheInsert without a format, or MlaCacheInsert
  CacheLayer layer = {};
  CacheChoice choice = {};
};

// InvalidArgument naming the pass, the node, the layer and the format. `what` says what was expected
// and what was there.
absl::Status SiteError(const CacheSite& site, const Node& node, std::string_view what);

// The nodes that read the updated caches.
std::vector<Node*> ReadersOf(const Node& insert);

// FailedPrecondition if a cache is no input of the graph, or if something else than PagedAttention
// reads it.
absl::Status CheckCache(const Node& insert);

// By the name of a cache: what takes its place in its group.
using CacheNames = std::map<std::string, std::vector<std::string>>;

// Writes the names into the metadata of cache groups, where there is such.
absl::Status RenameInGroups(Model& model, const CacheNames& names);

}  // namespace pagefuse
