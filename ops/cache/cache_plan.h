// SPDX-License-Identifier: Apache-2.0
// Decides which format the cache of each layer gets, from the options kv_cache and
// kv_cache_skip_layers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/cache_choice.h"

namespace pagefuse {

// A layer that keeps keys and values, by the order in which layers run.
struct CacheLayer {
  int64_t index = 0;
  int64_t count = 1;  // of all layers
  bool has_window = false;
};

// How kv_cache gives layers with and without a window formats of their own.
inline constexpr std::string_view kCacheByWindow = "full=NAME,window=NAME";

class CachePlan {
 public:
  // `formats`: one name of cache_choice.h for all layers, or as kCacheByWindow, where a kind that
  // is left out keeps the type of its keys. `skip_layers`: indices with commas, negative ones from
  // the end; these layers keep the type of their keys too. InvalidArgument naming the option.
  static absl::StatusOr<CachePlan> Parse(std::string_view formats, std::string_view skip_layers);

  CacheChoice FormatOf(const CacheLayer& layer) const;
  // No layer gets another format.
  bool changes_nothing() const { return full_.changes_nothing() && window_.changes_nothing(); }
  // InvalidArgument if a layer is to be skipped that `count` layers do not have.
  absl::Status CheckLayers(int64_t count) const;

 private:
  CacheChoice full_, window_;
  std::vector<int64_t> skipped_;
};

}  // namespace pagefuse
