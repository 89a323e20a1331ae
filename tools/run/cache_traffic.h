// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a paged cache that nodes read and write in a step, by the formats of its
// caches.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse::tools {

class CacheTraffic {
 public:
  struct Bytes {
    int64_t read = 0, written = 0;
  };

  // Of a sequence that has `before` tokens and gets `tokens` more.
  CacheTraffic(const CacheLayout& layout, int64_t before, int64_t tokens);

  // A cache that the node updates counts as written, with the rows of the new tokens; any other that
  // it reads, with the rows that the group keeps, each once.
  Bytes OfNode(const Node& node) const;

 private:
  struct Rows {
    double read = 0, written = 0;
    int64_t block_size = 1;
  };
  std::map<std::string, Rows> caches_;  // by graph input
};

}  // namespace pagefuse::tools
