// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention on random calls: vector kernels, with and without tiles, against the reference
// with the tolerances of the op, and what must not change a result.
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "op_run.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/sparse_mla_instance.h"

namespace pagefuse::testing {
namespace {

struct NamedSpec {
  std::string name;
  SparseMlaSpec spec;
};
void PrintTo(const NamedSpec& spec, std::ostream* os) { *os << spec.name; }

// Numbers of heads and rows around the sizes of tiles, steps and segments.
std::vector<NamedSpec> SizeSpecs() {
  std::vector<NamedSpec> specs;
  const auto add = [&](int64_t heads, int64_t columns) {
    specs.push_back({"heads_" + std::to_string(heads) + "_rows_" + std::to_string(columns),
                     {.heads = heads, .columns = columns, .holes = false}});
  };
  for (int64_t heads : {1, 15, 16, 17, 33, 48, 128}) add(heads, 100);
  for (int64_t columns : {1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 257, 513, 1600}) add(20, columns);
  for (int64_t columns : {65, 600, 1600}) add(5, columns);
  return specs;
}

std::vector<NamedSpec> FormatSpecs() {
  using enum DataType;
  const std::vector<SequenceSpec> mixed = {{1, 700}, {40, 300}, {0, 9}, {3, 2}, {1, 0}, {7, 7}};
  std::vector<NamedSpec> specs = {
      {"odd_sizes", {.heads = 19, .head_size = 35, .value_size = 17, .columns = 90}},
      {"value_is_row", {.heads = 32, .head_size = 64, .value_size = 64, .columns = 300}},
      {"tiny", {.heads = 2, .head_size = 1, .value_size = 1, .columns = 5}},
      {"published", {.heads = 16, .head_size = 576, .value_size = 512, .columns = 300}},
      {"many_tokens", {.tokens = 80, .columns = 600}},
      {"half", {.query = kFloat16, .heads = 40, .columns = 600, .extra_columns = 70}},
      {"float_q", {.query = kFloat, .columns = 600}},
      {"float", {.query = kFloat, .cache = kFloat, .heads = 25, .columns = 600}},
      {"bf16_q_float_cache", {.cache = kFloat, .heads = 25, .columns = 200}},
      {"bf16_q_half_cache", {.cache = kFloat16, .columns = 200}},
      {"dense", {.heads = 16, .lse = true, .sequences = mixed}},
      {"dense_one_head", {.heads = 1, .sequences = mixed}},
      {"dense_many_heads", {.heads = 130, .sequences = mixed}},
      {"dense_float", {.query = kFloat, .cache = kFloat, .sink = true, .sequences = mixed}},
      {"dense_all", {.heads = 30, .sequences = mixed, .causal = false}},
  };
  for (const std::string format : {"fp8_ds_mla", "fp8_ue8m0"}) {
    for (DataType query : {kBfloat16, kFloat16, kFloat}) {
      specs.push_back({format + "_" + std::string(DataTypeName(query)),
                       {.format = format,
                        .query = query,
                        .heads = 18,
                        .columns = 280,
                        .extra_columns = 50,
                        .lens = true,
                        .sink = true}});
    }
    specs.push_back({format + "_dense", {.format = format, .heads = 16, .sequences = mixed}});
  }
  return specs;
}

std::vector<NamedSpec> AllSpecs() {
  std::vector<NamedSpec> specs = SizeSpecs();
  for (NamedSpec& spec : FormatSpecs()) specs.push_back(std::move(spec));
  return specs;
}

std::vector<Tensor> RunKernel(const OpCase& op_case, std::string_view kernel_name) {
  const OpDef* op = OpRegistry::Global().Find("pagefuse", "SparseMlaAttention", 1);
  const OpCases table("pagefuse.SparseMlaAttention");
  CaseNode call(*op, table, op_case);
  for (const Kernel& kernel : op->kernels()) {
    if (kernel.name != kernel_name) continue;
    absl::StatusOr<std::vector<Tensor>> outputs = RunGuarded(*op, call, {.kernel = &kernel});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (outputs.ok()) return *std::move(outputs);
  }
  return {};
}

std::vector<double> Decoded(const Tensor& tensor) {
  std::vector<double> values(tensor.size());
  EXPECT_TRUE(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()).ok());
  return values;
}

double RelativeNorm(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = Decoded(got);
  const std::vector<double> b = Decoded(want);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? error : std::sqrt(error / norm);
}

void ExpectWithinSpec(const SparseMlaSpec& spec, const std::vector<Tensor>& got,
                      const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  if (spec.query == DataType::kFloat) {
    EXPECT_LE(WorstError(got[0], want[0], 2e-5, 1e-5), 1);
  } else {
    EXPECT_LE(WorstError(got[0], want[0], 1.0 / 256, kSparseMlaLargest / 512), 1);
    EXPECT_LE(RelativeNorm(got[0], want[0]), 1.0 / 256);
  }
  EXPECT_LE(WorstError(got[1], want[1], 1e-5, 1e-4), 1);
}

class RandomCalls : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(RandomCalls, KernelsAgreeWithReference) {
  const OpCase op_case = SparseMlaCase("random", GetParam().spec);
  const std::vector<Tensor> want = RunKernel(op_case, "reference");
  ForEachSimdTarget([&] { ExpectWithinSpec(GetParam().spec, RunKernel(op_case, "hwy"), want); });
}

INSTANTIATE_TEST_SUITE_P(All, RandomCalls, ::testing::ValuesIn(AllSpecs()),
                         [](const auto& info) { return info.param.name; });

// Sets every element of the row of `position` of the only sequence to NaN.
void PoisonRow(OpCase& op_case, int64_t position) {
  Tensor& cache = op_case.inputs[1];
  const int64_t block_size = cache.dims()[1];
  const int64_t size = cache.dims()[2];
  const int32_t block = op_case.inputs[8].values<int32_t>()[position / block_size];
  auto* row = static_cast<uint16_t*>(cache.mutable_data()) +
              (block * block_size + position % block_size) * size;
  std::fill_n(row, size, uint16_t{0x7FC0});
}

TEST(SparseMlaAttention, DenseRowThatIsNotFiniteReachesTheTokensThatSeeIt) {
  const SparseMlaSpec spec = {.heads = 16, .sequences = {{8, 100}}};
  OpCase op_case = SparseMlaCase("dense", spec);
  const std::vector<double> clean = Decoded(RunKernel(op_case, "reference")[0]);
  PoisonRow(op_case, 97);
  ForEachSimdTarget([&] {
    const std::vector<double> got = Decoded(RunKernel(op_case, "hwy")[0]);
    const size_t seen_from = static_cast<size_t>(5 * 16 * 24);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i >= seen_from) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], clean[i], kSparseMlaLargest / 256) << i;
      }
    }
  });
}

TEST(SparseMlaAttention, ThreadsDoNotChangeABit) {
  ThreadPool alone(1), three_threads(3);
  for (const int64_t tokens : {1, 3, 70}) {
    const OpCase op_case =
        SparseMlaCase("threads", {.heads = 17, .tokens = tokens, .columns = 1500});
    ForEachSimdTarget([&] {
      const auto run = [&](ThreadPool& pool) {
        const ScopedWorkerPool scope(&pool);
        return RunKernel(op_case, "hwy");
      };
      const std::vector<Tensor> one = run(alone);
      const std::vector<Tensor> three = run(three_threads);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].IdenticalTo(three[i]));
    });
  }
}

TEST(SparseMlaAttention, InfiniteSinksTakeNothingOrAll) {
  OpCase op_case = SparseMlaCase("sink", {.heads = 3, .sink = true});
  const float infinity = std::numeric_limits<float>::infinity();
  op_case.inputs[4] = Floats({3}, {-infinity, 0, infinity});
  OpCase without = op_case;
  without.inputs[4] = Tensor();
  const std::vector<double> plain = Decoded(RunKernel(without, "reference")[0]);
  for (const char* kernel : {"reference", "hwy"}) {
    const std::vector<Tensor> got = RunKernel(op_case, kernel);
    const std::vector<double> out = Decoded(got[0]);
    for (size_t t = 0; t < 3; ++t) {
      for (size_t d = 0; d < 24; ++d) {
        EXPECT_NEAR(out[t * 72 + d], plain[t * 72 + d], 0.02) << kernel;
        EXPECT_EQ(out[t * 72 + 48 + d], 0) << kernel;
      }
    }
  }
}

// Attention over all of a sequence's rows is attention over the list of them.
TEST(SparseMlaAttention, DenseRowsAreAListOfAllRows) {
  OpCase dense = SparseMlaCase("dense", {.heads = 5, .sequences = {{1, 50}}});
  OpCase listed = dense;
  listed.inputs.resize(3);
  const auto table = dense.inputs[8].values<int32_t>();
  std::vector<int64_t> slots;
  for (int64_t p = 0; p < 50; ++p) slots.push_back(table[p / 16] * 16 + p % 16);
  listed.inputs[2] = As(DataType::kInt32, Ints({1, 50}, slots));
  const std::vector<Tensor> a = RunKernel(dense, "hwy");
  const std::vector<Tensor> b = RunKernel(listed, "hwy");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].IdenticalTo(b[i]));
}

}  // namespace
}  // namespace pagefuse::testing
