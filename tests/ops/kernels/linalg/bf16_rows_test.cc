// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/bf16_rows.h"

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/kernels/linalg/cpu_features.h"

namespace pagefuse {
namespace {

constexpr int64_t kDepthTiles = 3;
constexpr int64_t kColumn = 5;  // where words of rows begin: rows need no alignment
constexpr int64_t kNumRows = kDepthTiles * kTileDepth;
constexpr int64_t kRowWords = kNumRows + kColumn;

// Small whole numbers, so that every sum is exact.
class Bf16Rows : public ::testing::Test {
 protected:
  Bf16Rows() : limit_(Bf16Unit::kAvx512) {}

  void SetUp() override {
    if (!HasBf16Rows()) GTEST_SKIP() << "no AVX512-BF16 here";
    words_.resize(kNumRows * kRowWords);
    for (uint16_t& word : words_) word = Word();
    for (uint16_t& word : tiles_) word = Word();
    // Rows lie in any order.
    for (int64_t r = 0; r < kNumRows; ++r) rows_[r] = words_.data() + r * kRowWords + kColumn;
    std::shuffle(rows_, rows_ + kNumRows, random_);
  }

  uint16_t Word() {
    const auto number = static_cast<float>(static_cast<int>(random_() % 9) - 4);
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
  }
  static float Number(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

  ScopedBf16Limit limit_;
  std::mt19937 random_{1};
  std::vector<uint16_t> words_;
  const uint16_t* rows_[kNumRows];
  alignas(64) uint16_t tiles_[kDepthTiles * kTileWords];
  alignas(64) float c_[2][kTileFloats];
};

TEST_F(Bf16Rows, ByQuadsReplacesOrAdds) {
  for (const bool accumulate : {true, false}) {
    std::fill_n(c_[0], kTileFloats, 3.0f);
    const uint8_t* coming[] = {reinterpret_cast<const uint8_t*>(rows_[0])};
    MultiplyRowsByQuads({.rows = rows_,
                         .q = tiles_,
                         .k_tiles = kDepthTiles,
                         .accumulate = accumulate,
                         .c = c_[0],
                         .coming = {coming, 1, 2}});
    for (int64_t r = 0; r < kTileRows; ++r) {
      for (int64_t n = 0; n < kTileColumns; ++n) {
        float sum = accumulate ? 3.0f : 0.0f;
        for (int64_t k = 0; k < kDepthTiles * kTileDepth; ++k) {
          sum += Number(rows_[r][k]) * Number(tiles_[k / 4 * 64 + n * 4 + k % 4]);
        }
        ASSERT_EQ(c_[0][r * kTileColumns + n], sum) << r << ", " << n;
      }
    }
  }
}

TEST_F(Bf16Rows, TilesByRowsInterleavesColumnsAndLeavesOtherRows) {
  for (const bool accumulate : {true, false}) {
    for (const int64_t num_a_rows : {16, 9, 8, 1}) {
      std::fill_n(c_[0], kTileFloats, 3.0f);
      std::fill_n(c_[1], kTileFloats, 4.0f);
      MultiplyTilesByRows({.a = tiles_,
                           .rows = rows_,
                           .column = 32,
                           .k_tiles = kDepthTiles,
                           .num_a_rows = num_a_rows,
                           .accumulate = accumulate,
                           .c = {c_[0], c_[1]}});
      const int64_t made = num_a_rows > 8 ? 16 : 8;
      for (int64_t m = 0; m < kTileRows; ++m) {
        for (int64_t word = 0; word < 32; ++word) {
          const int64_t tile = word / 4 % 2;
          float sum = accumulate || m >= made ? 3.0f + static_cast<float>(tile) : 0.0f;
          for (int64_t k = 0; m < made && k < kNumRows; ++k) {
            sum += Number(tiles_[k / kTileDepth * kTileWords + m * kTileDepth + k % kTileDepth]) *
                   Number(rows_[k][32 + word]);
          }
          ASSERT_EQ(c_[tile][m * kTileColumns + word / 8 * 4 + word % 4], sum) << m << ", " << word;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagefuse
