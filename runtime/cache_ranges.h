// SPDX-License-Identifier: Apache-2.0
// Measures how large the keys and values of a model become, from which the scales of a quantised
// cache are made.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {

// The largest magnitudes that a layer's cache has held.
struct CacheRange {
  float key = 0;
  float value = 0;
};

// Runs the prompts one after the other, in steps of at most `step_tokens`, and looks at the cache
// after each. A range a layer, in the order in which layers run. InvalidArgument if a prompt is
// empty, or if a cache does not hold keys and values as they are; FailedPrecondition if caches lie in
// pages, which hold rows of others too. Drops what the cache held.
absl::StatusOr<std::vector<CacheRange>> MeasureCacheRanges(
    PagedModel& model, const std::vector<std::vector<int64_t>>& prompts, int64_t step_tokens);

}  // namespace pagefuse
