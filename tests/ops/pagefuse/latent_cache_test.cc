// SPDX-License-Identifier: Apache-2.0
// The ops of DeepSeek's caches together: what is put in comes back out, and a row of NaN or
// infinity stays alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

Tensor Normal(DataType type, std::vector<int64_t> dims, uint32_t seed, float deviation = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Tensor tensor = *Tensor::Allocate(type, std::move(dims));
  std::vector<float> values(tensor.size());
  for (float& v : values) v = normal(random);
  EXPECT_TRUE(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
  return tensor;
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  EXPECT_TRUE(DecodeToFloat(tensor.dtype(), tensor.data(), tensor.size(), values.data()).ok());
  return values;
}

// Zeros, as a cache starts.
Tensor Zeros(DataType type, std::vector<int64_t> dims) {
  Tensor tensor = *Tensor::Allocate(type, std::move(dims));
  std::memset(tensor.mutable_data(), 0, tensor.byte_size());
  return tensor;
}

Tensor RunOne(const OpCall& call, const std::string& kernel) {
  const std::vector<Tensor> outputs = Must(RunOp(call, {.force_kernel = kernel}));
  return outputs.back();
}

// Tokens 0..8 of one request in blocks of 4; the table names the blocks 2, 0, 1.
const std::vector<int64_t> kSlots = {8, 9, 10, 11, 0, 1, 2, 3, 4};
constexpr int64_t kTokens = 9;

// |got - want| is at most half a step of e4m3fn under a scale that fits the group: a part of 2^-4
// of a normal number, half of 2^-9 of the scale below; the bfloat16 of the result adds nothing to
// its four bits, but may to a product with a scale that is no power of two.
void ExpectQuantised(const std::vector<float>& got, const std::vector<float>& want, int64_t group,
                     int64_t coded, int64_t size) {
  for (int64_t start = 0; start < static_cast<int64_t>(want.size()); start += size) {
    for (int64_t g = 0; g < coded; g += group) {
      const float* x = want.data() + start + g;
      float amax = 0;
      for (int64_t i = 0; i < group; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float largest_scale = 2 * std::max(amax, kCacheScaleFloor) / 448;
      for (int64_t i = 0; i < group; ++i) {
        const float bound =
            std::max(std::fabs(x[i]) * (0x1p-4f + 0x1p-8f), largest_scale * 0x1p-10f);
        ASSERT_NEAR(got[start + g + i], x[i], bound) << start << " + " << g + i;
      }
    }
    for (int64_t i = coded; i < size; ++i) ASSERT_EQ(got[start + i], want[start + i]);
  }
}

TEST(LatentCache, KeysComeBack) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  const Tensor keys = Normal(DataType::kBfloat16, {kTokens, 512}, 1);
  for (const char* kernel : {"reference", "hwy"}) {
    ForEachSimdTarget([&] {
      const Tensor cache = RunOne({"KCacheQuantInsert",
                                   {keys, Tensor::Of<int64_t>({kTokens}, kSlots),
                                    Zeros(DataType::kUint8, {3, GroupedBlockBytes(format, 4)})},
                                   {{"block_size", int64_t{4}}}},
                                  kernel);
      const Tensor workspace =
          RunOne({"KCacheDequantGather",
                  {Zeros(DataType::kBfloat16, {1, kTokens, 512}), cache,
                   Tensor::Of<int32_t>({1}, {kTokens}), Tensor::Of<int32_t>({1, 3}, {2, 0, 1})},
                  {{"block_size", int64_t{4}}}},
                 kernel);
      ExpectQuantised(FloatsOf(workspace), FloatsOf(keys), 64, 448, 512);
    });
  }
}

TEST(LatentCache, LatentRowsComeBack) {
  const Tensor latent = Normal(DataType::kBfloat16, {kTokens, 512}, 1);
  const Tensor rotated = Normal(DataType::kBfloat16, {kTokens, 64}, 2);
  std::vector<float> want;
  const std::vector<float> a = FloatsOf(latent);
  const std::vector<float> b = FloatsOf(rotated);
  for (int64_t t = 0; t < kTokens; ++t) {
    want.insert(want.end(), a.begin() + t * 512, a.begin() + (t + 1) * 512);
    want.insert(want.end(), b.begin() + t * 64, b.begin() + (t + 1) * 64);
  }
  for (const char* kernel : {"reference", "hwy"}) {
    ForEachSimdTarget([&] {
      const Tensor cache = RunOne({"MlaCacheInsert",
                                   {latent, rotated, Tensor::Of<int64_t>({kTokens}, kSlots),
                                    Zeros(DataType::kUint8, {3, 4, 656})},
                                   {{"format", std::string("fp8_ds_mla")}}},
                                  kernel);
      const Tensor workspace =
          RunOne({"MlaGatherUpconvert",
                  {cache, Tensor::Of<int32_t>({1, 3}, {2, 0, 1}),
                   Tensor::Of<int32_t>({1}, {kTokens}), Tensor::Of<int32_t>({1}, {0})},
                  {}},
                 kernel);
      ExpectQuantised(FloatsOf(workspace), want, 128, 512, 576);
    });
  }
}

TEST(LatentCache, GatherOfNoRequestsHasNoRows) {
  for (const char* kernel : {"reference", "hwy"}) {
    const Tensor workspace =
        RunOne({"MlaGatherUpconvert",
                {Zeros(DataType::kUint8, {3, 4, 656}), Tensor::Of<int32_t>({0, 0}, {}),
                 Tensor::Of<int32_t>({0}, {}), Tensor::Of<int32_t>({0}, {})},
                {}},
               kernel);
    EXPECT_EQ(workspace.dims(), (std::vector<int64_t>{0, 576}));
  }
}

// An op with one token spoilt against the same op without: every other byte is the same.
struct Spoilt {
  std::string name;
  OpCall call;
  int input;                       // whose row 1 is spoilt
  std::vector<int64_t> row_bytes;  // by output: bytes of the rows that belong to token 1 ...
  std::vector<int64_t> row_start;  // ... and where they start
};

void PrintTo(const Spoilt& spoilt, std::ostream* os) { *os << spoilt.name; }

std::vector<Spoilt> SpoiltCalls() {
  const Tensor slots = Tensor::Of<int64_t>({3}, {0, 1, 2});
  const Tensor positions = Tensor::Of<int64_t>({3}, {0, 1, 2});
  const Tensor rows = Normal(DataType::kBfloat16, {3, 512}, 1);
  const Tensor heads = Normal(DataType::kBfloat16, {3, 2, 512}, 2);
  const Tensor table = Normal(DataType::kFloat, {3, 64}, 3);
  const std::pair<std::string, decltype(Attribute::value)> one_a_block = {"block_size", int64_t{1}};
  return {
      {"KCacheQuantInsert",
       {"KCacheQuantInsert", {rows, slots, Zeros(DataType::kUint8, {3, 584})}, {one_a_block}},
       0,
       {584},
       {584}},
      {"MlaCacheInsert",
       {"MlaCacheInsert",
        {rows, Normal(DataType::kBfloat16, {3, 64}, 4), slots,
         Zeros(DataType::kUint8, {3, 1, 656})},
        {{"format", std::string("fp8_ds_mla")}}},
       0,
       {656},
       {656}},
      {"InvRopeQuant",
       {"InvRopeQuant", {heads, positions, table}, {{"n_groups", int64_t{1}}}, 2},
       0,
       {1024, 32},
       {1024, 32}},
      {"QNormRopeKvInsert",
       {"QNormRopeKvInsert",
        {heads, rows, Zeros(DataType::kUint8, {3, 584}), slots, positions, table},
        {one_a_block},
        2},
       1,
       {0, 584},
       {0, 584}},
      {"CompressorStateInsert",
       {"CompressorStateInsert",
        {rows, rows, Normal(DataType::kFloat, {4, 512}, 5), positions, slots,
         Zeros(DataType::kFloat, {3, 1, 1024})},
        {{"compress_ratio", int64_t{4}}}},
       0,
       {4096},
       {4096}},
      {"CompressCacheInsert",
       {"CompressCacheInsert",
        {Normal(DataType::kFloat, {3, 1, 1024}, 6), Tensor::Of<int32_t>({3}, {0, 0, 0}), positions,
         slots, Tensor::Of<int32_t>({1, 3}, {0, 1, 2}), Normal(DataType::kFloat, {512}, 7), table,
         slots, Zeros(DataType::kUint8, {3, 584})},
        {{"compress_ratio", int64_t{1}}, {"overlap", int64_t{0}}, {"kv_block_size", int64_t{1}}}},
       0,
       {584},
       {584}}};
}

class SpoiltRow : public ::testing::TestWithParam<Spoilt> {};

TEST_P(SpoiltRow, TouchesNoOther) {
  const Spoilt& spoilt = GetParam();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    OpCall call = spoilt.call;
    Tensor& input = call.inputs[spoilt.input];
    input = *input.Clone();
    const int64_t row = input.size() / 3;
    std::vector<float> values = FloatsOf(input);
    for (int64_t i = 0; i < row; i += 7) values[row + i] = bad;
    ASSERT_TRUE(
        EncodeFromFloat(input.dtype(), values.data(), input.size(), input.mutable_data()).ok());
    for (const char* kernel : {"reference", "hwy"}) {
      ForEachSimdTarget([&] {
        const auto want = Must(RunOp(spoilt.call, {.force_kernel = kernel}));
        const auto got = Must(RunOp(call, {.force_kernel = kernel}));
        for (size_t i = 0; i < want.size(); ++i) {
          const auto* a = static_cast<const uint8_t*>(want[i].data());
          const auto* b = static_cast<const uint8_t*>(got[i].data());
          for (int64_t byte = 0; byte < want[i].byte_size(); ++byte) {
            const int64_t from = spoilt.row_start[i];
            if (byte >= from && byte < from + spoilt.row_bytes[i]) continue;
            ASSERT_EQ(a[byte], b[byte]) << kernel << ", output " << i << ", byte " << byte;
          }
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SpoiltRow, ::testing::ValuesIn(SpoiltCalls()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagefuse
