// SPDX-License-Identifier: Apache-2.0
// The cache groups of a paged graph, and the metadata that lists them: what a pass that pages a
// graph writes, and what runs it reads.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// The most tokens that a block of a cache may hold.
inline constexpr int64_t kMaxBlockSize = int64_t{1} << 20;

enum class CacheKind {
  kFull,        // a row for each token, all of them
  kWindow,      // a row for each token, the last ones
  kState,       // the same of a compressor: the rows of which its windows are made
  kCompressed,  // a row for each window of `ratio` tokens, all of them
};
std::string_view NameOf(CacheKind kind);

// What tells groups apart. `window` is the number of last tokens whose rows are kept, 0: all of
// them. `ratio` is the number of tokens in a compressor's window, of its state and of its rows; 1
// in groups without one.
struct CacheGroupKey {
  CacheKind kind = CacheKind::kFull;
  int64_t window = 0;
  int64_t ratio = 1;

  static CacheGroupKey Full() { return {}; }
  static CacheGroupKey Window(int64_t window) { return {CacheKind::kWindow, window, 1}; }
  // Windows that overlap reach back over the one before.
  static CacheGroupKey State(int64_t ratio, bool overlap) {
    return {CacheKind::kState, (overlap ? 2 : 1) * ratio, ratio};
  }
  static CacheGroupKey Compressed(int64_t ratio) { return {CacheKind::kCompressed, 0, ratio}; }

  auto operator<=>(const CacheGroupKey&) const = default;
};
// "full", "window_512", "state_8_by_4" (the last 8 rows, windows of 4), "compressed_4": suffix of
// block_table.<name> and slot_mapping.<name>.
std::string NameOf(const CacheGroupKey& key);

// Layers that keep the same rows. A group has one block table and one pool; its layers' cache
// tensors are indexed by the same block ids.
struct CacheGroup {
  std::string name;
  CacheKind kind = CacheKind::kFull;
  int64_t sliding_window = 0;  // CacheGroupKey::window
  int64_t ratio = 1;           // CacheGroupKey::ratio
  int64_t block_size = 16;     // rows a block
  // Graph inputs: kv_cache.N.key, .value (, .key_scale, .value_scale), .latent, .compressed, ..
  std::vector<std::string> caches;

  CacheGroupKey key() const { return {kind, sliding_window, ratio}; }
  int64_t tokens_per_row() const { return kind == CacheKind::kCompressed ? ratio : 1; }
  // Rows of the first `tokens` tokens: only whole windows have one.
  int64_t RowsOf(int64_t tokens) const {
    return kind == CacheKind::kCompressed ? tokens / ratio : tokens;
  }
  // The first row that a token at `position` or later can see.
  int64_t FirstVisible(int64_t position) const;
  // The first row that a text of `length` tokens needs to go on: a state is read by the tokens that
  // close windows only.
  int64_t FirstNeeded(int64_t length) const;

  bool operator==(const CacheGroup&) const = default;
};

// The group with its name and its rows a block: `block_size`, but few for a state, of which few
// rows are kept, and of compressed rows those of 256 tokens at most: texts share whole blocks.
CacheGroup MakeCacheGroup(const CacheGroupKey& key, int64_t block_size);

// metadata_props "pagefuse.cache_groups", a JSON list
//   [{"name": "full", "sliding_window": 0, "block_size": 16, "caches": ["kv_cache.5.key", ..]},
//    {"name": "state_8_by_4", "kind": "state", "ratio": 4, "sliding_window": 8, ..}, ..]
// "kind" is left out where the window tells it (full, window), "ratio" where it is 1.
void WriteCacheGroups(Model& model, const std::vector<CacheGroup>& groups);
// NotFound if the model has no such metadata; InvalidArgument saying what is wrong with it.
absl::StatusOr<std::vector<CacheGroup>> ReadCacheGroups(const Model& model);

}  // namespace pagefuse
