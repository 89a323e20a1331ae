// SPDX-License-Identifier: Apache-2.0
// Weights of random codes whose numbers are small integers.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "pagefuse/ops/kernels/linalg/nbits.h"

namespace pagefuse::testing {

enum class Zeros { kNone, kCodes, kFloats };

// A weight with the memory that it lies in.
struct Weight {
  std::vector<uint8_t> codes, zero_codes;
  std::vector<float> scales, zeros;
  NBitsWeight view;
};

inline Weight MakeWeight(int bits, int64_t k, int64_t n, int64_t block, Zeros zeros) {
  Weight w;
  NBitsWeight& v = w.view;
  v.bits = bits;
  v.k = k;
  v.n = n;
  v.block = block;
  v.row_bytes = v.blocks() * block * bits / 8;
  v.zero_row_bytes = (v.blocks() * bits + 7) / 8;
  std::mt19937 random(static_cast<uint32_t>(k * 31 + n * 7 + bits));
  const auto bytes = [&](int64_t count) {
    std::vector<uint8_t> made(static_cast<size_t>(count));
    for (uint8_t& byte : made) byte = static_cast<uint8_t>(random());
    return made;
  };
  w.codes = bytes(n * v.row_bytes);
  for (int64_t i = 0; i < n * v.blocks(); ++i) {
    w.scales.push_back(static_cast<float>(1 + random() % 2));
    w.zeros.push_back(static_cast<float>(random() % (1 << bits)));
  }
  w.zero_codes = bytes(n * v.zero_row_bytes);
  v.codes = w.codes.data();
  v.scales = w.scales.data();
  if (zeros == Zeros::kCodes) v.zero_codes = w.zero_codes.data();
  if (zeros == Zeros::kFloats) v.zeros = w.zeros.data();
  return w;
}

inline double ElementOf(const NBitsWeight& w, int64_t row, int64_t column) {
  const int64_t b = column / w.block;
  return (w.Code(row, column) - static_cast<double>(w.Zero(row, b))) *
         w.scales[row * w.blocks() + b];
}

struct Sizes {
  int64_t k, n, block;
  Zeros zeros = Zeros::kNone;
};
inline const Sizes kSizes[] = {{32, 1, 32},
                               {31, 3, 32},
                               {96, 5, 32, Zeros::kCodes},
                               {128, 19, 32},
                               {160, 66, 32, Zeros::kFloats},
                               {250, 130, 64},
                               {288, 33, 128, Zeros::kCodes},
                               {300, 9, 1024}};

}  // namespace pagefuse::testing
