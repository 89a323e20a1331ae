// Decomposition text of the cache inserts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

namespace pagefuse::pagefuse_ops {

// What decides the nodes of one side of an insert.
struct InsertBody {
  CacheFormat format;
  DataType source_type = DataType::kFloat;  // as given: uint8 is the twin of float8e4m3fn
  DataType cache_type = DataType::kFloat;   // as given
  bool scale_per_head = false;              // of a format with one scale a tensor: it is [Hk]
  int64_t head_size = 0;                    // needed where rows are transformed
};

// Nodes that compute `keep` (indices of tokens that are written) and `slots` [N, 1] from
// slot_mapping.
std::string SlotNodes();

// Nodes that put the kept rows of `source` into `cache` and define `cache`_out (and
// `scale_cache`_out). `prefix` makes inner names unique.
struct InsertNames {
  std::string prefix;       // "k"
  std::string source;       // "key"
  std::string cache;        // "key_cache"
  std::string scale;        // "k_scale"
  std::string scale_cache;  // "k_scale_cache"
};
std::string InsertNodes(const InsertBody& body, const InsertNames& names);

// The bodies of the two sides of a node, from its attributes and the types and shapes of its
// values.
struct InsertBodies {
  InsertBody key;
  InsertBody value;
};
absl::StatusOr<InsertBodies> ReadInsertBodies(const Node& node, const CacheInsertPorts& ports);

// "a, b, c" of the names that are not empty.
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace pagefuse::pagefuse_ops
