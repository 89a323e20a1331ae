// SPDX-License-Identifier: Apache-2.0
// CompressCacheInsert and QNormRopeKvInsert against twins in double, at published sizes.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "run_op.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::ForEachSimdTarget;
using testing::OpCall;
using testing::RunOp;

Tensor Filled(DataType type, std::vector<int64_t> dims, uint32_t seed, float mean = 0,
              float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  Tensor tensor = *Tensor::Allocate(type, std::move(dims));
  std::vector<float> values(tensor.size());
  for (float& v : values) v = normal(random);
  EXPECT_TRUE(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
  return tensor;
}

std::vector<double> Doubles(const Tensor& tensor) {
  std::vector<double> values(tensor.size());
  EXPECT_TRUE(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()).ok());
  return values;
}

// Norm and rotation of the last channels, interleaved, in place.
void NormRotate(std::vector<double>& x, const std::vector<double>& weight, double eps,
                const double* cos_sin, int64_t rotated) {
  double sum = 0;
  for (double v : x) sum += v * v;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t d = 0; d < x.size(); ++d) x[d] *= factor * (weight.empty() ? 1 : weight[d]);
  for (int64_t i = 0; i < rotated / 2; ++i) {
    double& a = x[x.size() - rotated + 2 * i];
    double& b = x[x.size() - rotated + 2 * i + 1];
    const double c = cos_sin[i];
    const double s = cos_sin[rotated / 2 + i];
    const double first = a * c - b * s;
    b = b * c + a * s;
    a = first;
  }
}

struct Published {
  std::string name, format;
  int64_t ratio, overlap, size, state_block;
};
void PrintTo(const Published& p, std::ostream* os) { *os << p.name; }

class Compress : public ::testing::TestWithParam<Published> {
 protected:
  static constexpr int64_t kWindows = 3, kRotated = 64;

  // One request of kWindows windows; its state blocks lie in reverse.
  OpCall Call() const {
    const Published& p = GetParam();
    const int64_t blocks = kWindows * p.ratio / p.state_block;
    std::vector<int32_t> table(blocks);
    for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(blocks - 1 - i);
    std::vector<int64_t> positions, kv_slots;
    for (int64_t i = 0; i < kWindows; ++i) {
      positions.push_back((i + 1) * p.ratio - 1);
      kv_slots.push_back(kWindows - 1 - i);
    }
    const std::vector<int64_t> t = {kWindows};
    const int64_t row = 2 * (1 + p.overlap) * p.size;
    return {"CompressCacheInsert",
            {Filled(DataType::kFloat, {blocks, p.state_block, row}, 1, 0, 2),
             Tensor::Of<int32_t>(t, {0, 0, 0}), Tensor::Of<int64_t>(t, positions),
             Tensor::Of<int64_t>(t, {0, 0, 0}), Tensor::Of<int32_t>({1, blocks}, table),
             Filled(DataType::kBfloat16, {p.size}, 2, 1, 0.2f),
             Filled(DataType::kFloat, {kWindows * p.ratio, kRotated}, 3, 0, 0.6f),
             Tensor::Of<int64_t>(t, kv_slots), Cache()},
            {{"format", p.format},
             {"compress_ratio", p.ratio},
             {"overlap", p.overlap},
             {"kv_block_size", kWindows}}};
  }
  Tensor Cache() const {
    const Published& p = GetParam();
    if (p.format == "none") return Filled(DataType::kFloat, {1, kWindows, p.size}, 4);
    return Filled(DataType::kUint8, {1, GroupedBlockBytes(Format(), kWindows)}, 4, 90, 40);
  }
  GroupedRowFormat Format() const {
    const Published& p = GetParam();
    if (p.format == "fp8_ue8m0") return Fp8Ue8m0Row();
    return p.format == "indexer_fp8" ? IndexerFp8Row(p.size, p.size) : IndexerMxfp4Row(p.size);
  }
  // The row of window `w` before it is rounded.
  std::vector<double> Twin(const OpCall& call, int64_t w) const {
    const Published& p = GetParam();
    const std::vector<double> state = Doubles(call.inputs[0]);
    const std::vector<double> table = Doubles(call.inputs[6]);
    const int64_t half = (1 + p.overlap) * p.size;
    const int64_t last = (w + 1) * p.ratio - 1;
    const int64_t rows = (1 + p.overlap) * p.ratio;
    const int64_t blocks = kWindows * p.ratio / p.state_block;
    std::vector<double> y(p.size);
    for (int64_t d = 0; d < p.size; ++d) {
      double weights = 0;
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t position = last - rows + 1 + i;
        if (position < 0) continue;
        const int64_t block = blocks - 1 - position / p.state_block;
        const int64_t slot = block * p.state_block + position % p.state_block;
        const int64_t column = (p.overlap == 1 && i >= p.ratio ? p.size : 0) + d;
        const double weight = std::exp(state[slot * 2 * half + half + column]);
        weights += weight;
        sum += weight * state[slot * 2 * half + column];
      }
      y[d] = sum / weights;
    }
    NormRotate(y, Doubles(call.inputs[5]), double{1e-6f}, table.data() + w * p.ratio * kRotated,
               kRotated);
    return y;
  }
};

// The stored row is the twin's, rounded to bfloat16 and then to codes under the least power of two
// that fits: each element is off by half a step of its code (a part of 2^-4 of an e4m3fn number and
// of 2^-2 of an e2m1 one, half the least code below) and by the bfloat16 of the value. The tail is
// off by the bfloat16 alone; where terms cancelled, floats are good to a part of the row's largest.
TEST_P(Compress, AgreesWithItsTwinInDouble) {
  const GroupedRowFormat format = Format();
  const OpCall call = Call();
  const bool fp8 = format.groups.codes == GroupCodes::kE4M3;
  ForEachRun(call, [&](std::vector<Tensor> outputs) {
    Tensor& cache = outputs[0];
    const CacheRows rows =
        GroupedRows(format, {1, kWindows, cache.dims()[1]}, cache.mutable_data());
    for (int64_t w = 0; w < kWindows; ++w) {
      const std::vector<double> want = Twin(call, w);
      std::vector<float> got(want.size());
      DecodeGroupedRow(format, rows.AtSlot(kWindows - 1 - w, 0), got.data());
      for (int64_t d = 0; d < format.elements(); ++d) {
        const double cancelled = 1e-5;
        double bound = std::fabs(want[d]) * 0x1p-8 + cancelled;
        if (d < format.coded) {
          double amax = 0;
          const int64_t g = d / format.group * format.group;
          for (int64_t i = g; i < g + format.group; ++i) amax = std::max(amax, std::fabs(want[i]));
          const double largest = fp8 ? 448 : 6;
          const double scale = std::exp2(std::ceil(std::log2(amax * 1.005 / largest)));
          bound += std::max(std::fabs(want[d]) * (fp8 ? 0x1p-4 : 0x1p-2),
                            scale * (fp8 ? 0x1p-10 : 0.25));
        }
        ASSERT_NEAR(got[d], want[d], bound) << "window " << w << ", element " << d;
      }
    }
  });
}

// Floats in another order: scales are the same, and hardly a code differs, by one step.
TEST_P(Compress, KernelsAgree) {
  const OpCall call = Call();
  const auto reference = Must(RunOp(call, {.force_kernel = "reference"}));
  ForEachSimdTarget([&] {
    const auto outputs = Must(RunOp(call, {.force_kernel = "hwy"}));
    const auto* want = static_cast<const uint8_t*>(reference[0].data());
    const auto* got = static_cast<const uint8_t*>(outputs[0].data());
    int64_t differ = 0;
    for (int64_t i = 0; i < reference[0].byte_size(); ++i) differ += want[i] != got[i];
    EXPECT_LE(differ, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, Compress,
                         ::testing::Values(Published{"attention_4", "fp8_ue8m0", 4, 1, 512, 4},
                                           Published{"attention_128", "fp8_ue8m0", 128, 0, 512, 8},
                                           Published{"indexer_fp8", "indexer_fp8", 4, 1, 128, 4},
                                           Published{"indexer_mxfp4", "indexer_mxfp4", 4, 1, 128,
                                                     4}),
                         [](const auto& info) { return info.param.name; });

// Nothing is rounded but the sums: so choices by compressed index keys are those of the export.
using CompressToFloat = Compress;

TEST_P(CompressToFloat, AgreesWithItsTwinInDouble) {
  const OpCall call = Call();
  ForEachRun(call, [&](const std::vector<Tensor>& outputs) {
    const std::span<const float> got = outputs[0].values<float>();
    for (int64_t w = 0; w < kWindows; ++w) {
      const std::vector<double> want = Twin(call, w);
      const float* row = got.data() + (kWindows - 1 - w) * GetParam().size;
      for (size_t d = 0; d < want.size(); ++d) {
        ASSERT_NEAR(row[d], want[d], std::fabs(want[d]) * 2e-6 + 4e-6) << w << ", " << d;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, CompressToFloat,
                         ::testing::Values(Published{"attention_4", "none", 4, 1, 512, 4},
                                           Published{"attention_128", "none", 128, 0, 512, 8},
                                           Published{"indexer", "none", 4, 1, 128, 4}),
                         [](const auto& info) { return info.param.name; });

// Without rounding to bfloat16 anywhere.
TEST(QNormRopeKvInsert, FloatAgreesWithItsTwinInDouble) {
  constexpr int64_t kTokens = 3, kHeads = 4, kSize = 512, kRotated = 64;
  const OpCall call = {
      "QNormRopeKvInsert",
      {Filled(DataType::kFloat, {kTokens, kHeads, kSize}, 1, 0.5f, 2),
       Filled(DataType::kFloat, {kTokens, kSize}, 2), Filled(DataType::kFloat, {1, 4, kSize}, 3),
       Tensor::Of<int64_t>({kTokens}, {3, 1, 0}), Tensor::Of<int64_t>({kTokens}, {5, 0, 2}),
       Filled(DataType::kFloat, {8, kRotated}, 4)},
      {{"format", std::string("none")}, {"eps", 1e-3f}},
      2};
  const std::vector<double> query = Doubles(call.inputs[0]);
  const std::vector<double> kv = Doubles(call.inputs[1]);
  const std::vector<double> table = Doubles(call.inputs[5]);
  const auto rotated = [&](std::vector<double> x, int64_t token, bool norm) {
    const int64_t position = call.inputs[4].values<int64_t>()[token];
    double sum = 0;
    for (double v : x) sum += v * v;
    const double scale = std::sqrt(sum / kSize + double{1e-3f});
    NormRotate(x, {}, double{1e-3f}, table.data() + position * kRotated, kRotated);
    // The key row is not normed.
    if (!norm) std::for_each(x.begin(), x.end(), [&](double& v) { v *= scale; });
    return x;
  };
  ForEachRun(call, [&](const std::vector<Tensor>& outputs) {
    const auto check = [&](const float* got, const std::vector<double>& want) {
      for (int64_t d = 0; d < kSize; ++d) {
        ASSERT_NEAR(got[d], want[d], std::fabs(want[d]) * 1e-6 + 2e-6) << d;
      }
    };
    for (int64_t row = 0; row < kTokens * kHeads; ++row) {
      check(outputs[0].values<float>().data() + row * kSize,
            rotated({query.begin() + row * kSize, query.begin() + (row + 1) * kSize}, row / kHeads,
                    true));
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t slot = call.inputs[3].values<int64_t>()[t];
      check(outputs[1].values<float>().data() + slot * kSize,
            rotated({kv.begin() + t * kSize, kv.begin() + (t + 1) * kSize}, t, false));
    }
  });
}

TEST(QNormRopeKvInsert, QueryAgreesWithItsTwinInDouble) {
  constexpr int64_t kTokens = 4, kHeads = 5, kSize = 512, kRotated = 64;
  const OpCall call = {
      "QNormRopeKvInsert",
      {Filled(DataType::kBfloat16, {kTokens, kHeads, kSize}, 1, 0.5f, 2),
       Filled(DataType::kBfloat16, {kTokens, kSize}, 2),
       Filled(DataType::kUint8, {1, GroupedBlockBytes(Fp8Ue8m0Row(), 4)}, 3, 90),
       Tensor::Of<int64_t>({2}, {3, 1}), Tensor::Of<int64_t>({kTokens}, {5, 0, 2, 7}),
       Filled(DataType::kFloat, {8, kRotated}, 4)},
      {{"block_size", int64_t{4}}, {"eps", 1e-3f}},
      2};
  const std::vector<double> query = Doubles(call.inputs[0]);
  const std::vector<double> table = Doubles(call.inputs[5]);
  ForEachRun(call, [&](const std::vector<Tensor>& outputs) {
    const std::vector<double> got = Doubles(outputs[0]);
    for (int64_t row = 0; row < kTokens * kHeads; ++row) {
      std::vector<double> want(query.begin() + row * kSize, query.begin() + (row + 1) * kSize);
      const int64_t position = call.inputs[4].values<int64_t>()[row / kHeads];
      NormRotate(want, {}, double{1e-3f}, table.data() + position * kRotated, kRotated);
      for (int64_t d = 0; d < kSize; ++d) {
        ASSERT_NEAR(got[row * kSize + d], want[d], std::fabs(want[d]) * 0x1.01p-8 + 2e-6)
            << "row " << row << ", element " << d;
      }
    }
  });
}

}  // namespace
}  // namespace pagefuse
