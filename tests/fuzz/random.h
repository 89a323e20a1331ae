// SPDX-License-Identifier: Apache-2.0
// Random choices of a fuzz case: all of them follow from its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace pagefuse::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Next() { return engine_(); }
  // [0, n), 0 for n = 0.
  size_t Below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(engine_() % n); }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <typename List>
  auto& Pick(List& list) {
    return list[static_cast<int>(Below(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace pagefuse::fuzz
