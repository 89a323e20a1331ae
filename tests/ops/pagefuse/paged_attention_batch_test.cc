// SPDX-License-Identifier: Apache-2.0
// What must not change a sequence's result: the batch around it, threads, chunks of its prompt,
// values it does not see.
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "must.h"
#include "paged_attention_instance.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse::testing {
namespace {

// Rows [first, last) of a [T, ...] tensor as bytes.
std::string Rows(const Tensor& tensor, int64_t first, int64_t last) {
  const int64_t row = tensor.byte_size() / tensor.dims()[0];
  return {static_cast<const char*>(tensor.data()) + first * row,
          static_cast<size_t>((last - first) * row)};
}

// The call for sequence b alone, over the same caches; its first `skip` query tokens left out.
PagedAttentionInstance Alone(const PagedAttentionInstance& batch, const PagedAttentionSpec& spec,
                             int64_t b, int64_t skip = 0) {
  PagedAttentionSpec alone_spec = spec;
  alone_spec.sequences = {spec.sequences[b]};
  PagedAttentionInstance alone(alone_spec);
  const int64_t begin = batch.inputs[3].values<int32_t>()[b] + skip;
  const int64_t end = batch.inputs[3].values<int32_t>()[b + 1];
  alone.inputs[0] =
      *Tensor::Allocate(batch.inputs[0].dtype(), {end - begin, spec.heads, spec.head_size});
  const std::string rows = Rows(batch.inputs[0], begin, end);
  std::memcpy(alone.inputs[0].mutable_data(), rows.data(), rows.size());
  for (int i : {1, 2, 9, 10}) alone.inputs[i] = batch.inputs[i];
  alone.inputs[3] = Tensor::Of<int32_t>({2}, {0, static_cast<int32_t>(end - begin)});
  const int64_t columns = batch.inputs[5].dims()[1];
  const auto table = batch.inputs[5].values<int32_t>().subspan(b * columns, columns);
  alone.inputs[5] = Tensor::Of<int32_t>({1, columns}, {table.begin(), table.end()});
  return alone;
}

std::string Output(const PagedAttentionInstance& instance, const std::string& kernel = "hwy") {
  const auto outputs = Must(instance.Run(kernel));
  return Rows(outputs[0], 0, outputs[0].dims()[0]);
}

PagedAttentionSpec BatchSpec(KvQuantMode mode, DataType cache) {
  return {.mode = mode,
          .cache = cache,
          .heads = 6,
          .kv_heads = 2,
          .head_size = 64,
          .sequences = {{1, 700}, {19, 60}, {1, 33}, {70, 200}, {1, 1500}, {2, 90}},
          .window = 600,
          .softcap = 30,
          .seed = 7};
}

TEST(PagedAttentionBatch, GivesTheSameBitsAsEachSequenceAlone) {
  struct Types {
    DataType query;
    KvQuantMode mode;
    DataType cache;
  };
  for (const Types& types :
       {Types{DataType::kFloat, KvQuantMode::kNone, DataType::kFloat},
        Types{DataType::kFloat, KvQuantMode::kInt8PerTokenHead, DataType::kInt8},
        Types{DataType::kBfloat16, KvQuantMode::kInt8PerTokenHead, DataType::kInt8}}) {
    PagedAttentionSpec spec = BatchSpec(types.mode, types.cache);
    spec.query = types.query;
    const PagedAttentionInstance batch(spec);
    ForEachSimdTarget([&] {
      const auto whole = Must(batch.Run("hwy"));
      for (int64_t b = 0; b < static_cast<int64_t>(spec.sequences.size()); ++b) {
        const auto starts = batch.inputs[3].values<int32_t>();
        EXPECT_EQ(Output(Alone(batch, spec, b)), Rows(whole[0], starts[b], starts[b + 1])) << b;
      }
    });
  }
}

TEST(PagedAttentionBatch, GivesTheSameBitsOnAnyNumberOfThreads) {
  const PagedAttentionInstance batch(BatchSpec(KvQuantMode::kNone, DataType::kFloat));
  const auto on_threads = [&](int n) {
    ThreadPool pool(n);
    const ScopedWorkerPool scope(&pool);
    return Output(batch);
  };
  const std::string one = on_threads(1);
  for (int n : {2, 3, 8}) EXPECT_EQ(on_threads(n), one) << n << " threads";
}

TEST(PagedAttentionBatch, GivesTheSameBitsForAPromptInChunks) {
  const PagedAttentionSpec spec = BatchSpec(KvQuantMode::kNone, DataType::kFloat);
  const PagedAttentionInstance batch(spec);
  const auto whole = Must(batch.Run("hwy"));
  const auto starts = batch.inputs[3].values<int32_t>();
  for (int64_t skip : {1, 24, 50}) {
    EXPECT_EQ(Output(Alone(batch, spec, 3, skip)), Rows(whole[0], starts[3] + skip, starts[4]));
  }
}

// A NaN or an infinity in a later key and value of the same sequence, which causal rows before it
// do not see.
TEST(PagedAttentionBatch, KeepsLaterValuesOutOfEarlierRows) {
  PagedAttentionSpec spec{.heads = 4, .kv_heads = 1, .sequences = {{40, 70}}};
  for (float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    PagedAttentionInstance instance(spec);
    const auto clean = Must(instance.Run("hwy"));
    const int64_t position = 55;  // of query row 25
    const int64_t block = instance.inputs[5].values<int32_t>()[position / 16];
    for (int cache : {1, 2}) {
      instance.inputs[cache].mutable_values<float>()[(block * 16 + position % 16) * 64 + 3] =
          poison;
    }
    ForEachSimdTarget([&] {
      const auto got = Must(instance.Run("hwy"));
      const int64_t row = 4 * 64;
      const Tensor head = *Tensor::View(DataType::kFloat, {25 * row}, got[0].buffer());
      const Tensor want = *Tensor::View(DataType::kFloat, {25 * row}, clean[0].buffer());
      EXPECT_LE(WorstError(head, want, 2e-5, 6e-6), 1);
    });
  }
}

TEST(PagedAttentionBatch, NeverTouchesBlocksThatNoRowSees) {
  PagedAttentionSpec spec{.sequences = {{1, 500}, {10, 400}}, .window = 40};
  PagedAttentionInstance instance(spec);
  const std::string want = Output(instance);
  // Blocks behind the window of the first query token are gone.
  const int64_t columns = instance.inputs[5].dims()[1];
  std::span<int32_t> table = instance.inputs[5].mutable_values<int32_t>();
  for (int64_t i = 0; i < (500 - 40) / 16; ++i) table[i] = -1;
  for (int64_t i = 0; i < (390 - 39) / 16; ++i) table[columns + i] = -1;
  EXPECT_EQ(Output(instance), want);
  EXPECT_EQ(Output(instance, "reference").size(), want.size());
}

}  // namespace
}  // namespace pagefuse::testing
