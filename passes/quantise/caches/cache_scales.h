// SPDX-License-Identifier: Apache-2.0
// The scales of fp8_per_tensor, layer by layer.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"

namespace pagefuse {

// What keys and values are divided by before they are rounded. 1: the range of e4m3 itself, +-448.
struct KvScales {
  float key = 1;
  float value = 1;
};

// The options k_scale and v_scale.
class ScaleOptions {
 public:
  // Each a positive number for all layers, or one a layer with commas. InvalidArgument naming the
  // option.
  static absl::StatusOr<ScaleOptions> Read(const PassContext& context);

  // Of the options; where one is not set, of the export, which rounds keys or values to
  // float8e4m3fn itself; else 1. InvalidArgument if there are neither one nor as many as layers.
  absl::StatusOr<KvScales> Of(const CacheUse& use) const;

 private:
  std::vector<float> key_, value_;  // empty: not set
};

}  // namespace pagefuse
