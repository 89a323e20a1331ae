#include "pagefuse/ops/linalg/amx_product.h"

#include <bit>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/linalg/cpu_features.h"

namespace pagefuse {
namespace {

constexpr int64_t kDepthTiles = 3;

// Small whole numbers, so that every sum is exact.
class Tiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAmxBf16()) GTEST_SKIP() << "no AMX here";
    for (int t = 0; t < 4; ++t) {
      for (int64_t i = 0; i < kDepthTiles * kAmxWords; ++i) a_[t][i] = Word();
      for (int64_t i = 0; i < kDepthTiles * kAmxWords; ++i) b_[t][i] = Word();
      for (float& c : c_[t]) c = static_cast<float>(t);
    }
  }

  uint16_t Word() {
    const auto number = static_cast<float>(static_cast<int>(random_() % 9) - 4);
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
  }
  static float Number(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

  AmxBlock Block(bool accumulate) {
    AmxBlock block{.k_tiles = kDepthTiles, .accumulate = accumulate};
    for (int t = 0; t < 4; ++t) {
      block.a[t] = a_[t];
      block.b[t] = b_[t];
      block.c[t] = c_[t];
    }
    return block;
  }

  void ExpectProduct(int c, int a, int b, float before) {
    for (int64_t m = 0; m < kAmxRows; ++m) {
      for (int64_t n = 0; n < kAmxColumns; ++n) {
        float sum = before;
        for (int64_t k = 0; k < kDepthTiles * kAmxDepth; ++k) {
          const int64_t tile = k / kAmxDepth * kAmxWords;
          const int64_t d = k % kAmxDepth;
          sum += Number(a_[a][tile + m * kAmxDepth + d]) *
                 Number(b_[b][tile + d / 2 * 32 + n * 2 + d % 2]);
        }
        ASSERT_EQ(c_[c][m * kAmxColumns + n], sum) << c << " at " << m << ", " << n;
      }
    }
  }

  template <typename Product>
  void RunBlock(Product product, bool accumulate) {
    BeginAmxProducts();
    product(Block(accumulate));
    EndAmxProducts();
  }

  std::mt19937 random_{1};
  alignas(64) uint16_t a_[4][kDepthTiles * kAmxWords];
  alignas(64) uint16_t b_[4][kDepthTiles * kAmxWords];
  alignas(64) float c_[4][kAmxFloats];
};

TEST_F(Tiles, TwoByTwoReplacesOrAdds) {
  RunBlock(AmxProduct2x2, /*accumulate=*/true);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, c / 2, c % 2, static_cast<float>(c));
  RunBlock(AmxProduct2x2, /*accumulate=*/false);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, c / 2, c % 2, 0);
}

TEST_F(Tiles, FourByOneReplacesOrAdds) {
  RunBlock(AmxProduct4x1, /*accumulate=*/true);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, c, 0, static_cast<float>(c));
  RunBlock(AmxProduct4x1, /*accumulate=*/false);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, c, 0, 0);
}

TEST_F(Tiles, OneByFourReplacesOrAdds) {
  RunBlock(AmxProduct1x4, /*accumulate=*/true);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, 0, c, static_cast<float>(c));
  RunBlock(AmxProduct1x4, /*accumulate=*/false);
  for (int c = 0; c < 4; ++c) ExpectProduct(c, 0, c, 0);
}

}  // namespace
}  // namespace pagefuse
