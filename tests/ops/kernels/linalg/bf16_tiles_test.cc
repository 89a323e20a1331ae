// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse {
namespace {

constexpr int64_t kDepthTiles = 3;

// Small whole numbers, so that every sum is exact.
class Tiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasTestableBf16Unit()) GTEST_SKIP() << "no unit for bfloat16 here";
    for (int t = 0; t < 4; ++t) {
      for (int64_t i = 0; i < kDepthTiles * kTileWords; ++i) a_[t][i] = Word();
      for (int64_t i = 0; i < kDepthTiles * kTileWords; ++i) b_[t][i] = Word();
    }
  }

  uint16_t Word() {
    const auto number = static_cast<float>(static_cast<int>(random_() % 9) - 4);
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
  }
  static float Number(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

  TileBlock Block(bool accumulate) {
    TileBlock block{.k_tiles = kDepthTiles, .accumulate = accumulate};
    for (int t = 0; t < 4; ++t) {
      block.a[t] = a_[t];
      block.b[t] = b_[t];
      block.c[t] = c_[t];
    }
    return block;
  }

  void ExpectProduct(int c, int a, int b, float before) {
    for (int64_t m = 0; m < kTileRows; ++m) {
      for (int64_t n = 0; n < kTileColumns; ++n) {
        float sum = before;
        for (int64_t k = 0; k < kDepthTiles * kTileDepth; ++k) {
          const int64_t tile = k / kTileDepth * kTileWords;
          const int64_t d = k % kTileDepth;
          sum += Number(a_[a][tile + m * kTileDepth + d]) *
                 Number(b_[b][tile + d / 2 * 32 + n * 2 + d % 2]);
        }
        ASSERT_EQ(c_[c][m * kTileColumns + n], sum) << c << " at " << m << ", " << n;
      }
    }
  }

  // Runs `product` with every unit, adding to what is there and replacing it: c is a times b by
  // number.
  template <typename Product>
  void ExpectBlock(Product product, const int (&a)[4], const int (&b)[4]) {
    testing::ForEachBf16Unit([&] {
      for (const bool accumulate : {true, false}) {
        for (int t = 0; t < 4; ++t) std::fill_n(c_[t], kTileFloats, static_cast<float>(t));
        BeginTileProducts();
        product(Block(accumulate));
        EndTileProducts();
        for (int c = 0; c < 4; ++c) {
          ExpectProduct(c, a[c], b[c], accumulate ? static_cast<float>(c) : 0.0f);
        }
      }
    });
  }

  std::mt19937 random_{1};
  alignas(64) uint16_t a_[4][kDepthTiles * kTileWords];
  alignas(64) uint16_t b_[4][kDepthTiles * kTileWords];
  alignas(64) float c_[4][kTileFloats];
};

TEST_F(Tiles, TwoByTwoReplacesOrAdds) { ExpectBlock(TileProduct2x2, {0, 0, 1, 1}, {0, 1, 0, 1}); }

TEST_F(Tiles, FourByOneReplacesOrAdds) { ExpectBlock(TileProduct4x1, {0, 1, 2, 3}, {0, 0, 0, 0}); }

TEST_F(Tiles, OneByFourReplacesOrAdds) { ExpectBlock(TileProduct1x4, {0, 0, 0, 0}, {0, 1, 2, 3}); }

// As kernels do at an edge: operands and their sum are given twice.
TEST_F(Tiles, SumsGivenTwiceAreMadeOnce) {
  testing::ForEachBf16Unit([&] {
    std::fill_n(c_[0], kTileFloats, 7.0f);
    TileBlock block = Block(/*accumulate=*/true);
    block.a[1] = block.a[0];
    block.b[1] = block.b[0];
    for (float*& c : block.c) c = c_[0];
    BeginTileProducts();
    TileProduct2x2(block);
    EndTileProducts();
    ExpectProduct(0, 0, 0, 7);
  });
}

}  // namespace
}  // namespace pagefuse
