// SPDX-License-Identifier: Apache-2.0
// The TurboQuant ops together: every mix of bits, and what the format loses.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "simd_targets.h"
#include "turboquant_instance.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::testing {
namespace {

std::vector<TurboQuantSpec> AllMixes() {
  std::vector<TurboQuantSpec> specs;
  for (const int key_bits : {3, 4, 8}) {
    for (const int value_bits : {3, 4}) {
      for (const bool correct : {false, true}) {
        specs.push_back(
            {.key_bits = key_bits, .value_bits = value_bits, .norm_correction = correct});
      }
    }
  }
  return specs;
}

std::string NameOf(const TurboQuantSpec& spec) {
  return StrCat("k", spec.key_bits, "v", spec.value_bits, spec.norm_correction ? "_nc" : "", " D ",
                spec.head_size);
}

std::vector<Tensor> MustRun(const TurboQuantNode& node, const std::string& kernel) {
  return Must(node.Run(kernel));
}

// How far rows and their logarithms of sums may be from what is expected.
struct Bounds {
  double row = 2e-5, row_floor = 1.2e-5;
  double lse = 1e-5, lse_floor = 2e-5;
};

void ExpectNear(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                const Bounds& bounds = {}) {
  EXPECT_LE(WorstError(got[0], want[0], bounds.row, bounds.row_floor), 1);
  EXPECT_LE(WorstError(got[1], want[1], bounds.lse, bounds.lse_floor), 1);
}

// Attention on every SIMD target against the reference.
void ExpectKernelsAgree(const TurboQuantInputs& call, const Bounds& bounds = {}) {
  const TurboQuantNode node("TurboQuantAttention", call, 2);
  const std::vector<Tensor> want = MustRun(node, "reference");
  ForEachSimdTarget([&] { ExpectNear(MustRun(node, "hwy"), want, bounds); });
}

TEST(TurboQuantAttention, KernelsAgreeForEveryMixAndHeadSize) {
  for (TurboQuantSpec spec : AllMixes()) {
    for (const int64_t size : {64, 80, 96, 128, 192, 256}) {
      spec.head_size = size;
      spec.rotation = (size & (size - 1)) != 0;
      spec.heads = size == 96 ? 10 : 4;
      spec.padding = size == 192 ? 4 : 0;
      spec.sequences = {{1, 150}, {1, 1}, {3, 70}};
      SCOPED_TRACE(NameOf(spec));
      ExpectKernelsAgree(AttentionInputs(spec));
    }
  }
}

// Kernels may compute with integers there: what those of 14 bits move a score, beside the output's
// rounding.
constexpr double kIntegerError = 2e-4;

TEST(TurboQuantAttention, KernelsAgreeOnSixteenBits) {
  for (TurboQuantSpec spec : AllMixes()) {
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      for (const int64_t size : {64, 96, 128, 256}) {
        spec.type = type;
        spec.head_size = size;
        spec.rotation = size == 96;
        spec.centroids = size == 64;
        spec.heads = size == 128 ? 14 : 4;
        spec.padding = size == 256 ? 4 : 0;
        spec.sequences = {{1, 150}, {1, 1}, {1, 1000}, {1, 0}};
        SCOPED_TRACE(StrCat(NameOf(spec), " ", DataTypeName(type)));
        const double rounding = type == DataType::kFloat16 ? 0x1p-10 : 0x1p-7;
        ExpectKernelsAgree(AttentionInputs(spec), {rounding, kIntegerError, 1e-5, kIntegerError});
      }
    }
  }
}

// Queries of all magnitudes, also where most of the weight is on one key; zeros; and a NaN.
TEST(TurboQuantAttention, QueriesOfAnyMagnitude) {
  for (TurboQuantSpec spec : AllMixes()) {
    spec.type = DataType::kBfloat16;
    spec.sequences = {{1, 300}, {1, 300}, {1, 300}, {1, 300}};
    SCOPED_TRACE(NameOf(spec));
    TurboQuantInputs call = AttentionInputs(spec);
    auto* query = static_cast<Bfloat16*>(call.inputs[0].mutable_data());
    const auto token = static_cast<size_t>(spec.heads * spec.head_size);
    for (size_t i = 0; i < token; ++i) {
      query[i] = Bfloat16(static_cast<float>(query[i]) * 20);
      query[token + i] = Bfloat16(static_cast<float>(query[token + i]) * 1e-38f);
      query[2 * token + i] = Bfloat16(0.0f);
    }
    query[3 * token + 70] = Bfloat16(NAN);  // of head 1
    // Of the scores of the first, twenty times as large.
    ExpectKernelsAgree(call, {0x1p-7, 20 * kIntegerError, 1e-5, 20 * kIntegerError});
  }
}

// Rotated queries of equal elements against nothing but the largest centroid: no sums are larger.
TEST(TurboQuantAttention, LargestSums) {
  for (TurboQuantSpec spec : AllMixes()) {
    if (spec.key_bits == 8) continue;
    for (const int64_t size : {64, 128, 512}) {
      spec.head_size = size;
      spec.type = DataType::kBfloat16;
      spec.sequences = {{1, 100}};
      SCOPED_TRACE(NameOf(spec));
      TurboQuantInputs call = AttentionInputs(spec);
      for (size_t i = 0; Bfloat16 & x : call.inputs[0].mutable_values<Bfloat16>()) {
        x = Bfloat16(i++ % static_cast<size_t>(size) == 0 ? 3.0f : 0.0f);
      }
      Tensor& cache = call.inputs[1];
      const int64_t slot = cache.dims().back();
      auto* bytes = static_cast<uint8_t*>(cache.mutable_data());
      for (int64_t i = 0; i < static_cast<int64_t>(cache.byte_size()); i += slot) {
        std::fill_n(bytes + i, size * spec.key_bits / 8, uint8_t{0xFF});
      }
      ExpectKernelsAgree(call, {0x1p-7, kIntegerError, 1e-4, kIntegerError});
    }
  }
}

std::vector<TurboQuantSpec> WithRules() {
  std::vector<TurboQuantSpec> specs;
  for (TurboQuantSpec spec : AllMixes()) {
    spec.window = spec.value_bits == 3 ? 20 : 0;
    spec.softcap = spec.norm_correction ? 3.0f : 0;
    spec.sinks = spec.key_bits != 4;
    specs.push_back(spec);
  }
  return specs;
}

TEST(TurboQuantAttention, KernelsAgreeOnWindowsSoftCapsAndSinks) {
  for (TurboQuantSpec spec : WithRules()) {
    spec.sequences = {{1, 150}, {1, 1}, {5, 70}, {40, 100}, {3, 3}};
    SCOPED_TRACE(NameOf(spec));
    const TurboQuantInputs call = AttentionInputs(spec);
    const TurboQuantNode node("TurboQuantAttention", call, 2);
    ExpectNear(MustRun(node, "decomposition"), MustRun(node, "reference"));
    ExpectKernelsAgree(call);
  }
}

// What it is to see but the last keys: a sequence of these alone gives the same, and the blocks of
// others may be gone.
TEST(TurboQuantAttention, WindowSeesTheLastKeysAlone) {
  for (TurboQuantSpec spec : AllMixes()) {
    spec.sequences = {{1, 64}};
    SCOPED_TRACE(NameOf(spec));
    TurboQuantInputs whole = AttentionInputs(spec);
    TurboQuantInputs last = whole;
    last.inputs[2] = Tensor::Of<int32_t>({1, 1}, {whole.inputs[2].values<int32_t>()[3]});
    last.inputs[3] = Tensor::Of<int32_t>({1}, {16});
    whole.attributes.emplace_back("sliding_window", int64_t{16});
    for (int i = 0; i < 3; ++i) whole.inputs[2].mutable_values<int32_t>()[i] = -1;
    const auto want = MustRun(TurboQuantNode("TurboQuantAttention", last, 2), "reference");
    for (const char* kernel : {"reference", "hwy"}) {
      SCOPED_TRACE(kernel);
      ExpectNear(MustRun(TurboQuantNode("TurboQuantAttention", whole, 2), kernel), want);
    }
  }
}

TEST(TurboQuantAttention, DecompositionAgreesForEveryMix) {
  for (TurboQuantSpec spec : AllMixes()) {
    spec.sequences = {{1, 20}, {2, 9}};
    SCOPED_TRACE(NameOf(spec));
    const TurboQuantNode node("TurboQuantAttention", AttentionInputs(spec), 2);
    ExpectNear(MustRun(node, "decomposition"), MustRun(node, "reference"));
  }
}

// A sequence's rows are the same to the last bit whatever is around it in the batch.
TEST(TurboQuantAttention, OtherSequencesDoNotMatter) {
  const std::vector<SequenceSpec> others = {{1, 900}, {2, 40}, {1, 0}};
  for (TurboQuantSpec spec : AllMixes()) {
    SCOPED_TRACE(NameOf(spec));
    spec.type = spec.value_bits == 3 ? DataType::kFloat : DataType::kBfloat16;
    spec.sequences = {{1, 700}};
    const TurboQuantInputs alone = AttentionInputs(spec);
    spec.sequences.insert(spec.sequences.end(), others.begin(), others.end());
    TurboQuantInputs together = AttentionInputs(spec);
    // The first token is the same one, over the same slots.
    const size_t row = alone.inputs[0].byte_size();
    std::memcpy(together.inputs[0].mutable_data(), alone.inputs[0].data(), row);
    const auto single = TurboQuantNode("TurboQuantAttention", alone, 1);
    const std::vector<Tensor> want = MustRun(single, "hwy");
    // Copies of the slots of the first sequence, at the blocks that it has here.
    const int64_t columns = together.inputs[2].dims()[1];
    const auto block_bytes =
        static_cast<int64_t>(alone.inputs[1].byte_size()) / alone.inputs[1].dims()[0];
    for (int64_t i = 0; i < alone.inputs[2].dims()[1] && i < columns; ++i) {
      const auto* from = static_cast<const uint8_t*>(alone.inputs[1].data());
      auto* to = static_cast<uint8_t*>(together.inputs[1].mutable_data());
      std::memcpy(to + together.inputs[2].values<int32_t>()[i] * block_bytes,
                  from + alone.inputs[2].values<int32_t>()[i] * block_bytes,
                  static_cast<size_t>(block_bytes));
    }
    const auto batch = TurboQuantNode("TurboQuantAttention", together, 1);
    const std::vector<Tensor> got = MustRun(batch, "hwy");
    EXPECT_EQ(std::memcmp(got[0].data(), want[0].data(), row), 0);
  }
}

TEST(TurboQuantInsert, KernelsGiveTheSameBytesForEveryMix) {
  for (TurboQuantSpec spec : AllMixes()) {
    for (const DataType type : {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16}) {
      for (const int64_t size : {64, 128, 256}) {
        spec.type = type;
        spec.head_size = size;
        spec.padding = size == 64 ? 2 : 0;
        spec.sequences = {{20, 20}};
        SCOPED_TRACE(NameOf(spec));
        const TurboQuantNode node("TurboQuantInsert", InsertInputs(spec), 1);
        const std::vector<Tensor> want = MustRun(node, "reference");
        ForEachSimdTarget([&] { EXPECT_TRUE(MustRun(node, "hwy")[0].IdenticalTo(want[0])); });
      }
    }
  }
}

TEST(TurboQuantInsert, NanSpoilsItsOwnRowsAlone) {
  TurboQuantSpec spec{.kv_heads = 1, .head_size = 32, .sequences = {{4, 4}}};
  TurboQuantInputs call = InsertInputs(spec);
  const std::vector<Tensor> clean = MustRun(TurboQuantNode("TurboQuantInsert", call, 1), "hwy");
  for (const int input : {0, 1}) call.inputs[input].mutable_values<float>()[2 * 32 + 7] = NAN;
  const std::vector<Tensor> spoilt = MustRun(TurboQuantNode("TurboQuantInsert", call, 1), "hwy");
  const int64_t slot = call.inputs[3].values<int64_t>()[2];
  const int64_t bytes = spec.format().SlotBytes();
  for (int64_t i = 0; i < clean[0].size(); ++i) {
    if (i / bytes == slot) continue;
    ASSERT_EQ(clean[0].values<uint8_t>()[i], spoilt[0].values<uint8_t>()[i]) << i;
  }
}

TEST(TurboQuantDequant, KernelsAgreeForEveryMix) {
  for (TurboQuantSpec spec : AllMixes()) {
    for (const int64_t inverse : {0, 1}) {
      for (const int64_t size : {64, 96, 128}) {
        spec.head_size = size;
        spec.rotation = size == 96;
        spec.sequences = {{1, 70}, {1, 3}};
        SCOPED_TRACE(NameOf(spec));
        TurboQuantInputs call = DequantInputs(spec);
        call.attributes.emplace_back("inverse_rotate", inverse);
        const TurboQuantNode node("TurboQuantDequant", call, 2);
        const std::vector<Tensor> want = MustRun(node, "reference");
        ForEachSimdTarget([&] {
          const std::vector<Tensor> got = MustRun(node, "hwy");
          const bool rotated = inverse != 0 && spec.key_bits != 8;
          EXPECT_LE(WorstError(got[0], want[0], rotated ? 2e-3 : 1e-3, rotated ? 1e-3 : 1e-7), 1);
          EXPECT_TRUE(got[1].IdenticalTo(want[1]));
        });
      }
    }
  }
}

// Attention over Gaussian rows, before and after they go through the cache.
double ErrorOnGaussianRows(const TurboQuantPreset& preset) {
  constexpr int64_t kKeys = 4096;
  constexpr int64_t kSize = 128;
  TurboQuantSpec spec{.key_bits = preset.key_bits,
                      .value_bits = preset.value_bits,
                      .norm_correction = preset.norm_correction,
                      .heads = 16,
                      .kv_heads = 1,
                      .head_size = kSize,
                      .sequences = {{kKeys, kKeys}}};
  TurboQuantInputs insert = InsertInputs(spec);
  std::vector<int64_t> slots(kKeys);
  for (int64_t j = 0; j < kKeys; ++j) slots[j] = j;
  insert.inputs[3] = Tensor::Of<int64_t>({kKeys}, slots);
  const auto keys = insert.inputs[0].values<float>();
  const auto values = insert.inputs[1].values<float>();

  spec.sequences = {{1, kKeys}};
  TurboQuantInputs attention = AttentionInputs(spec);
  attention.inputs[1] = MustRun(TurboQuantNode("TurboQuantInsert", insert, 1), "hwy")[0];
  for (int32_t i = 0; i < kKeys / 16; ++i) attention.inputs[2].mutable_values<int32_t>()[i] = i;
  const auto queries = attention.inputs[0].values<float>();
  const std::vector<Tensor> got =
      MustRun(TurboQuantNode("TurboQuantAttention", attention, 1), "hwy");
  double squared_error = 0;
  double squares = 0;
  for (int64_t h = 0; h < 16; ++h) {
    std::vector<double> o(kSize, 0);
    double sum = 0;
    for (int64_t j = 0; j < kKeys; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < kSize; ++d) {
        dot += static_cast<double>(queries[h * kSize + d]) * keys[j * kSize + d];
      }
      const double weight = std::exp(dot / std::sqrt(static_cast<double>(kSize)));
      sum += weight;
      for (int64_t d = 0; d < kSize; ++d) o[d] += weight * values[j * kSize + d];
    }
    for (int64_t d = 0; d < kSize; ++d) {
      const double exact = o[d] / sum;
      squared_error += std::pow(got[0].values<float>()[h * kSize + d] - exact, 2);
      squares += exact * exact;
    }
  }
  return std::sqrt(squared_error / squares);
}

TEST(TurboQuant, LosesWhatTheFormatLosesOnGaussianRows) {
  const double expected[] = {0.105, 0.139, 0.207, 0.279};
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(kTurboQuantPresets[i].name);
    EXPECT_NEAR(ErrorOnGaussianRows(kTurboQuantPresets[i]), expected[i], 0.12 * expected[i]);
  }
}

}  // namespace
}  // namespace pagefuse::testing
