// Masks that lie in the model as constants: triangles, and bands of them.
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

// What an element of a mask says.
enum class Sees { kVisible, kHidden, kNeither };

// Reads a constant of floats, integers or bools whose last two axes are query and key, and whose
// other axes have length 1. Nullopt if what is visible is no such band, or if `sees` says kNeither.
std::optional<Band> ReadBand(const Tensor& mask, const std::function<Sees(double)>& sees);

}  // namespace pagefuse
