// SPDX-License-Identifier: Apache-2.0
// The parts of the indexer ops that case tables do not reach: what is not written, every code,
// every divisor, selection against sorting.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ops/kernels/indexer/indexer_topk.h"
#include "pagefuse/ops/kernels/indexer/key_choice.h"
#include "pagefuse/ops/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/kernels/indexer/slot_lookup.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/numeric/e4m3_bf16.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::pagefuse_ops {
namespace {

using testing::ForEachBf16Unit;
using testing::ForEachSimdTarget;

uint16_t Bf16Word(uint8_t code) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(DecodeFloat<E4M3FNFormat>(code)) >> 16);
}

TEST(E4M3ToBf16, EveryCodeBecomesItsValue) {
  ForEachSimdTarget([] {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7F) == 0x7F) continue;
      const std::vector<uint8_t> codes(64, static_cast<uint8_t>(code));
      std::vector<uint16_t> words(64, 0xFFFF);
      E4M3ToBf16InAnyOrder({codes.data(), 1, 64, 64}, words.data());
      for (const uint16_t word : words) ASSERT_EQ(word, Bf16Word(codes[0])) << code;
    }
  });
}

TEST(E4M3ToBf16, KeepsTheElementsOfARowAndPadsWithZeros) {
  ForEachSimdTarget([] {
    constexpr int64_t kSize = 70;
    constexpr int64_t kStride = 75;
    std::vector<uint8_t> codes(2 * kStride);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 125 + 1);
    std::vector<uint16_t> words(2 * PaddedBf16Row(kSize), 0xFFFF);
    E4M3ToBf16InAnyOrder({codes.data(), 2, kSize, kStride}, words.data());
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<uint16_t> want(PaddedBf16Row(kSize), 0);
      for (int64_t i = 0; i < kSize; ++i) want[i] = Bf16Word(codes[row * kStride + i]);
      std::vector<uint16_t> got(words.begin() + row * PaddedBf16Row(kSize),
                                words.begin() + (row + 1) * PaddedBf16Row(kSize));
      std::sort(want.begin(), want.end());
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, want);
    }
  });
}

TEST(BlockDivider, DividesExactly) {
  std::vector<int64_t> divisors = {2147483647, 2147483646, 1 << 30, (1 << 30) + 1, 65535, 65537};
  for (int64_t d = 1; d < 400; ++d) divisors.push_back(d);
  std::mt19937 random(1);
  for (const int64_t d : divisors) {
    const BlockDivider divider(d);
    std::vector<int64_t> values = {
        0, 1, d - 1, d, 2147483647, 2147483647 / d * d, 2147483647 / d * d - 1};
    for (int i = 0; i < 50; ++i) values.push_back(random() >> 1);
    for (const int64_t v : values) {
      const auto quotient =
          static_cast<int64_t>(static_cast<uint64_t>(v) * divider.multiplier >> divider.shift);
      ASSERT_EQ(quotient, v / d) << v << " / " << d;
    }
  }
}

TEST(SelectTopK, EqualsSortingForEveryKindOfRow) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const float specials[] = {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN(),
                            0.0f,      -0.0f,      std::numeric_limits<float>::denorm_min()};
  for (int round = 0; round < 30; ++round) {
    std::vector<float> logits(random() % 20000 + 1);
    for (float& logit : logits) logit = std::ldexp(normal(random), static_cast<int>(random() % 40));
    const int kind = round % 3;  // numbers, a tenth of them special, special ones only
    for (float& logit : logits) {
      if (kind == 2 || (kind == 1 && random() % 10 == 0)) logit = specials[random() % 6];
    }
    const int64_t topk = static_cast<int64_t>(random() % 2500);
    const auto select = [&](const std::function<void(const TopKRow&)>& run) {
      std::vector<int32_t> indices(topk, 77);
      run({logits.data(), static_cast<int64_t>(logits.size()), indices.data(), topk});
      return indices;
    };
    const std::vector<int32_t> want = select(SelectTopK);
    ForEachSimdTarget([&] {
      const std::vector<int32_t> got = select([](const TopKRow& row) {
        std::vector<uint32_t> scratch(TopKScratchBytes(row.topk, row.count) / sizeof(uint32_t));
        SelectTopKHwy(row, scratch.data());
      });
      ASSERT_EQ(got, want) << "round " << round;
    });
  }
}

// Three sequences of two queries over blocks of 8 keys, one of them with a negative scale.
class Scores {
 public:
  Scores() : q_(kRows * kHeads * kSize), cache_(6 * kBlockBytes), weights_(kRows * kHeads) {
    std::mt19937 random(3);
    for (uint8_t& code : q_) code = Code(random);
    for (uint8_t& byte : cache_) byte = Code(random);
    for (float& weight : weights_) weight = static_cast<float>(random() % 9) - 4;
    for (int64_t block = 0; block < 6; ++block) {
      for (int64_t key = 0; key < 8; ++key) {
        const float scale = key == 3 ? -0.5f : 0.25f * static_cast<float>(key + 1);
        std::memcpy(&cache_[block * kBlockBytes + 8 * kSize + key * 4], &scale, 4);
      }
    }
    problem_.q = q_.data();
    problem_.weights = weights_.data();
    problem_.rows = kRows;
    problem_.heads = kHeads;
    problem_.head_size = kSize;
    problem_.keys.data = cache_.data();
    problem_.keys.scales = cache_.data() + 8 * kSize;
    problem_.keys.num_blocks = 6;
    problem_.keys.block_size = 8;
    problem_.keys.data_strides = {.block = kBlockBytes, .row = kSize};
    problem_.keys.scale_strides = {.block = kBlockBytes, .row = 4};
    problem_.sequences = {0, 0, 1, 1, 2, 2};
    problem_.block_table = table_;
    problem_.table_columns = 2;
    problem_.width = kWidth;
    problem_.ranges = {{0, 11}, {3, 12}, {0, 0}, {5, 5}, {2, 16}, {15, 16}};
    problem_.filled = {12, 12, 20, 0, 16, 18};
  }

  std::vector<float> Run(const std::function<void(const MqaLogitsProblem&)>& run) {
    std::vector<float> logits(kRows * kWidth, kUntouched);
    problem_.logits = logits.data();
    run(problem_);
    return logits;
  }
  const MqaLogitsProblem& problem() const { return problem_; }

  static constexpr float kUntouched = 12345.0f;
  static constexpr int64_t kRows = 6, kHeads = 20, kSize = 96, kWidth = 20;
  static constexpr int64_t kBlockBytes = 8 * (kSize + 4);

 private:
  static uint8_t Code(std::mt19937& random) {
    return static_cast<uint8_t>((random() % 0x50) | (random() % 2 << 7));
  }
  std::vector<uint8_t> q_, cache_;
  std::vector<float> weights_;
  const int32_t table_[6] = {5, 0, -1, 77, 2, 4};
  MqaLogitsProblem problem_;
};

void ExpectScores(Scores& scores, const std::function<void(const MqaLogitsProblem&)>& run) {
  const std::vector<float> want = scores.Run(MqaLogitsReference);
  const std::vector<float> got = scores.Run(run);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << i;
    } else {
      EXPECT_NEAR(got[i], want[i], 1e-5 * std::fabs(want[i]) + 1e-3) << i;
    }
  }
}

TEST(MqaLogits, WritesTheRangeAndFillsAsFarAsAsked) {
  Scores scores;
  const std::vector<float> logits = scores.Run(MqaLogitsReference);
  for (int64_t row = 0; row < Scores::kRows; ++row) {
    const KeyRange& range = scores.problem().ranges[row];
    for (int64_t n = 0; n < Scores::kWidth; ++n) {
      const float logit = logits[row * Scores::kWidth + n];
      SCOPED_TRACE(::testing::Message() << "row " << row << " column " << n);
      if (n >= range.begin && n < range.end) {
        EXPECT_TRUE(std::isfinite(logit));
        EXPECT_NE(logit, Scores::kUntouched);
      } else if (n < scores.problem().filled[row]) {
        EXPECT_EQ(logit, -HUGE_VALF);
      } else {
        EXPECT_EQ(logit, Scores::kUntouched);
      }
    }
  }
}

TEST(MqaLogits, VectorsGiveTheReferenceAndWriteNoMore) {
  Scores scores;
  ForEachSimdTarget([&] {
    ExpectScores(scores, [](const MqaLogitsProblem& problem) {
      Scratch scratch;
      MqaLogitsHwy(problem, &scratch);
    });
  });
}

TEST(MqaLogits, TilesGiveTheReferenceAndWriteNoMore) {
  if (!testing::HasTestableBf16Unit()) GTEST_SKIP() << "no unit for bfloat16 here";
  Scores scores;
  ForEachBf16Unit([&] {
    ExpectScores(scores, [](const MqaLogitsProblem& problem) {
      Scratch scratch;
      MqaLogitsTiles(problem, &scratch);
    });
  });
}

// Long enough to be cut among threads, at other places for each number of them.
TEST(MqaLogits, GiveTheSameBitsOnAnyNumberOfThreads) {
  constexpr int64_t kKeys = 20000, kBlocks = kKeys / 8, kHeads = 5, kSize = 64;
  std::mt19937 random(4);
  const auto code = [&] { return static_cast<uint8_t>(random() % 0x50 | random() % 2 << 7); };
  std::vector<uint8_t> q(2 * kHeads * kSize), cache(kBlocks * 8 * (kSize + 4));
  std::generate(q.begin(), q.end(), code);
  std::generate(cache.begin(), cache.end(), code);
  for (int64_t key = 0; key < kKeys; ++key) {
    const float scale = key % 3 == 0 ? -0.5f : 0.25f;
    std::memcpy(&cache[key / 8 * 8 * (kSize + 4) + 8 * kSize + key % 8 * 4], &scale, 4);
  }
  const std::vector<float> weights(2 * kHeads, 0.75f);
  std::vector<int32_t> table(kBlocks);
  std::iota(table.begin(), table.end(), 0);
  MqaLogitsProblem problem;
  problem.q = q.data();
  problem.weights = weights.data();
  problem.rows = 2;
  problem.sequences = {0, 0};
  problem.heads = kHeads;
  problem.head_size = kSize;
  problem.keys.data = cache.data();
  problem.keys.scales = cache.data() + 8 * kSize;
  problem.keys.num_blocks = kBlocks;
  problem.keys.block_size = 8;
  problem.keys.data_strides = {.block = 8 * (kSize + 4), .row = kSize};
  problem.keys.scale_strides = {.block = 8 * (kSize + 4), .row = 4};
  problem.block_table = table.data();
  problem.table_columns = kBlocks;
  problem.width = kKeys;
  problem.ranges = {{0, kKeys}, {7, kKeys - 5}};
  problem.filled = {kKeys, kKeys};
  const auto on_threads = [&](int size) {
    ThreadPool pool(size);
    const ScopedWorkerPool scope(&pool);
    std::vector<float> logits(2 * kKeys);
    problem.logits = logits.data();
    Scratch scratch;
    (HasBf16Tiles() ? MqaLogitsTiles : MqaLogitsHwy)(problem, &scratch);
    return logits;
  };
  ForEachSimdTarget([&] {
    const std::vector<float> alone = on_threads(1);
    for (int size : {2, 3}) EXPECT_EQ(on_threads(size), alone) << size << " threads";
  });
}

// Two sequences of 40 and 25 keys, all of whose queries are there; whole numbers, so that scores are
// exact.
struct ChoiceInstance {
  static constexpr int64_t kHeads = 3, kSize = 8, kTopK = 5;
  std::vector<float> q, keys, weights;
  std::vector<int32_t> table;
  KeyChoice choice;

  ChoiceInstance() {
    constexpr int64_t kLengths[] = {40, 25}, kBlock = 8, kColumns = 5;
    std::mt19937 random(5);
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(count);
      for (float& value : values) value = static_cast<float>(random() % 5) - 2;
    };
    const int64_t rows = kLengths[0] + kLengths[1];
    fill(q, rows * kHeads * kSize);
    fill(keys, 2 * kColumns * kBlock * kSize);
    fill(weights, rows * kHeads);
    for (int32_t i = 0; i < 2 * kColumns; ++i) table.push_back((i * 3 + 1) % (2 * kColumns));
    MqaLogitsProblem& scores = choice.scores;
    scores.query_type = scores.key_type = DataType::kFloat;
    scores.q = reinterpret_cast<const uint8_t*>(q.data());
    scores.weights = weights.data();
    scores.rows = rows;
    scores.heads = kHeads;
    scores.head_size = kSize;
    const int64_t row_bytes = kSize * static_cast<int64_t>(sizeof(float));
    scores.keys = PlainRows(row_bytes, {2 * kColumns, kBlock, kBlock * row_bytes}, keys.data());
    scores.block_table = table.data();
    scores.table_columns = kColumns;
    for (int32_t b = 0; b < 2; ++b) {
      for (int64_t i = 0; i < kLengths[b]; ++i) {
        scores.sequences.push_back(b);
        scores.ranges.push_back({0, i + 1});
        choice.columns.push_back({i / 4, i + 1});
      }
    }
    choice.topk = kTopK;
  }

  template <typename Choose>
  std::vector<int32_t> Indices(int64_t score_bytes, const Choose& choose) {
    std::vector<int32_t> indices(choice.scores.rows * kTopK, -7);
    choice.indices = indices.data();
    choice.score_bytes = score_bytes;
    Scratch scratch;
    choose(choice, &scratch);
    return indices;
  }
};

TEST(KeyChoice, IsTheSameHoweverFewScoresAreKept) {
  ChoiceInstance instance;
  const std::vector<int32_t> want = instance.Indices(int64_t{1} << 30, ChooseKeysPlain);
  EXPECT_EQ(std::count(want.begin(), want.end(), -7), 0);
  for (const int64_t bytes : {1, 7 * 40 * 4, 64 * 40 * 4, 1 << 20}) {
    EXPECT_EQ(instance.Indices(bytes, ChooseKeysPlain), want) << bytes;
    ForEachSimdTarget([&] {
      const auto with_vectors = [](const KeyChoice& choice, Scratch* scratch) {
        ChooseKeys(choice, MqaLogitsHwy, scratch);
      };
      EXPECT_EQ(instance.Indices(bytes, with_vectors), want) << bytes;
    });
  }
}

}  // namespace
}  // namespace pagefuse::pagefuse_ops
