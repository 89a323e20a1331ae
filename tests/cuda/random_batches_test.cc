// SPDX-License-Identifier: Apache-2.0
// Attention over paged caches on the device, on random batches: sizes, formats, masks and lengths that take
// all ways through its kernels.
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device_case.h"
#include "device_op.h"
#include "settings.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/paged_attention_instance.h"
#include "pagefuse/turboquant_instance.h"

namespace pagefuse {

namespace pagefuse_ops {
OpCases PagedAttentionCases();
OpCases TurboQuantAttentionCases();
OpCases TurboQuantInsertCases();
OpCases TurboQuantDequantCases();
}  // namespace pagefuse_ops

namespace {

using testing::PagedAttentionInstance;
using testing::PagedAttentionSpec;
using testing::SequenceSpec;
using testing::TurboQuantInputs;
using testing::TurboQuantSpec;

constexpr int kBatches = 200;
constexpr std::chrono::seconds kMostTime(15);  // of a test

template <typename T>
T OneOf(std::mt19937_64& random, std::initializer_list<T> choices) {
  return std::data(choices)[random() % choices.size()];
}
bool Chance(std::mt19937_64& random, int percent) {
  return static_cast<int>(random() % 100) < percent;
}
int64_t Between(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Decodes, prefills and sequences without a token or a key; `most`: of the keys of one.
std::vector<SequenceSpec> RandomSequences(std::mt19937_64& random, int64_t most) {
  std::vector<SequenceSpec> sequences(static_cast<size_t>(Between(random, 1, 7)));
  const bool decode = Chance(random, 50);
  for (SequenceSpec& s : sequences) {
    s.length = Chance(random, 10) ? 0 : Between(random, 1, Chance(random, 30) ? most : 90);
    s.queries = decode || Chance(random, 40) ? 1 : Between(random, 0, 40);
  }
  return sequences;
}

// Groups and head sizes, some of which only a general kernel takes.
template <class Spec>
void SetHeads(std::mt19937_64& random, int64_t unit, Spec& spec) {
  spec.kv_heads = OneOf<int64_t>(random, {1, 2, 8});
  spec.heads = spec.kv_heads * OneOf<int64_t>(random, {1, 2, 4, 4, 8, 3});
  spec.head_size = OneOf<int64_t>(random, {64, 128, 128, 256, unit * 9});
  spec.block_size = OneOf<int64_t>(random, {16, 16, 32, 64, 8, 5});
}

PagedAttentionSpec RandomAttention(uint64_t seed) {
  using enum DataType;
  using enum KvQuantMode;
  std::mt19937_64 random(seed);
  PagedAttentionSpec spec;
  spec.seed = seed;
  spec.query = OneOf(random, {kFloat, kFloat16, kBfloat16});
  spec.mode = OneOf(random, {kNone, kNone, kFp8PerTensor, kInt8PerTokenHead, kFp8PerTokenHead,
                             kInt4PerTokenHead});
  const DataType types[] = {spec.query, kFloat8E4M3FN, kInt8, kUint8, kUint8};
  spec.cache = types[static_cast<int>(spec.mode)];
  if (spec.mode == kNone && Chance(random, 30)) spec.cache = kBfloat16;
  SetHeads(random, 8, spec);
  if (spec.mode == kInt4PerTokenHead) spec.head_size = OneOf<int64_t>(random, {32, 64, 128});
  spec.sequences = RandomSequences(random, 1500);
  spec.causal = !Chance(random, 10);
  if (Chance(random, 40)) spec.window = Between(random, 1, 200);
  if (spec.window > 8 && Chance(random, 20)) spec.lookback = Between(random, 0, 3);
  if (Chance(random, 20)) spec.softcap = 3;
  spec.sink = Chance(random, 25);
  spec.alibi = Chance(random, 15);
  spec.alibi_sqrt = spec.alibi && Chance(random, 50);
  spec.qq_bias = Chance(random, 10);
  spec.causal_flags = Chance(random, 10);
  spec.lse = Chance(random, 50);
  spec.broken = Chance(random, 15);
  if (spec.broken && Chance(random, 70)) spec.nan_value = 0.5f;
  return spec;
}

// What tensor cores take: many tokens of a sequence, over rows of 16 bits, behind keys of earlier steps or not.
PagedAttentionSpec RandomPrompts(uint64_t seed) {
  using enum DataType;
  std::mt19937_64 random(seed);
  PagedAttentionSpec spec = RandomAttention(seed);
  spec.mode = KvQuantMode::kNone;
  spec.cache = OneOf(random, {kFloat16, kBfloat16});
  spec.query = Chance(random, 40) ? kFloat : spec.cache;
  spec.kv_heads = OneOf<int64_t>(random, {1, 2});
  spec.heads = spec.kv_heads * OneOf<int64_t>(random, {1, 2, 4, 4, 8, 3});
  spec.head_size = OneOf<int64_t>(random, {64, 128, 256});
  spec.alibi = spec.alibi_sqrt = spec.qq_bias = false;
  const int64_t most = OneOf<int64_t>(random, {5, 40, 150});
  for (SequenceSpec& s : spec.sequences) {
    s.queries = Chance(random, 25) ? 1 : Between(random, 0, most);
    s.length = s.queries + (Chance(random, 50) ? Between(random, 1, 600) : 0);
    if (Chance(random, 10)) s.length = Between(random, 0, 30);
  }
  return spec;
}

// Log-sum-exps of 16-bit queries are of keys that a kernel need not round to their type.
Tolerance WithinOf(DataType query) {
  if (query == DataType::kFloat) return {.rtol = 2e-5, .atol = 2e-5};
  if (query == DataType::kFloat16) return {.rtol = 1e-3, .atol = 1e-3};
  return {.rtol = 4e-3, .atol = 4e-3};
}

OpCase CaseOf(const PagedAttentionSpec& spec) {
  const PagedAttentionInstance instance(spec);
  OpCase op_case{.name = StrCat("seed ", spec.seed), .inputs = instance.inputs};
  while (!op_case.inputs.back().defined()) op_case.inputs.pop_back();
  for (const auto& [name, attribute] : instance.node->attributes()) {
    op_case.attributes.emplace_back(name, attribute.value);
  }
  op_case.num_outputs = spec.lse ? 2 : 1;
  op_case.within = WithinOf(spec.query);
  return op_case;
}

TurboQuantSpec RandomSlots(uint64_t seed) {
  std::mt19937_64 random(seed);
  TurboQuantSpec spec;
  spec.seed = seed;
  spec.key_bits = OneOf(random, {3, 4, 4, 8});
  spec.value_bits = OneOf(random, {3, 4, 4});
  spec.norm_correction = Chance(random, 50);
  spec.type = OneOf(random, {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16});
  SetHeads(random, 8, spec);
  const bool power = (spec.head_size & (spec.head_size - 1)) == 0;
  spec.rotation = spec.key_bits != 8 && (!power || Chance(random, 30));
  spec.centroids = spec.rotation && Chance(random, 50);
  spec.padding = OneOf<int64_t>(random, {0, 0, 2, 10});
  spec.padding += spec.format().SlotBytes() % 2;
  spec.sequences = RandomSequences(random, 1500);
  if (Chance(random, 30)) spec.window = Between(random, 1, 200);
  if (Chance(random, 20)) spec.softcap = 3;
  spec.sinks = Chance(random, 20);
  spec.lse = Chance(random, 40);
  return spec;
}

OpCase CaseOf(const TurboQuantSpec& spec, TurboQuantInputs call, int num_outputs) {
  OpCase op_case{.name = StrCat("seed ", spec.seed), .inputs = std::move(call.inputs)};
  while (!op_case.inputs.back().defined()) op_case.inputs.pop_back();
  for (auto& [name, value] : call.attributes) op_case.attributes.emplace_back(name, value);
  op_case.num_outputs = num_outputs;
  op_case.within = WithinOf(spec.type);
  return op_case;
}

// As many as there is time for.
template <class Make>
void CheckBatches(const OpCases& table, const Make& make) {
  if (TestSettings().sanitize) GTEST_SKIP() << "the smallest cases are enough";
  ASSERT_TRUE(DeviceIsWell());
  const OpDef& op = *OpRegistry::Global().Find(table.domain(), table.op(), 1);
  if (!HasDeviceKernel(op)) GTEST_SKIP() << "no kernel on the device";
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  for (uint64_t seed = 1; seed <= kBatches; ++seed) {
    if (std::chrono::steady_clock::now() > end) break;
    const OpCase op_case = make(seed);
    CaseNode call(op, table, op_case);
    if (!InferOutputs(op, call).ok()) continue;
    CheckOnDevice(op, table, op_case, CaseKind::kRandom);
  }
}

TEST(RandomBatches, OfPagedAttention) {
  CheckBatches(pagefuse_ops::PagedAttentionCases(),
               [](uint64_t seed) { return CaseOf(RandomAttention(seed)); });
}

TEST(RandomBatches, OfPrompts) {
  CheckBatches(pagefuse_ops::PagedAttentionCases(),
               [](uint64_t seed) { return CaseOf(RandomPrompts(seed)); });
}

TEST(RandomBatches, OfTurboQuantAttention) {
  CheckBatches(pagefuse_ops::TurboQuantAttentionCases(), [](uint64_t seed) {
    const TurboQuantSpec spec = RandomSlots(seed);
    return CaseOf(spec, AttentionInputs(spec), spec.lse ? 2 : 1);
  });
}

TEST(RandomBatches, OfTurboQuantInsert) {
  CheckBatches(pagefuse_ops::TurboQuantInsertCases(), [](uint64_t seed) {
    const TurboQuantSpec spec = RandomSlots(seed);
    return CaseOf(spec, InsertInputs(spec), 1);
  });
}

TEST(RandomBatches, OfTurboQuantDequant) {
  CheckBatches(pagefuse_ops::TurboQuantDequantCases(), [](uint64_t seed) {
    const TurboQuantSpec spec = RandomSlots(seed);
    return CaseOf(spec, DequantInputs(spec), 2);
  });
}

}  // namespace
}  // namespace pagefuse
