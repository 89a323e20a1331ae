// SPDX-License-Identifier: Apache-2.0
// A layer's cache that is to be stored in another format, and what every such rewrite needs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/cache/cache_plan.h"

namespace pagefuse {

struct CacheUse {
  Node* insert = nullptr;  // PagedCacheInsert without a format, or MlaCacheInsert
  CacheLayer layer = {};
  CacheChoice choice = {};
  // Of index keys: whether queries become codes too, where an op rotates them, and whether both are
  // rotated by a Hadamard matrix first.
  bool codes_queries = false;
  bool hadamard = false;
};

// InvalidArgument naming the pass, the node, the layer and the format. `what` says what was expected
// and what was there.
absl::Status CacheUseError(const CacheUse& use, const Node& node, std::string_view what);

// The nodes that read the updated caches.
std::vector<Node*> ReadersOf(const Node& insert);

// FailedPrecondition if a cache is no input of the graph, or if something else than PagedAttention
// reads it.
absl::Status CheckCache(const Node& insert);

// Where a node takes and gives the cache that it writes rows to.
struct RowCachePorts {
  int in = 0;
  int out = 0;
};
// A port of an op that reads such a cache.
struct CacheReader {
  std::string_view op;
  int port = 0;
};

// FailedPrecondition if the cache is no graph input [num_blocks, block_size, row], as another type
// only the caller of the graph can give it, or if something else reads it than `reader`.
absl::Status CheckRowCache(const Node& insert, const RowCachePorts& ports,
                           const CacheReader& reader);

// The cache, and what comes back of it, has elements of another type, and behind its blocks these
// dims, where they are given.
void RetypeRowCache(Node& insert, const RowCachePorts& ports, DataType type,
                    const std::vector<int64_t>& block_dims = {});

// By the name of a cache: what takes its place in its group.
using CacheNames = std::map<std::string, std::vector<std::string>>;

// Writes the names into the metadata of cache groups, where there is such.
absl::Status RenameInGroups(Model& model, const CacheNames& names);

}  // namespace pagefuse
