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
};

// The bias that a value [B or 1, H, S or 1, T], or without leading axes, is; nullopt if it is none.
std::optional<LinearBias> ReadLinearBias(Value* value, const SymbolicContents& contents);

}  // namespace pagefuse
