// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter: a seed and a position always give the same number, whatever was drawn
// before.
#pragma once

#include <array>
#include <cstdint>

namespace pagefuse {

// Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3".
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Divided by 2^64 a number in [0, 1), for the token at `position` of sample `sample` of a request
// with this seed.
uint64_t RandomBitsAt(uint64_t seed, uint32_t sample, uint64_t position);

// A seed that nobody chose.
uint64_t FreshSeed();

}  // namespace pagefuse
