// SPDX-License-Identifier: Apache-2.0
// Tells rounding from another function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "as_exported.h"

namespace pagefuse::fuzz {

// Nothing, or the first difference of logits of the same token. NaN equals NaN, infinity infinity;
// numbers may be `allowed` apart, as a part of the largest of them.
std::string CompareLogits(std::span<const float> expected, std::span<const float> found,
                          float allowed);

// What logits may differ by, computed in floats in another order.
constexpr float kFloatRounding = 2e-3F;

// The same for a graph that computes in other types, too: every node of them rounds to 11 bits, or
// to 8. Types are inferred.
float RoundingOfTypes(const Model& model);

// What the logits of a generation may differ by: a multiple of how far they move where every float
// weight moves by about its last bit, and where floats are doubles. Infinity where that makes
// numbers of what are none, or the other way round.
float RoundingOf(const DecoderCase& decoder, const Generation& generation);

}  // namespace pagefuse::fuzz
