// SPDX-License-Identifier: Apache-2.0
// Constants that show a band of keys to each query: triangles, and windows of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// Key j is visible to query i where  j <= i + upper  and  j >= i + lower; what is not set holds for
// every pair of the constant.
struct Band {
  std::optional<int64_t> upper;
  std::optional<int64_t> lower;
};

// Whether an element of a mask shows its key; nullopt if it says neither.
using Shows = std::function<std::optional<bool>(double)>;

// Reads a constant of floats, integers or bools whose last two axes are query and key, and whose
// other axes have length 1. Nullopt if what is visible is no such band, or if `shows` says neither.
std::optional<Band> ReadBand(const Tensor& mask, const Shows& shows);

// True if a constant holds 0 and 1 alone.
bool HoldsUnits(const Tensor& tensor);

}  // namespace pagefuse
