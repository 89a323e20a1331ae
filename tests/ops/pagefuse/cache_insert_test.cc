// SPDX-License-Identifier: Apache-2.0
// PagedCacheInsert and RopeCacheInsert beyond golden data: every kernel against the row codec of
// the cache format, against a twin in double, and against each other.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "run_op.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::OpCall;
using testing::RunOp;

constexpr int64_t kTokens = 9, kHeads = 2, kBlocks = 3, kBlockSize = 4;

struct InsertCase {
  std::string name;
  KvQuantMode mode;
  DataType source;
  DataType cache;
  int64_t head_size = 40;
  std::string rounding = "half_even";
};

std::vector<InsertCase> InsertCases() {
  using enum DataType;
  using enum KvQuantMode;
  return {{"none_float", kNone, kFloat, kFloat},
          {"none_bfloat16", kNone, kBfloat16, kBfloat16},
          {"none_float_to_float16", kNone, kFloat, kFloat16},
          {"none_float16_to_float8", kNone, kFloat16, kFloat8E4M3FN},
          {"fp8_tensor", kFp8PerTensor, kBfloat16, kFloat8E4M3FN},
          {"fp8_tensor_uint8", kFp8PerTensor, kFloat, kUint8},
          {"int8", kInt8PerTokenHead, kFloat16, kInt8},
          {"int8_toward_zero", kInt8PerTokenHead, kFloat, kInt8, 33, "toward_zero"},
          {"fp8_head", kFp8PerTokenHead, kBfloat16, kFloat8E4M3FN, 72},
          {"fp8_head_uint8", kFp8PerTokenHead, kFloat, kUint8}};
}

// Random tensors of one insert, caches filled with noise.
class Tensors {
 public:
  explicit Tensors(uint32_t seed) : random_(seed) {}

  Tensor Normal(DataType type, std::vector<int64_t> dims) {
    Tensor tensor = *Tensor::Allocate(type, dims);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> values(tensor.size());
    for (float& v : values) v = normal(random_);
    EXPECT_TRUE(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
    return tensor;
  }
  Tensor Noise(DataType type, std::vector<int64_t> dims) {
    Tensor tensor = *Tensor::Allocate(type, dims);
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data());
    for (int64_t i = 0; i < tensor.byte_size(); ++i) bytes[i] = static_cast<uint8_t>(random_());
    return tensor;
  }

 private:
  std::mt19937 random_;
};

struct Insert {
  OpCall call;
  CacheFormat format;
};

// Slots in no order, with padding, and slot 5 twice: token 7 wins over token 1.
const std::vector<int64_t> kSlots = {11, 5, -1, 0, 8, -7, 3, 5, 2};

Insert MakeInsert(const InsertCase& c) {
  Tensors tensors(5);
  Insert insert;
  insert.format = *CacheFormat::Make(c.mode, c.cache);
  if (c.rounding == "toward_zero") insert.format.int8_rounding = Int8Rounding::kTowardZero;
  const Tensor scale_cache = tensors.Noise(DataType::kFloat, {kBlocks, kBlockSize, kHeads});
  const bool rows = insert.format.has_row_scales();
  const bool tensor_scale = insert.format.has_tensor_scale();
  insert.call.op = "PagedCacheInsert";
  insert.call.inputs = {tensors.Normal(c.source, {kTokens + 2, kHeads, c.head_size}),
                        tensors.Normal(c.source, {kTokens + 2, kHeads, c.head_size}),
                        tensors.Noise(c.cache, {kBlocks, kBlockSize, kHeads, c.head_size}),
                        tensors.Noise(c.cache, {kBlocks, kBlockSize, kHeads, c.head_size}),
                        Tensor::Of<int64_t>({kTokens}, kSlots),
                        tensor_scale ? Tensor::Scalar(0.03f) : Tensor(),
                        tensor_scale ? Tensor::Of<float>({1}, {0.07f}) : Tensor(),
                        rows ? scale_cache : Tensor(),
                        rows ? *scale_cache.Clone() : Tensor()};
  insert.call.attributes = {{"kv_quant_mode", std::string(KvQuantModeName(c.mode))},
                            {"int8_rounding", c.rounding}};
  insert.call.num_outputs = rows ? 4 : 2;
  return insert;
}

// What the caches hold after the insert: the definition of a row, put where slots say, token by
// token.
std::vector<Tensor> ExpectedCaches(const Insert& insert) {
  const auto& in = insert.call.inputs;
  std::vector<Tensor> caches = {*in[2].Clone(), *in[3].Clone()};
  if (insert.format.has_row_scales()) {
    caches.push_back(*in[7].Clone());
    caches.push_back(*in[8].Clone());
  }
  const int64_t size = in[0].dims()[2];
  const CacheShape shape = {kBlocks, kBlockSize, kHeads, size};
  for (int side = 0; side < 2; ++side) {
    const bool scales = insert.format.has_row_scales();
    const CacheRows rows = DenseRows(insert.format, shape, caches[side].mutable_data(),
                                     scales ? caches[2 + side].mutable_data() : nullptr);
    RowParams params;
    if (in[5].defined()) params.tensor_scale = in[5 + side].values<float>()[0];
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t head = 0; head < kHeads && kSlots[t] >= 0; ++head) {
        std::vector<float> x(size);
        const int64_t at = (t * kHeads + head) * size * BitWidth(in[side].dtype()) / 8;
        const auto* source = static_cast<const uint8_t*>(in[side].data()) + at;
        EXPECT_TRUE(DecodeToFloat(in[side].dtype(), source, size, x.data()).ok());
        EncodeRow(insert.format, params, x.data(), size, rows.AtSlot(kSlots[t], head));
      }
    }
  }
  return caches;
}

class PagedCacheInsertTest : public ::testing::TestWithParam<InsertCase> {};

TEST_P(PagedCacheInsertTest, PutsTheRowsOfTheFormatIntoTheirSlotsAndNothingElse) {
  const Insert insert = MakeInsert(GetParam());
  const std::vector<Tensor> expected = ExpectedCaches(insert);
  ForEachRun(insert.call, [&](const std::vector<Tensor>& caches) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(caches[i].IdenticalTo(expected[i])) << "output " << i;
    }
  });
}

TEST_P(PagedCacheInsertTest, LeavesTheCachesAloneWithoutTokens) {
  Insert insert = MakeInsert(GetParam());
  for (const std::vector<int64_t>& slots : {std::vector<int64_t>{}, {-1, -1}}) {
    insert.call.inputs[4] = Tensor::Of<int64_t>({static_cast<int64_t>(slots.size())}, slots);
    const auto caches = Must(RunOp(insert.call));
    EXPECT_TRUE(caches[0].IdenticalTo(insert.call.inputs[2]));
    EXPECT_TRUE(caches[1].IdenticalTo(insert.call.inputs[3]));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PagedCacheInsertTest, ::testing::ValuesIn(InsertCases()),
                         [](const auto& info) { return info.param.name; });

TEST(PagedCacheInsert, TakesOneFp8ScaleForEachHead) {
  Insert insert =
      MakeInsert({"", KvQuantMode::kFp8PerTensor, DataType::kFloat, DataType::kFloat8E4M3FN});
  insert.call.inputs[5] = Tensor::Of<float>({kHeads}, {0.5f, 2});
  const auto caches = Must(RunOp(insert.call, {.force_kernel = "hwy"}));
  const float* key = insert.call.inputs[0].values<float>().data();
  const auto codes = caches[0].values<uint8_t>();
  // Token 0 went to slot 11.
  EXPECT_EQ(codes[(11 * kHeads + 0) * 40], EncodeFloat<E4M3FNFormat>(key[0] / 0.5f));
  EXPECT_EQ(codes[(11 * kHeads + 1) * 40], EncodeFloat<E4M3FNFormat>(key[40] / 2));
}

std::string ErrorOf(const OpCall& call) {
  const auto result = RunOp(call);
  return result.ok() ? "" : std::string(result.status().message());
}

TEST(PagedCacheInsert, NamesTheInputThatIsWrong) {
  const Insert good =
      MakeInsert({"", KvQuantMode::kInt8PerTokenHead, DataType::kFloat, DataType::kInt8, 16});
  const auto with = [&](int input, Tensor tensor) {
    OpCall call = good.call;
    call.inputs[input] = std::move(tensor);
    return ErrorOf(call);
  };
  Tensors tensors(1);
  const std::string at = "node \"n\" (pagefuse.PagedCacheInsert): ";
  EXPECT_EQ(with(1, tensors.Normal(DataType::kFloat, {kTokens, 3, 16})),
            at + "input 1 \"value\": expected [T', Hk, Dv] with T' = 11 of \"key\", Hk = 2 of "
                 "\"key\", got [9, 3, 16]");
  EXPECT_EQ(with(0, tensors.Normal(DataType::kFloat, {kTokens, 16})),
            at + "input 0 \"key\": expected [T', Hk, D] with T' = 11 of \"value\", Hk = 2 of "
                 "\"value\", got [9, 16]");
  EXPECT_EQ(with(7, tensors.Noise(DataType::kFloat, {3, 4, 1})),
            at +
                "input 7 \"k_scale_cache\": expected [NB, BS, Hk] with NB = 3 of \"key_cache\", BS "
                "= 4 of \"key_cache\", Hk = 2 of \"key\", got [3, 4, 1]");
  EXPECT_EQ(with(8, Tensor()), at + "input 8 \"v_scale_cache\": is missing with "
                                    "kv_quant_mode = int8_per_token_head");
  EXPECT_EQ(
      with(4, Tensor::Of<int64_t>({12}, std::vector<int64_t>(12, 1))),
      at + "input 4 \"slot_mapping\": expected [T], T <= T' with T' = 11 of \"key\", got [12]");
  EXPECT_EQ(with(4, Tensor::Of<int64_t>({2}, {0, 12})),
            at + "input 4 \"slot_mapping\": expected slots below 12 (3 blocks of 4), got 12 at 1");
  OpCall without_scales = good.call;
  without_scales.num_outputs = 2;
  EXPECT_EQ(ErrorOf(without_scales), at + "output 2 \"k_scale_cache_out\": is missing with "
                                          "kv_quant_mode = int8_per_token_head");
  OpCall rounding = good.call;
  rounding.attributes[1].second = std::string("up");
  EXPECT_EQ(ErrorOf(rounding),
            at + "attribute \"int8_rounding\": expected half_even or toward_zero, got \"up\"");
}

TEST(PagedCacheInsert, RefusesScalesThatAreNotPositive) {
  Insert insert =
      MakeInsert({"", KvQuantMode::kFp8PerTensor, DataType::kFloat, DataType::kFloat8E4M3FN});
  for (const float scale : {0.0f, -1.0f, INFINITY, NAN}) {
    insert.call.inputs[6] = Tensor::Scalar(scale);
    const absl::Status status = RunOp(insert.call).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("input 6 \"v_scale\": expected a finite positive"),
              std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace pagefuse
