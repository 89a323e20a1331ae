// Decoding over caches of integers with 16-bit queries, for which kernels may compute with 16-bit
// integers too.
#include <cmath>
#include <span>

#include "gtest/gtest.h"
#include "paged_attention_instance.h"
#include "simd_targets.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/numeric/small_float.h"

namespace pagefuse::testing {
namespace {

// What the integers move a score or a value of about 1, beside the output's rounding.
constexpr double kIntegerError = 2e-4;

std::vector<PagedAttentionSpec> IntegerSpecs() {
  using enum KvQuantMode;
  std::vector<PagedAttentionSpec> specs;
  for (const DataType query : {DataType::kFloat16, DataType::kBfloat16}) {
    for (const auto& [mode, cache] : {std::pair(kInt8PerTokenHead, DataType::kInt8),
                                      std::pair(kInt4PerTokenHead, DataType::kUint8)}) {
      specs.push_back({.query = query,
                       .mode = mode,
                       .cache = cache,
                       .sequences = {{1, 150}, {1, 1}, {1, 1000}, {1, 0}},
                       .lse = true});
    }
  }
  return specs;
}

std::string NameOf(const PagedAttentionSpec& spec) {
  return StrCat(DataTypeName(spec.query), " over ", DataTypeName(spec.cache), ", ", spec.heads,
                " heads of ", spec.head_size);
}

// The kernel against the reference on every target; scores are up to `largest`.
void ExpectAgreement(const PagedAttentionSpec& spec, const PagedAttentionInstance& instance,
                     double largest) {
  const double rounding = spec.query == DataType::kFloat16 ? 0x1p-10 : 0x1p-7;
  const double score_error = largest * kIntegerError;
  double output_error = score_error;
  if (spec.mode == KvQuantMode::kInt4PerTokenHead) {
    // Outputs are rounded before the transform back too, which spreads the step of a value of 2.
    output_error += 2 * rounding / std::sqrt(spec.head_size);
  }
  const auto want = instance.Run("reference");
  ASSERT_TRUE(want.ok()) << want.status();
  ForEachSimdTarget([&] {
    const auto got = instance.Run("hwy");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_LE(WorstError((*got)[0], (*want)[0], rounding, output_error), 1);
    EXPECT_LE(WorstError((*got)[1], (*want)[1], 1e-5, score_error), 1);
  });
}

template <typename T, typename F>
void ChangeElements(std::span<T> x, const F& f) {
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = T(f(static_cast<float>(x[i]), static_cast<int64_t>(i)));
  }
}

// Each element x of the query, the i-th, becomes f(x, i).
template <typename F>
void ChangeQuery(PagedAttentionInstance& instance, const F& f) {
  Tensor& query = instance.inputs[0];
  if (query.dtype() == DataType::kFloat16) {
    ChangeElements(query.mutable_values<Float16>(), f);
  } else {
    ChangeElements(query.mutable_values<Bfloat16>(), f);
  }
}

TEST(PagedAttentionIntegers, KernelsAgree) {
  for (PagedAttentionSpec spec : IntegerSpecs()) {
    const bool powers_of_two = spec.mode == KvQuantMode::kInt4PerTokenHead;
    // Those that only some vectors divide, and all groups of heads that share a step.
    for (const int64_t size : {32, 64, 80, 96, 128, 256, 512, 1024, 2048}) {
      if (powers_of_two && (size & (size - 1)) != 0) continue;
      for (const int64_t group : {1, 2, 3, 7}) {
        if (size > 256 && group > 2) continue;
        if (size > 256) spec.sequences = {{1, 70}, {1, 1}};
        spec.head_size = size;
        spec.kv_heads = 2;
        spec.heads = 2 * group;
        SCOPED_TRACE(NameOf(spec));
        ExpectAgreement(spec, PagedAttentionInstance(spec), 1);
      }
    }
  }
}

// Queries of all magnitudes, also where most of the weight is on one key; zeros; and a NaN.
TEST(PagedAttentionIntegers, QueriesOfAnyMagnitude) {
  for (PagedAttentionSpec spec : IntegerSpecs()) {
    spec.sequences = {{1, 300}, {1, 300}, {1, 300}, {1, 300}, {1, 300}};
    SCOPED_TRACE(NameOf(spec));
    PagedAttentionInstance instance(spec);
    const int64_t token = spec.heads * spec.head_size;
    const auto change = [&](int64_t sequence, auto f) {
      ChangeQuery(instance,
                  [&](float x, int64_t i) { return i / token == sequence ? f(x, i % token) : x; });
    };
    change(0, [](float x, int64_t) { return x * 20; });
    change(1, [](float x, int64_t) { return x * (1e-30f * 1e-8f); });
    change(2, [](float, int64_t) { return 0.0f; });
    change(3, [&](float x, int64_t i) { return i == 70 ? NAN : x; });  // of head 1
    // One element is all there is: no other sum of a lane is so large.
    change(4, [&](float, int64_t i) { return i % spec.head_size == 5 ? 10.0f : 0.0f; });
    ExpectAgreement(spec, instance, 20);
  }
}

// Codes and zero points as nothing writes them, but a file may have them.
TEST(PagedAttentionIntegers, LargestCodes) {
  for (PagedAttentionSpec spec : IntegerSpecs()) {
    spec.sequences = {{1, 200}};
    for (const int64_t size : {128, 1024}) {
      spec.head_size = size;
      SCOPED_TRACE(NameOf(spec));
      PagedAttentionInstance instance(spec);
      const bool is_int8 = spec.mode == KvQuantMode::kInt8PerTokenHead;
      for (const int cache : {1, 2}) {
        auto* bytes = static_cast<uint8_t*>(instance.inputs[cache].mutable_data());
        const int64_t count = instance.inputs[cache].byte_size();
        for (int64_t i = 0; i < count / 2; ++i) bytes[i] = is_int8 ? 0x80 : 0xFF;
      }
      ChangeQuery(instance, [](float, int64_t i) { return i % 2 == 0 ? -1.0f : -1.5f; });
      ExpectAgreement(spec, instance, static_cast<double>(size));
    }
  }
}

}  // namespace
}  // namespace pagefuse::testing
