// SPDX-License-Identifier: Apache-2.0
// "fp8_per_tensor" in vectors. Include inside a file that hwy/foreach_target.h recompiles.
#if defined(PAGEFUSE_KERNELS_FORMATS_FP8_PER_TENSOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEFUSE_KERNELS_FORMATS_FP8_PER_TENSOR_INL_H_
#undef PAGEFUSE_KERNELS_FORMATS_FP8_PER_TENSOR_INL_H_
#else
#define PAGEFUSE_KERNELS_FORMATS_FP8_PER_TENSOR_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#include "pagefuse/ops/kernels/formats/e4m3_words-inl.h"
#include "pagefuse/ops/kernels/formats/row_codec-inl.h"
#include "pagefuse/ops/kernels/numeric/byte_tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if PF_HAS_BYTE_TABLES

// The codes of x / scale, for one scale. A bfloat16 has 128 mantissas, and while the quotient is a
// normal number of e4m3fn the next exponent has the same codes plus 8: the codes of one exponent
// give those of all. The five exponents below have subnormal codes and tables of their own; under
// them every code is 0.
class E4M3Table {
 public:
  // Scales that keep these exponents among a bfloat16's normal ones.
  static bool Takes(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

  // The table is what the codec of x / scale stores.
  template <class Codec>
  HWY_INLINE explicit E4M3Table(const Codec& codec) {
    const uint32_t lowest = (std::bit_cast<uint32_t>(codec.tensor_scale) >> 23) - kBelow;
    Bfloat16 numbers[kExponents * kMantissas];
    for (uint32_t i = 0; i < kExponents * kMantissas; ++i) {
      numbers[i] = Bfloat16::FromBits(static_cast<uint16_t>(lowest * kMantissas + i));
    }
    codec.Store(numbers, kExponents * kMantissas, {codes_, nullptr}, nullptr);
    zero_exponent_ = static_cast<uint8_t>(lowest - 1);
  }

  // Codes of x[0, n).
  HWY_INLINE void Encode(const Bfloat16* HWY_RESTRICT x, size_t n, uint8_t* HWY_RESTRICT to) const {
    const auto* words = reinterpret_cast<const uint16_t*>(x);
    size_t i = 0;
    for (; i + kStep <= n; i += kStep) {
      const V first{_mm512_loadu_si512(words + i)};
      const V second{_mm512_loadu_si512(words + i + kStep / 2)};
      _mm512_storeu_si512(to + i, Codes(first, second).raw);
    }
    if (i == n) return;
    const uint64_t rest = ~uint64_t{0} >> (kStep - (n - i));
    const V first{_mm512_maskz_loadu_epi16(static_cast<uint32_t>(rest), words + i)};
    const V second{
        _mm512_maskz_loadu_epi16(static_cast<uint32_t>(rest >> kStep / 2), words + i + kStep / 2)};
    _mm512_mask_storeu_epi8(to + i, rest, Codes(first, second).raw);
  }

 private:
  using D = hn::Full512<uint8_t>;
  using V = ByteVec;
  using M = hn::Mask<D>;
  static constexpr size_t kStep = 64;
  static constexpr uint32_t kMantissas = 128;
  static constexpr uint32_t kExponents = 6;

  // Biased exponents between the scale's and the lowest with a table: the sixth has quotients of
  // 2^-6, the least normal number, and more.
  static constexpr uint32_t kBelow = 10;

  // Of 64 bfloat16 numbers.
  HWY_INLINE V Codes(V first, V second) const {
    const D d;
    const V low = LowBytes(first, second);    // the last bit of the exponent, the mantissa
    const V high = HighBytes(first, second);  // the sign, the exponent's other bits
    const V twice = hn::Add(high, high);
    const V exponent = {_mm512_mask_add_epi8(twice.raw, _mm512_movepi8_mask(low.raw), twice.raw,
                                             hn::Set(d, 1).raw)};
    // 0: code 0; 1 to 6: of that table; more: of the sixth, but larger. Past 448 all are alike.
    constexpr uint8_t kLast = kExponents + 16;
    const V rank =
        hn::Min(hn::SaturatedSub(exponent, hn::Set(d, zero_exponent_)), hn::Set(d, kLast));
    const V above = hn::SaturatedSub(rank, hn::Set(d, kExponents));  // at most 16
    V code = hn::BitCast(d, hn::ShiftLeft<3>(hn::BitCast(hn::Full512<uint16_t>(), above)));
    code = hn::Add(code, Lookup<kExponents>(hn::Gt(rank, hn::Set(d, kExponents - 1)), low));
    const auto of = [&](auto row)
                        HWY_ATTR { return Lookup<row>(hn::Eq(rank, hn::Set(d, row)), low); };
    code = hn::Or3(code, of(Row<1>()), of(Row<2>()));
    code = hn::Or(hn::Or3(code, of(Row<3>()), of(Row<4>())), of(Row<5>()));
    code = hn::Min(code, hn::Set(d, E4M3FNFormat::kMaxFinite));
    const M top = hn::Eq(exponent, hn::Set(d, 0xFF));
    const M is_nan{_mm512_mask_test_epi8_mask(top.raw, low.raw, hn::Set(d, 0x7F).raw)};
    code = hn::IfThenElse(is_nan, hn::Set(d, E4M3FNFormat::kMagnitudeMask), code);
    return hn::OrAnd(code, high, hn::Set(d, E4M3FNFormat::kSignBit));
  }

  template <uint32_t row>
  using Row = std::integral_constant<uint32_t, row>;

  // Codes of the mantissas in the lanes of the mask, 0 elsewhere.
  template <uint32_t row>
  HWY_INLINE V Lookup(M mask, V mantissas) const {
    const D d;
    const uint8_t* codes = codes_ + (row - 1) * kMantissas;
    return V{_mm512_maskz_permutex2var_epi8(mask.raw, hn::Load(d, codes).raw, mantissas.raw,
                                            hn::Load(d, codes + kStep).raw)};
  }

  alignas(64) uint8_t codes_[kExponents * kMantissas];
  uint8_t zero_exponent_;  // the largest whose codes are all 0
};

// Stores rows of bfloat16 by a table.
struct Fp8TableCodec : ElementCodec<Float8E4M3FN, false> {
  const E4M3Table* table;

  HWY_INLINE void Store(const Bfloat16* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    table->Encode(x, n, row.data);
  }
};

#endif  // PF_HAS_BYTE_TABLES

// Stores alone: readers leave the scale to others.
struct Fp8TensorCodec : ElementCodec<Float8E4M3FN, false> {
  template <typename From>
  HWY_INLINE void Store(const From* HWY_RESTRICT x, size_t n, RowAddress row,
                        float* /*scratch*/) const {
    const hn::ScalableTag<float> df;
    auto* to = reinterpret_cast<Element*>(row.data);
    int exponent = 0;
    const float inverse = 1.0f / tensor_scale;
    if (std::frexp(tensor_scale, &exponent) == 0.5f && std::isfinite(inverse)) {
      // A power of two, such as the 1 of a cache that was not calibrated: the product is exact.
      const auto factor = hn::Set(df, inverse);
      return TransformArray(x, n, to, [&](auto v) HWY_ATTR { return hn::Mul(v, factor); });
    }
    const auto scale = hn::Set(df, tensor_scale);
    TransformArray(x, n, to, [&](auto v) HWY_ATTR { return hn::Div(v, scale); });
  }

#if PF_HAS_BYTE_TABLES
  // Calls f(codec) with one that stores bfloat16 numbers by lookup, if `elements` of them pay for
  // the table; false, with nothing done, else.
  template <class F>
  HWY_INLINE bool ByTable(int64_t elements, const F& f) const {
    constexpr int64_t kLeast = 8192;
    if (elements < kLeast || !E4M3Table::Takes(tensor_scale)) return false;
    const E4M3Table table(*this);
    f(Fp8TableCodec{{.tensor_scale = tensor_scale}, &table});
    return true;
  }
#endif
};

struct Fp8PerTensor
    : RowViews<Fp8PerTensor, PlainCodec<Float8E4M3FN>, E4M3Pairs<PlainCodec<Float8E4M3FN>>> {
  static HWY_INLINE Fp8TensorCodec Writer(const CacheFormat&, const RowParams& params) {
    return {{.tensor_scale = params.tensor_scale}};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#endif  // toggle
