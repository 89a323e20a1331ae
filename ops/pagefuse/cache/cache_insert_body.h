// SPDX-License-Identifier: Apache-2.0
// Decomposition text of the cache inserts.
#pragma once

#include <string>
#include <string_view>

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

// What follows the other inputs in the head of an insert's function: the inputs that its format
// has, and the outputs, of which `first_outputs` come before the caches: ", k_scale, ..) => (..) {".
std::string InsertSignature(const CacheFormat& format, bool tensor_scale,
                            std::string_view first_outputs = "");
// Nodes that put the kept rows of `source` into key_cache or value_cache and define key_cache_out
// (and k_scale_cache_out), or those of values. `prefix` makes inner names unique.
std::string KeyInsertNodes(const InsertBody& body, std::string prefix, std::string source);
std::string ValueInsertNodes(const InsertBody& body, std::string prefix, std::string source);

// The bodies of the two sides of a node, from its attributes and the types and shapes of its
// values.
struct InsertBodies {
  InsertBody key;
  InsertBody value;
};
absl::StatusOr<InsertBodies> ReadInsertBodies(const Node& node, const CacheInsertPorts& ports);

}  // namespace pagefuse::pagefuse_ops
