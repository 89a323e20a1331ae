// SPDX-License-Identifier: Apache-2.0
// What is left over behind whole vectors is multiplied and added in plain C++, fused where the
// target can.
#pragma GCC optimize("fp-contract=fast")

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/turboquant/turboquant_dequant_hwy.cc"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/formats/turboquant-inl.h"
#include "pagefuse/ops/kernels/numeric/hadamard-inl.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[0, n) = the row's elements as float16; without row scales its scale is 1.
template <class Codec>
HWY_INLINE void StoreElements(const Codec& codec, const typename Codec::Row& row, size_t n,
                              Float16* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto scale = hn::Set(df, Codec::kRowScale ? row.scale : 1.0f);
  size_t d = 0;
  for (; d + lanes <= n; d += lanes) {
    StoreFromFloat(hn::Mul(codec.Load(df, row, d), scale), df, to + d);
  }
  if (d == n) return;
  StoreFromFloatN(hn::Mul(codec.LoadN(df, row, d, n - d), scale), df, to + d, n - d);
}

// The rows of a sequence, read in the order in which they lie in memory: all heads of a position.
class SequenceDequant {
 public:
  explicit SequenceDequant(const TurboQuantDequantCall& call)
      : call_(call),
        n_(static_cast<size_t>(call.cache.format.head_size)),
        entry_(static_cast<float>(Float16(HadamardEntry(call.cache.format.head_size)))),
        x_(n_),
        y_(n_) {}

  // Positions [begin, end) of sequence `b`.
  HWY_INLINE void Run(int64_t b, int64_t begin, int64_t end) {
    const TurboQuantFormat& format = call_.cache.format;
    const int64_t filled = std::clamp<int64_t>(call_.seq_lens[b], begin, end);
    ClearRows(b, filled, end);
    const auto with = [&](const auto& keys, const auto& values) HWY_ATTR {
      for (int64_t j = begin; j < filled; ++j) {
        const auto for_heads = [&](const auto& step) HWY_ATTR {
          const uint8_t* slot = call_.Slot(b, 0, j);
          for (int64_t head = 0; head < call_.num_heads; ++head) {
            step(slot, RowAt(b, head, j));
            slot += call_.slots.data_strides.head;
          }
        };
        const auto store_key = [&](const uint8_t* slot, int64_t at) HWY_ATTR {
          Store(keys, slot, format.KeyDataBytes(), call_.key + at);
        };
        const auto store_value = [&](const uint8_t* slot, int64_t at) HWY_ATTR {
          Store(values, slot + format.KeyBytes(), format.ValueDataBytes(), call_.value + at);
        };
        if (!call_.inverse_rotate) {
          for_heads([&](const uint8_t* slot, int64_t at) HWY_ATTR {
            store_key(slot, at);
            store_value(slot, at);
          });
          continue;
        }
        // The rotation of a row would wait for its key.
        for_heads(store_key);
        for_heads([&](const uint8_t* /*slot*/, int64_t at)
                      HWY_ATTR { RotateBack(call_.key + at); });
        for_heads(store_value);
      }
    };
    ForFormat(call_.cache, [&](const auto& views) HWY_ATTR { with(views.Keys(), views.Values()); });
  }

 private:
  // Where a row begins in the outputs.
  int64_t RowAt(int64_t b, int64_t head, int64_t j) const {
    return ((b * call_.num_heads + head) * call_.num_positions + j) * static_cast<int64_t>(n_);
  }

  void ClearRows(int64_t b, int64_t begin, int64_t end) const {
    for (int64_t head = 0; head < call_.num_heads; ++head) {
      for (Float16* out : {call_.key, call_.value}) {
        std::fill(out + RowAt(b, head, begin), out + RowAt(b, head, end), Float16::FromBits(0));
      }
    }
  }

  template <class Codec>
  HWY_INLINE void Store(const Codec& codec, const uint8_t* row, int64_t data_bytes,
                        Float16* HWY_RESTRICT to) const {
    // Codecs only read.
    auto* bytes = const_cast<uint8_t*>(row);
    StoreElements(codec, codec.Open({bytes, bytes + data_bytes}), n_, to);
  }

  // The key times the rotation rounded to float16: undoes the rotation.
  HWY_INLINE void RotateBack(Float16* HWY_RESTRICT key) {
    ConvertArray(key, n_, x_.data());
    if (call_.cache.tables.rotation != nullptr) {
      TimesRotation(call_.cache.tables.rotation);
      return ConvertArray(y_.data(), n_, key);
    }
    HadamardVectors(x_.data(), n_);
    const auto entry = hn::Set(hn::ScalableTag<float>(), entry_);
    TransformArray(x_.data(), n_, key, [&](auto v) HWY_ATTR { return hn::Mul(v, entry); });
  }

  // y_ = x_ times the matrix.
  HWY_INLINE void TimesRotation(const float* HWY_RESTRICT rotation) {
    const hn::ScalableTag<float> df;
    const size_t lanes = hn::Lanes(df);
    size_t d = 0;
    for (; d + lanes <= n_; d += lanes) {
      auto sum = hn::Zero(df);
      for (size_t i = 0; i < n_; ++i) {
        sum = hn::MulAdd(hn::Set(df, x_[i]), hn::LoadU(df, rotation + i * n_ + d), sum);
      }
      hn::StoreU(sum, df, y_.data() + d);
    }
    for (; d < n_; ++d) {
      y_[d] = 0;
      for (size_t i = 0; i < n_; ++i) y_[d] += x_[i] * rotation[i * n_ + d];
    }
  }

  const TurboQuantDequantCall& call_;
  const size_t n_;
  const float entry_;  // of the default rotation, rounded
  std::vector<float> x_, y_;
};

// Parts [begin, end) of sequences x chunks of positions.
void DequantParts(const TurboQuantDequantCall& call, int64_t chunk, int64_t begin, int64_t end) {
  SequenceDequant sequence(call);
  const int64_t chunks = (call.num_positions + chunk - 1) / chunk;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i % chunks * chunk;
    sequence.Run(i / chunks, first, std::min(first + chunk, call.num_positions));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(DequantParts);

void DequantTurboQuantHwy(const TurboQuantDequantCall& call) {
  TurboQuantDequantCall rounded = call;
  std::vector<float> rotation;
  const int64_t size = call.cache.format.head_size;
  if (call.inverse_rotate && call.cache.tables.rotation != nullptr) {
    rotation.assign(call.cache.tables.rotation, call.cache.tables.rotation + size * size);
    for (float& x : rotation) x = static_cast<float>(Float16(x));
    rounded.cache.tables.rotation = rotation.data();
  }
  constexpr int64_t kChunk = 16;
  const int64_t chunks = (call.num_positions + kChunk - 1) / kChunk;
  ParallelFor(call.num_sequences * chunks, kChunk * call.num_heads * 6 * size,
              [&](int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(DequantParts)(rounded, kChunk, begin, end);
              });
}

}  // namespace pagefuse
#endif  // HWY_ONCE
