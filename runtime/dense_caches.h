// SPDX-License-Identifier: Apache-2.0
// Finds the caches of a paged graph that lie beside the pages, each in a tensor of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/cache_layout.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {

// A cache that some op reads as a dense tensor, or of which it updates a copy.
struct DenseCache {
  std::string cache;   // the graph's input
  std::string reader;  // the first such node: Node::Description

  // `cache "kv_cache.0.key" lies beside the pages: node "x" (Op) reads it as a dense tensor`
  std::string Text() const;
};

// Those of the layout of the session's model, group by group.
std::vector<DenseCache> DenseCaches(const CacheLayout& layout, const Session& session);
// The same of a rewritten model that nothing runs, and whose constants need no data; infers its types and
// shapes. Unimplemented naming the first node that nothing can compute.
absl::StatusOr<std::vector<DenseCache>> DenseCaches(const CacheLayout& layout, Model& model);

}  // namespace pagefuse
