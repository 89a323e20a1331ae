// SPDX-License-Identifier: Apache-2.0
// Converts between the layouts in which graphs hold caches and those that ops take. It is private
// to the fusions by test vectors.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

namespace pagefuse {

// True if the value may be a cache that something was written into.
bool IsWrittenCache(const Value& value);

// How many units of `inner` elements the cache has, of symbols as many as are compared on.
int64_t UnitsOf(const Value& cache, int64_t inner);

// Products of the last dims of the cache that are numbers: widths that blocks may have.
std::vector<int64_t> Widths(const Value& cache);

// Tokens a block, as far as the nodes above the cache divide by them: at most `most`.
std::vector<int64_t> BlockSizes(const FusionSearch& search, Value* cache, int64_t most);

// The port under the shape that the op takes, and back.
struct CacheView {
  std::string port;
  std::string before;  // defines `cache`
  std::string after;   // defines `<port>_out` of `written`
};
CacheView ViewCache(const Value& cache, const std::string& port, const std::string& dims);

// Caches of rows [.., width] as [blocks, block size, width].
struct RowCache {
  std::string dims;
  int64_t blocks = 0;
  int64_t block_size = 0;
};
RowCache ReadRowCache(const Value& cache);

}  // namespace pagefuse
