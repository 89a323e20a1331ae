// SPDX-License-Identifier: Apache-2.0
// Index scores in vectors of float: heads in lanes, some keys at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/indexer/mqa_logits_hwy.cc"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/grouped_row-inl.h"
#include "pagefuse/ops/kernels/indexer/mqa_engine.h"
#include "pagefuse/ops/kernels/numeric/convert-inl.h"

#ifndef PAGEFUSE_KERNELS_INDEXER_MQA_HEADS_BY_DIM
#define PAGEFUSE_KERNELS_INDEXER_MQA_HEADS_BY_DIM
namespace pagefuse::pagefuse_ops {

// A packed query: floats [head_size][padded_heads], then weights [padded_heads], zero behind the
// heads.
struct HeadsByDim {
  const float* values;
  const float* weights;
  size_t padded_heads;
  size_t head_size;
};

}  // namespace pagefuse::pagefuse_ops
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse::pagefuse_ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = pagefuse::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;

// Sums in registers: kKeys keys by kMaxVectors vectors of heads.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr int kMaxVectors = 4;
#else
constexpr int kMaxVectors = 2;
#endif
constexpr int kKeys = 6;

// Adds to sums[key] the lanes of max(0, q . key) * weight of kVectors vectors of heads from `head`
// on, for kCount keys, head_size floats each.
template <int kCount, int kVectors>
HWY_INLINE void AddHeads(const HeadsByDim& query, size_t head, const float* HWY_RESTRICT keys,
                         hn::Vec<DF>* HWY_RESTRICT sums) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  hn::Vec<DF> dots[kCount][kVectors];
  for (auto& row : dots) {
    for (auto& dot : row) dot = hn::Zero(df);
  }
  const float* HWY_RESTRICT q = query.values + head;
  for (size_t d = 0; d < query.head_size; ++d, q += query.padded_heads) {
    hn::Vec<DF> heads[kVectors];
    for (int v = 0; v < kVectors; ++v) heads[v] = hn::LoadU(df, q + v * lanes);
    for (int k = 0; k < kCount; ++k) {
      const auto key = hn::Set(df, keys[k * query.head_size + d]);
      for (int v = 0; v < kVectors; ++v) dots[k][v] = hn::MulAdd(heads[v], key, dots[k][v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const auto weight = hn::LoadU(df, query.weights + head + v * lanes);
    for (int k = 0; k < kCount; ++k) {
      sums[k] = hn::MulAdd(hn::Max(dots[k][v], hn::Zero(df)), weight, sums[k]);
    }
  }
}

// out[0, kCount) of that many keys.
template <int kCount>
HWY_NOINLINE void ScoreKeys(const HeadsByDim& query, const float* HWY_RESTRICT keys,
                            const float* HWY_RESTRICT scales, float* HWY_RESTRICT out) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  hn::Vec<DF> sums[kCount];
  for (auto& sum : sums) sum = hn::Zero(df);
  size_t head = 0;
  for (; head + kMaxVectors * lanes <= query.padded_heads; head += kMaxVectors * lanes) {
    AddHeads<kCount, kMaxVectors>(query, head, keys, sums);
  }
  for (; head < query.padded_heads; head += lanes) AddHeads<kCount, 1>(query, head, keys, sums);
  for (int k = 0; k < kCount; ++k) {
    out[k] = hn::GetLane(hn::SumOfLanes(df, sums[k])) * scales[k];
  }
}

void ScoreRange(const HeadsByDim& query, const DecodedKeys& decoded, const KeyRange& range,
                float* out) {
  const auto* keys = static_cast<const float*>(decoded.keys);
  int64_t k = range.begin;
  const auto key = [&](int64_t i) { return keys + i * static_cast<int64_t>(query.head_size); };
  for (; k + kKeys <= range.end; k += kKeys) {
    ScoreKeys<kKeys>(query, key(k), decoded.scales + k, out + k);
  }
  for (; k + 2 <= range.end; k += 2) ScoreKeys<2>(query, key(k), decoded.scales + k, out + k);
  for (; k < range.end; ++k) ScoreKeys<1>(query, key(k), decoded.scales + k, out + k);
}

template <typename T>
void ToFloats(const uint8_t* from, int64_t count, float* to) {
  vec::ConvertArray(reinterpret_cast<const T*>(from), static_cast<size_t>(count), to);
}

void ToFloats(DataType type, const uint8_t* from, int64_t count, float* to) {
  switch (type) {
    case DataType::kFloat8E4M3FN:
      return ToFloats<Float8E4M3FN>(from, count, to);
    case DataType::kBfloat16:
      return ToFloats<Bfloat16>(from, count, to);
    case DataType::kFloat16:
      return ToFloats<Float16>(from, count, to);
    default:
      return ToFloats<float>(from, count, to);
  }
}

void PackFloats(const MqaLogitsProblem& problem, int64_t row, int64_t padded_heads, float* packed) {
  const int64_t size = problem.head_size;
  std::vector<float> values(size);
  std::fill_n(packed, (size + 1) * padded_heads, 0.0f);
  for (int64_t h = 0; h < problem.heads; ++h) {
    const uint8_t* query = problem.q + (row * problem.heads + h) * problem.QueryRowBytes();
    ToFloats(problem.query_type, query, size, values.data());
    for (int64_t d = 0; d < size; ++d) packed[d * padded_heads + h] = values[d];
  }
  std::copy_n(problem.weights + row * problem.heads, problem.heads, packed + size * padded_heads);
}

void DecodeFloats(const MqaLogitsProblem& problem, const KeyRun& run, float* keys) {
  const int64_t size = problem.head_size;
  for (int64_t i = 0; i < run.count; ++i) {
    if (problem.key_groups) {
      const RowAddress row = {const_cast<uint8_t*>(run.codes) + i * run.stride,
                              const_cast<uint8_t*>(run.scales) + i * run.scale_stride};
      vec::DecodeE2M1Row(*problem.key_groups, row, keys + (run.first + i) * size);
      continue;
    }
    ToFloats(problem.key_type, run.codes + i * run.stride, size, keys + (run.first + i) * size);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse::pagefuse_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse::pagefuse_ops {

HWY_EXPORT(PackFloats);
HWY_EXPORT(DecodeFloats);
HWY_EXPORT(ScoreRange);

namespace {

constexpr int64_t kHeadMultiple = 16;

class HwyEngine : public MqaEngine {
 public:
  explicit HwyEngine(const MqaLogitsProblem& problem)
      : MqaEngine(problem),
        padded_heads_(std::max((problem.heads + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple,
                               kHeadMultiple)) {}

  int64_t QueryBytes() const override {
    return (problem().head_size + 1) * padded_heads_ * static_cast<int64_t>(sizeof(float));
  }
  int64_t KeyBytes() const override {
    return problem().head_size * static_cast<int64_t>(sizeof(float));
  }
  void PackQuery(int64_t row, void* packed) const override {
    HWY_DYNAMIC_DISPATCH(PackFloats)(problem(), row, padded_heads_, static_cast<float*>(packed));
  }
  void DecodeRun(const KeyRun& run, const DecodedKeys& decoded) const override {
    HWY_DYNAMIC_DISPATCH(DecodeFloats)
    (problem(), run, static_cast<float*>(decoded.keys));
  }
  void NegateKey(int64_t key, const DecodedKeys& decoded) const override {
    const int64_t size = problem().head_size;
    float* values = static_cast<float*>(decoded.keys) + key * size;
    for (int64_t d = 0; d < size; ++d) values[d] = -values[d];
  }
  void Score(const void* packed, const DecodedKeys& decoded, const KeyRange& range,
             KeyDecoding& /*next*/, float* out) const override {
    const auto* values = static_cast<const float*>(packed);
    const HeadsByDim query = {values, values + problem().head_size * padded_heads_,
                              static_cast<size_t>(padded_heads_),
                              static_cast<size_t>(problem().head_size)};
    HWY_DYNAMIC_DISPATCH(ScoreRange)(query, decoded, range, out);
  }

 private:
  int64_t padded_heads_;
};

}  // namespace

void MqaLogitsHwy(const MqaLogitsProblem& problem, Scratch* scratch) {
  RunMqaEngine(problem, HwyEngine(problem), scratch);
}

}  // namespace pagefuse::pagefuse_ops
#endif  // HWY_ONCE
