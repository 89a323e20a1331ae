// SPDX-License-Identifier: Apache-2.0
// Decoding with 16-bit queries over caches of at most 8 bits, for which kernels may multiply 16-bit
// words.
#include <algorithm>
#include <cmath>
#include <span>

#include "gtest/gtest.h"
#include "must.h"
#include "paged_attention_instance.h"
#include "simd_targets.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse::testing {
namespace {

// What the words move a score or a value of about 1, beside the output's rounding.
constexpr double kWordError = 2e-4;

// Every format of codes.
std::vector<PagedAttentionSpec> WordSpecs() {
  std::vector<PagedAttentionSpec> specs;
  for (const DataType query : {DataType::kFloat16, DataType::kBfloat16}) {
    for (const RowFormat& row : RowFormats()) {
      if (row.scales == ScaleKind::kNone) continue;
      specs.push_back({.query = query,
                       .mode = row.mode,
                       .cache = row.types.front(),
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

// Scales of float8 caches become powers of two: by definition their keys are rounded to the type of
// the query, which kernels don't do.
PagedAttentionInstance MakeInstance(const PagedAttentionSpec& spec) {
  PagedAttentionInstance instance(spec);
  if (spec.cache != DataType::kFloat8E4M3FN) return instance;
  for (const int port : {6, 7, 9, 10}) {
    Tensor& scales = instance.inputs[port];
    if (!scales.defined()) continue;
    for (float& scale : scales.mutable_values<float>()) {
      scale = std::exp2(std::round(std::log2(scale)));
    }
  }
  return instance;
}

// The kernel against the reference on every target; scores are up to `largest`.
void ExpectAgreement(const PagedAttentionSpec& spec, const PagedAttentionInstance& instance,
                     double largest) {
  const double rounding = spec.query == DataType::kFloat16 ? 0x1p-10 : 0x1p-7;
  const double score_error = largest * kWordError;
  double output_error = score_error;
  if (CacheFormat{.mode = spec.mode}.needs_signs()) {
    // Outputs are rounded before the transform back too, which spreads the step of a value of 2.
    output_error += 2 * rounding / std::sqrt(spec.head_size);
  }
  const auto want = Must(instance.Run("reference"));
  ForEachSimdTarget([&] {
    const auto got = Must(instance.Run("hwy"));
    EXPECT_LE(WorstError(got[0], want[0], rounding, output_error), 1);
    EXPECT_LE(WorstError(got[1], want[1], 1e-5, score_error), 1);
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

TEST(PagedAttentionWords, KernelsAgree) {
  for (PagedAttentionSpec spec : WordSpecs()) {
    // Those that only some vectors divide, and all groups of heads that share a step.
    for (const int64_t size : {32, 64, 80, 96, 128, 256, 512, 1024, 2048}) {
      if (!CacheFormat{.mode = spec.mode}.TakesSize(size)) continue;
      for (const int64_t group : {1, 2, 3, 7}) {
        if (size > 256 && group > 2) continue;
        if (size > 256) spec.sequences = {{1, 70}, {1, 1}};
        spec.head_size = size;
        spec.kv_heads = 2;
        spec.heads = 2 * group;
        SCOPED_TRACE(NameOf(spec));
        ExpectAgreement(spec, MakeInstance(spec), 1);
      }
    }
  }
}

// Queries of all magnitudes, also where most of the weight is on one key; zeros; and a NaN.
TEST(PagedAttentionWords, QueriesOfAnyMagnitude) {
  for (PagedAttentionSpec spec : WordSpecs()) {
    spec.sequences = {{1, 300}, {1, 300}, {1, 300}, {1, 300}, {1, 300}};
    SCOPED_TRACE(NameOf(spec));
    PagedAttentionInstance instance = MakeInstance(spec);
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

uint8_t LargestCode(KvQuantMode mode) {
  if (mode == KvQuantMode::kInt8PerTokenHead) return 0x80;
  return mode == KvQuantMode::kInt4PerTokenHead ? 0xFF : 0x7E;
}

// Of codes as nothing writes them, but a file may have them.
TEST(PagedAttentionWords, LargestCodes) {
  for (PagedAttentionSpec spec : WordSpecs()) {
    spec.sequences = {{1, 200}};
    for (const int64_t size : {128, 1024}) {
      spec.head_size = size;
      SCOPED_TRACE(NameOf(spec));
      PagedAttentionInstance instance = MakeInstance(spec);
      for (const int cache : {1, 2}) {
        auto* bytes = static_cast<uint8_t*>(instance.inputs[cache].mutable_data());
        std::fill_n(bytes, instance.inputs[cache].byte_size() / 2, LargestCode(spec.mode));
      }
      ChangeQuery(instance, [](float, int64_t i) { return i % 2 == 0 ? -1.0f : -1.5f; });
      ExpectAgreement(spec, instance, static_cast<double>(size));
    }
  }
}

}  // namespace
}  // namespace pagefuse::testing
