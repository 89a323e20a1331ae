// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert against a twin in double, and against PagedCacheInsert where it rotates nothing.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "run_op.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::ForEachSimdTarget;
using testing::OpCall;
using testing::RunOp;

constexpr int64_t kTokens = 7, kQueryHeads = 4, kHeads = 2, kBlocks = 2, kBlockSize = 4;

struct RopeCase {
  std::string name;
  DataType type = DataType::kFloat;
  int64_t head_size = 64;
  int64_t rotary_dim = 0;
  int64_t offset = 0;
  bool interleaved = false;
  bool norm = false;
  bool positions = true;
};

std::vector<RopeCase> RopeCases() {
  using enum DataType;
  return {{"float_half_split"},
          {"float_interleaved", kFloat, 64, 0, 0, true},
          {"float_norm", kFloat, 80, 0, 0, false, true},
          {"bfloat16_norm_interleaved", kBfloat16, 128, 0, 0, true, true},
          {"float16_rows_of_tables", kFloat16, 96, 0, 0, false, false, false},
          {"bfloat16_first_channels", kBfloat16, 64, 22},
          {"float_last_channels", kFloat, 50, 18, 32, true},
          {"float16_odd_sizes", kFloat16, 34, 6, 3, false, true}};
}

// Named ports, since there are many.
struct Ports {
  Tensor query, key, value, key_cache, value_cache, slots, positions, cos, sin, q_norm, k_norm;

  OpCall Call(const RopeCase& c) const {
    return {"RopeCacheInsert",
            {query, key, value, key_cache, value_cache, slots, positions, cos, sin, q_norm, k_norm},
            {{"interleaved", int64_t{c.interleaved}},
             {"rotary_embedding_dim", c.rotary_dim},
             {"rotary_offset", c.offset},
             {"epsilon", 1e-5f}},
            3};
  }
};

class Maker {
 public:
  Tensor Normal(DataType type, std::vector<int64_t> dims) {
    std::normal_distribution<float> normal(0, 1);
    return Filled(type, std::move(dims), [&] { return normal(random_); });
  }
  template <typename Next>
  Tensor Filled(DataType type, std::vector<int64_t> dims, const Next& next) {
    Tensor tensor = *Tensor::Allocate(type, std::move(dims));
    std::vector<float> values(tensor.size());
    for (float& v : values) v = next();
    EXPECT_TRUE(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
    return tensor;
  }

 private:
  std::mt19937 random_{3};
};

Ports MakePorts(const RopeCase& c) {
  Maker make;
  const int64_t pairs = (c.rotary_dim == 0 ? c.head_size : c.rotary_dim) / 2;
  const int64_t rows = c.positions ? 11 : kTokens;
  Ports ports;
  ports.query = make.Normal(c.type, {kTokens, kQueryHeads, c.head_size});
  ports.key = make.Normal(c.type, {kTokens, kHeads, c.head_size});
  ports.value = make.Normal(c.type, {kTokens, kHeads, 24});
  ports.key_cache = make.Normal(c.type, {kBlocks, kBlockSize, kHeads, c.head_size});
  ports.value_cache = make.Normal(c.type, {kBlocks, kBlockSize, kHeads, 24});
  ports.slots = Tensor::Of<int64_t>({kTokens}, {6, -1, 2, 3, 0, 7, 1});
  if (c.positions) ports.positions = Tensor::Of<int64_t>({kTokens}, {0, 3, 10, 1, 7, 7, 5});
  int64_t i = 0;
  const auto angle = [&] {
    const double turns =
        std::pow(0.7, static_cast<double>(i % pairs)) * static_cast<double>(i / pairs);
    ++i;
    return turns;
  };
  ports.cos = make.Filled(DataType::kFloat, {rows, pairs}, [&] { return std::cos(angle()); });
  i = 0;
  ports.sin = make.Filled(DataType::kFloat, {rows, pairs}, [&] { return std::sin(angle()); });
  if (c.norm) {
    ports.q_norm = make.Normal(c.type, {c.head_size});
    ports.k_norm = make.Normal(c.type, {c.head_size});
  }
  return ports;
}

std::vector<double> Doubles(const Tensor& tensor) {
  std::vector<double> values(tensor.defined() ? tensor.size() : 0);
  if (tensor.defined()) {
    EXPECT_TRUE(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()).ok());
  }
  return values;
}

// One element of the twin, and the size of what was added to get it: where terms cancel, float
// arithmetic is only good to a part of that.
struct Exact {
  double value;
  double terms;
};

// Norm and rotation of head `head` of token `t` in double.
std::vector<Exact> Twin(const RopeCase& c, const Ports& ports, const Tensor& source,
                        const Tensor& weight, int64_t t, int64_t head) {
  const int64_t heads = source.dims()[1];
  const std::vector<double> all = Doubles(source);
  const auto first = all.begin() + (t * heads + head) * c.head_size;
  std::vector<double> x(first, first + c.head_size);
  if (weight.defined()) {
    double sum = 0;
    for (double v : x) sum += v * v;
    const std::vector<double> w = Doubles(weight);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(c.head_size) + double{1e-5f});
    for (int64_t d = 0; d < c.head_size; ++d) x[d] *= factor * w[d];
  }
  std::vector<Exact> out;
  for (double v : x) out.push_back({v, std::fabs(v)});
  const std::vector<double> cos = Doubles(ports.cos);
  const std::vector<double> sin = Doubles(ports.sin);
  const int64_t pairs = ports.cos.dims()[1];
  const int64_t row = ports.positions.defined() ? ports.positions.values<int64_t>()[t] : t;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t a = c.offset + (c.interleaved ? 2 * i : i);
    const int64_t b = c.interleaved ? a + 1 : a + pairs;
    const double cs = cos[row * pairs + i];
    const double sn = sin[row * pairs + i];
    out[a] = {x[a] * cs - x[b] * sn, std::fabs(x[a] * cs) + std::fabs(x[b] * sn)};
    out[b] = {x[b] * cs + x[a] * sn, std::fabs(x[b] * cs) + std::fabs(x[a] * sn)};
  }
  return out;
}

// Units in the last place of `type` at x.
double UlpOf(DataType type, double x) {
  const int mantissa = type == DataType::kFloat ? 23 : type == DataType::kFloat16 ? 10 : 7;
  return std::ldexp(1.0, std::max(std::ilogb(x), -14) - mantissa);
}

void ExpectNear(const RopeCase& c, double got, const Exact& want, const std::string& where) {
  const double units = c.norm ? 4 : 2;
  const double cancelled = want.terms * std::ldexp(units, -23);
  const double bound = c.type == DataType::kFloat ? units * UlpOf(c.type, want.value) + cancelled
                                                  : UlpOf(c.type, want.value) * 1.01 + cancelled;
  EXPECT_LE(std::fabs(got - want.value), bound)
      << where << ": expected " << want.value << ", got " << got;
}

class RopeCacheInsert : public ::testing::TestWithParam<RopeCase> {};

TEST_P(RopeCacheInsert, AgreesWithItsTwinInDouble) {
  const RopeCase& c = GetParam();
  const Ports ports = MakePorts(c);
  ForEachRun(ports.Call(c), [&](const std::vector<Tensor>& outputs) {
    const std::vector<double> query = Doubles(outputs[0]);
    const std::vector<double> cache = Doubles(outputs[1]);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t head = 0; head < kQueryHeads; ++head) {
        const auto want = Twin(c, ports, ports.query, ports.q_norm, t, head);
        for (int64_t d = 0; d < c.head_size; ++d) {
          ExpectNear(c, query[(t * kQueryHeads + head) * c.head_size + d], want[d], "query");
        }
      }
      const int64_t slot = ports.slots.values<int64_t>()[t];
      for (int64_t head = 0; head < kHeads && slot >= 0; ++head) {
        const auto want = Twin(c, ports, ports.key, ports.k_norm, t, head);
        for (int64_t d = 0; d < c.head_size; ++d) {
          ExpectNear(c, cache[(slot * kHeads + head) * c.head_size + d], want[d], "key");
        }
      }
    }
  });
}

TEST_P(RopeCacheInsert, KernelsAgreeByteForByteWithoutNorms) {
  RopeCase c = GetParam();
  c.norm = false;
  const OpCall call = MakePorts(c).Call(c);
  const auto reference = Must(RunOp(call, {.force_kernel = "reference"}));
  ForEachSimdTarget([&] {
    const auto fast = Must(RunOp(call, {.force_kernel = "hwy"}));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(fast[i].IdenticalTo(reference[i])) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, RopeCacheInsert, ::testing::ValuesIn(RopeCases()),
                         [](const auto& info) { return info.param.name; });

// Scales of the two sides, from the port after the norm weights on.
OpCall QuantisedCall(const RopeCase& c, const Ports& ports, const std::string& mode) {
  OpCall call = ports.Call(c);
  const bool fp8_tensor = mode == "fp8_per_tensor";
  const DataType type = mode == "int8_per_token_head" ? DataType::kInt8 : DataType::kFloat8E4M3FN;
  call.inputs[3] = *Tensor::Allocate(type, ports.key_cache.dims());
  call.inputs[4] = *Tensor::Allocate(type, ports.value_cache.dims());
  const Tensor scale = fp8_tensor ? Tensor::Scalar(0.01f) : Tensor();
  const Tensor scales =
      fp8_tensor ? Tensor() : *Tensor::Allocate(DataType::kFloat, {kBlocks, kBlockSize, kHeads});
  call.inputs.insert(call.inputs.end(), {scale, scale, scales, scales});
  call.attributes.emplace_back("kv_quant_mode", mode);
  call.num_outputs = fp8_tensor ? 3 : 5;
  return call;
}

TEST(RopeCacheInsertModes, WithoutRotationItIsPagedCacheInsert) {
  const RopeCase c;
  Ports ports = MakePorts(c);
  Maker make;
  ports.cos = make.Filled(DataType::kFloat, ports.cos.dims(), [] { return 1.0f; });
  ports.sin = make.Filled(DataType::kFloat, ports.sin.dims(), [] { return 0.0f; });
  for (const std::string mode : {"fp8_per_tensor", "int8_per_token_head", "fp8_per_token_head"}) {
    SCOPED_TRACE(mode);
    const OpCall rope = QuantisedCall(c, ports, mode);
    const auto& in = rope.inputs;
    const OpCall insert = {"PagedCacheInsert",
                           {in[1], in[2], in[3], in[4], in[5], in[11], in[12], in[13], in[14]},
                           {{"kv_quant_mode", mode}},
                           rope.num_outputs - 1};
    const auto expected = Must(RunOp(insert, {.force_kernel = "reference"}));
    ForEachSimdTarget([&] {
      const auto got = Must(RunOp(rope, {.force_kernel = "hwy"}));
      EXPECT_TRUE(got[0].IdenticalTo(ports.query));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(got[i + 1].IdenticalTo(expected[i])) << "cache " << i;
      }
    });
  }
}

// Codes at a rounding border may differ, by one step: at most one of 10000.
TEST(RopeCacheInsertModes, KernelsAndTheUnfusedChainGiveTheSameCodes) {
  const RopeCase c{.name = "", .type = DataType::kBfloat16, .norm = true};
  const OpCall call = QuantisedCall(c, MakePorts(c), "int8_per_token_head");
  const auto chain = Must(RunOp(call, {.force_kernel = "", .decompose = true}));
  const auto want = chain[1].values<int8_t>();
  for (const char* kernel : {"reference", "hwy"}) {
    SCOPED_TRACE(kernel);
    const auto outputs = Must(RunOp(call, {.force_kernel = kernel}));
    const auto got = outputs[1].values<int8_t>();
    int64_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_LE(std::abs(got[i] - want[i]), 1);
      different += got[i] != want[i];
    }
    EXPECT_LE(different, static_cast<int64_t>(want.size()) / 10000);
  }
}

TEST(RopeCacheInsertModes, DropsKeysPastTheTokensOfTheQuery) {
  const RopeCase c;
  const Ports ports = MakePorts(c);
  OpCall longer = ports.Call(c);
  Maker make;
  for (const int input : {1, 2}) {
    const Tensor& rows = longer.inputs[input];
    Tensor more = make.Normal(c.type, {kTokens + 3, kHeads, rows.dims()[2]});
    std::copy_n(rows.values<float>().data(), rows.size(), more.mutable_values<float>().data());
    longer.inputs[input] = more;
  }
  const auto want = Must(RunOp(ports.Call(c)));
  for (const EvaluateOptions& options :
       {EvaluateOptions{}, EvaluateOptions{.force_kernel = "reference"},
        EvaluateOptions{.force_kernel = "", .decompose = true}}) {
    const auto got = Must(RunOp(longer, options));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(got[i].IdenticalTo(want[i])) << i;
  }
}

TEST(RopeCacheInsertErrors, NameTheInputOrAttribute) {
  const RopeCase c{.name = "", .norm = true};
  const Ports good = MakePorts(c);
  const auto error = [&](const OpCall& call) {
    const auto result = RunOp(call);
    return result.ok() ? std::string() : std::string(result.status().message());
  };
  const std::string at = "node \"n\" (pagefuse.RopeCacheInsert): ";
  const auto with = [&](int input, Tensor tensor) {
    OpCall call = good.Call(c);
    call.inputs[input] = std::move(tensor);
    return error(call);
  };
  const auto with_attribute = [&](int index, int64_t value) {
    OpCall call = good.Call(c);
    call.attributes[index].second = value;
    return error(call);
  };
  EXPECT_EQ(with(6, Tensor::Of<int64_t>({kTokens}, {0, 0, 0, 11, 0, 0, 0})),
            at + "input 6 \"positions\": expected positions in [0, 11), got 11 at 3");
  EXPECT_EQ(with(9, Tensor()), at + "input 9 \"q_norm_weight\": is missing with \"k_norm_weight\"");
  EXPECT_EQ(with(10, Tensor::Of<float>({2}, {1, 1})),
            at + "input 10 \"k_norm_weight\": expected [D] with D = 64 of \"query\", got [2]");
  EXPECT_EQ(with(8, *Tensor::Allocate(DataType::kFloat, {10, 32})),
            at + "input 8 \"sin\": expected the shape of \"cos\", [11, 32], got [10, 32]");
  EXPECT_EQ(with(7, *Tensor::Allocate(DataType::kFloat, {11, 31})),
            at + "input 7 \"cos\": expected [P, R/2] with R = 64, \"positions\", got [11, 31]");
  EXPECT_EQ(
      with(6, Tensor()),
      at + "input 7 \"cos\": expected [T, R/2] with T = 7 of \"query\", R = 64, no \"positions\", "
           "got [11, 32]");
  EXPECT_EQ(with(1, *Tensor::Allocate(DataType::kFloat, {kTokens, kHeads, 32})),
            at + "input 1 \"key\": expected [T', Hk, D] with D = 64 of \"query\", got [7, 2, 32]");
  EXPECT_EQ(with_attribute(1, 7),
            at + "input 0 \"query\": expected [T, Hq, D], R % 2 = 0 with R = 7, got [7, 4, 64]");
  EXPECT_EQ(with_attribute(2, 2),
            at + "input 0 \"query\": expected [T, Hq, D], R + rotary_offset <= D with R = 64, "
                 "\"rotary_offset\" = 2, got [7, 4, 64]");
}

}  // namespace
}  // namespace pagefuse
