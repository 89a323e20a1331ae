// SPDX-License-Identifier: Apache-2.0
// Reads biases that grow from key to key by a slope of the head (ALiBi).
#pragma once

#include <optional>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// slope[head] * factor * key, and what all keys of a row have in common.
struct LinearBias {
  Value* slopes = nullptr;  // [H], in any shape with axes of length 1; null: `numbers`
  double factor = 1;
  std::vector<float> numbers;      // one a head
  const Value* padding = nullptr;  // the mask [B, T] whose ones count keys; null: none
  int64_t most_keys = 0;           // a table ends there; 0: none does
};

// The bias that a value [B or 1, H, S or 1, T], or without leading axes, is; nullopt if it is none, or
// none of `keys`: a bias of one key is broadcast to all. Nullopt for `keys`: of however many.
std::optional<LinearBias> ReadLinearBias(Value* value, const std::optional<Dim>& keys,
                                         const SymbolicContents& contents);

}  // namespace pagefuse
