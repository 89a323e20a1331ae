// SPDX-License-Identifier: Apache-2.0
// The lane maps of the decode kernels: 32 lanes that load and feed as fragments.h says, and a software mma of the documented layouts, compute
// the scores and outputs of a page.
#include "pagefuse/ops/kernels/cuda/fragments.h"

#include <array>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pagefuse::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kHeads = 8;

// Elements as numbers: [0] and [1] of a register.
using Pair = std::array<double, 2>;
// Of each lane.
template <int registers>
using Fragment = std::array<std::array<Pair, registers>, kLanes>;
using Sums = std::array<std::array<double, 4>, kLanes>;

// c += a b of mma.m16n8k16.
void Multiply(const Fragment<4>& a, const Fragment<2>& b, Sums& c) {
  std::array<std::array<double, 16>, 16> rows{};
  std::array<std::array<double, 8>, 16> columns{};
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < 4; ++r) rows[g + r % 2 * 8][2 * t + r / 2 * 8 + i] = a[lane][r][i];
      for (int r = 0; r < 2; ++r) columns[2 * t + r * 8 + i][g] = b[lane][r][i];
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
      for (int k = 0; k < 16; ++k) c[lane][i] += rows[row][k] * columns[k][column];
    }
  }
}

std::vector<double> RandomNumbers(int count, int seed) {
  std::mt19937 random(seed);
  std::vector<double> numbers(count);
  for (double& x : numbers) x = std::uniform_int_distribution(-8, 8)(random);
  return numbers;
}

// Rows [16 tokens, head_size] as they lie in shared memory: element i of a piece at 16 bytes.
class Page {
 public:
  Page(const PageLayout& layout, const std::vector<double>& rows) : layout_(layout) {
    memory_.resize(layout.bytes() / layout.element_bytes);
    for (int token = 0; token < kPageTokens; ++token) {
      for (int d = 0; d < layout.head_size; ++d) {
        const int span = d / layout.span_elements(), in_span = d % layout.span_elements();
        const int at = layout.Offset(span, kHead, token, in_span / layout.piece());
        memory_[at / layout.element_bytes + in_span % layout.piece()] =
            rows[token * layout.head_size + d];
      }
    }
  }
  double At(int span, int token, int piece, int element) const {
    return memory_[layout_.Offset(span, kHead, token, piece) / layout_.element_bytes + element];
  }

  static constexpr int kHead = 1;  // of two

 private:
  PageLayout layout_;
  std::vector<double> memory_;
};

class PageLayoutTest : public testing::TestWithParam<PageLayout> {};

TEST_P(PageLayoutTest, ScoresOfAPage) {
  const PageLayout layout = GetParam();
  const int size = layout.head_size;
  const auto queries = RandomNumbers(kHeads * size, 1);
  const auto keys = RandomNumbers(kPageTokens * size, 2);
  const Page page(layout, keys);
  Sums scores{};
  for (int step = 0; step < layout.steps(); ++step) {
    Fragment<4> a{};
    Fragment<2> b{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const int steps_of_span = 2 * layout.steps_of_piece();
      const int in_span = step % steps_of_span;
      const int piece = 2 * t + in_span / layout.steps_of_piece();
      const int first = in_span % layout.steps_of_piece() * 4;
      const int channel = layout.ScoreChannel(t, step);
      for (int i = 0; i < 4; ++i) {
        const int span = step / steps_of_span;
        a[lane][i / 2 * 2][i % 2] = page.At(span, g, piece, first + i);
        a[lane][i / 2 * 2 + 1][i % 2] = page.At(span, g + 8, piece, first + i);
        b[lane][i / 2][i % 2] = queries[g * size + channel + i];
      }
    }
    Multiply(a, b, scores);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int key = lane / 4 + i / 2 * 8, head = 2 * (lane % 4) + i % 2;
      double dot = 0;
      for (int d = 0; d < size; ++d) dot += queries[head * size + d] * keys[key * size + d];
      EXPECT_EQ(scores[lane][i], dot) << "head " << head << ", key " << key;
    }
  }
}

TEST_P(PageLayoutTest, OutputsOfAPage) {
  const PageLayout layout = GetParam();
  const int size = layout.head_size;
  const auto weights = RandomNumbers(kHeads * kPageTokens, 3);
  const auto values = RandomNumbers(kPageTokens * size, 4);
  const Page page(layout, values);
  Fragment<2> b{};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * (lane % 4) + i % 2 + i / 2 * 8;
      b[lane][i / 2][i % 2] = weights[lane / 4 * kPageTokens + key];
    }
  }
  std::set<int> channels;
  for (int tile = 0; tile < layout.tiles(); ++tile) {
    const int span = tile / layout.tiles_of_span(), in_piece = tile % layout.tiles_of_span() * 2;
    Fragment<4> a{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int key = 2 * t + i % 2 + i / 2 * 8;
        a[lane][i / 2 * 2][i % 2] = page.At(span, key, g, in_piece);
        a[lane][i / 2 * 2 + 1][i % 2] = page.At(span, key, g, in_piece + 1);
      }
    }
    Sums sums{};
    Multiply(a, b, sums);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int channel = layout.ValueChannel(lane / 4, tile, i / 2);
        const int head = 2 * (lane % 4) + i % 2;
        channels.insert(channel);
        double sum = 0;
        for (int key = 0; key < kPageTokens; ++key) {
          sum += weights[head * kPageTokens + key] * values[key * size + channel];
        }
        EXPECT_EQ(sums[lane][i], sum) << "head " << head << ", channel " << channel;
      }
    }
  }
  EXPECT_EQ(channels.size(), static_cast<size_t>(size));
}

// Eight lanes read 16 bytes at a time: they find 32 different banks.
TEST_P(PageLayoutTest, LoadsHaveNoBankConflicts) {
  const PageLayout layout = GetParam();
  const auto expect_all_banks = [&](auto token, auto piece) {
    for (int first = 0; first < kLanes; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane) {
        const int g = lane / 4, t = lane % 4;
        banks.insert(layout.Offset(0, Page::kHead, token(g, t), piece(g, t)) % 128 / 16);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  };
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      expect_all_banks([&](int g, int) { return half * 8 + g; },
                       [&](int, int t) { return 2 * t + i; });
      expect_all_banks([&](int, int t) { return half * 8 + 2 * t + i; },
                       [&](int g, int) { return g; });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PageLayoutTest,
                         testing::Values(PageLayout{2, 64, 2}, PageLayout{2, 128, 2},
                                         PageLayout{2, 256, 2}, PageLayout{1, 128, 2},
                                         PageLayout{1, 256, 2}, PageLayout{4, 64, 2},
                                         PageLayout{4, 128, 2}, PageLayout{4, 256, 2}));

// Bytes of a row at 0 or 2 mod 4, as the kernel reads them.
TEST(NibbleRow, ChannelsAreThoseOfTheBytes) {
  constexpr int kBytes = 64;
  for (const bool odd : {false, true}) {
    const NibbleRow row = {odd};
    std::set<int> channels;
    for (int word = 0; word < kBytes / 4; ++word) {
      for (int byte = 0; byte < 4; ++byte) {
        const int inside = odd ? 2 + 4 * word + byte : 4 * word + byte;
        const int joined = byte < 2 ? byte : kBytes - 4 + byte;
        const int at = odd && word == 15 ? joined : inside;
        EXPECT_EQ(row.Channel(word, byte), 2 * at);
        channels.insert(row.Channel(word, byte));
      }
    }
    EXPECT_EQ(channels.size(), static_cast<size_t>(kBytes));
  }
}

}  // namespace
}  // namespace pagefuse::cuda
