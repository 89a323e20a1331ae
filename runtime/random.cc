// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/random.h"

#include <random>

namespace pagefuse {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

uint64_t RandomBitsAt(uint64_t seed, uint32_t sample, uint64_t position) {
  const auto words =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{words[0]} << 32 | words[1];
}

uint64_t FreshSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace pagefuse
