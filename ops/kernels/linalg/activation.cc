// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/activation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/linalg/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h: it is compiled once for each target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;

// x / (1 + exp(-z)). Below -87 the logistic function is subnormal, and exp(-z) would overflow to
// infinity, which still gives the right limit, 0, for finite x.
HWY_INLINE hn::Vec<DF> TimesLogistic(hn::Vec<DF> x, hn::Vec<DF> z) {
  const DF df;
  const auto e = hn::Exp(df, hn::Min(hn::Neg(z), hn::Set(df, 88.0f)));
  return hn::Div(x, hn::Add(hn::Set(df, 1.0f), e));
}

struct Silu {
  HWY_INLINE hn::Vec<DF> operator()(hn::Vec<DF> x) const { return TimesLogistic(x, x); }
};

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), without the cancellation of 1 + tanh(u) for negative u.
struct GeluTanh {
  HWY_INLINE hn::Vec<DF> operator()(hn::Vec<DF> x) const {
    const DF df;
    const auto two_c = hn::Set(df, 1.5957691216057308f);  // 2 * sqrt(2 / pi)
    const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(df, 0.044715f), hn::Set(df, 1.0f));
    return TimesLogistic(x, hn::Mul(two_c, hn::Mul(x, cubic)));
  }
};

// The C library has an accurate erfc; Highway has none.
struct Gelu {
  HWY_INLINE hn::Vec<DF> operator()(hn::Vec<DF> x) const {
    const DF df;
    HWY_ALIGN float values[16];
    hn::Store(x, df, values);
    for (size_t i = 0; i < hn::Lanes(df); ++i) {
      values[i] *= 0.5f * std::erfc(values[i] * -0.70710678118654752f);
    }
    return hn::Load(df, values);
  }
};

struct Unlimited {
  explicit Unlimited(float) {}
  HWY_INLINE hn::Vec<DF> Below(hn::Vec<DF> x) const { return x; }
  HWY_INLINE hn::Vec<DF> Within(hn::Vec<DF> x) const { return x; }
};

struct Limited {
  explicit Limited(float at) : limit(at) {}
  HWY_INLINE hn::Vec<DF> Below(hn::Vec<DF> x) const { return hn::Min(x, hn::Set(DF(), limit)); }
  HWY_INLINE hn::Vec<DF> Within(hn::Vec<DF> x) const {
    return hn::Max(Below(x), hn::Set(DF(), -limit));
  }

  float limit;
};

template <class Function, class Limit>
HWY_INLINE void Loop(const Limit& limit, const float* gate, const float* up, int64_t n,
                     float* out) {
  const DF df;
  const Function function;
  const auto product = [&](hn::Vec<DF> g, hn::Vec<DF> u) {
    return hn::Mul(function(limit.Below(g)), limit.Within(u));
  };
  const int64_t lanes = hn::Lanes(df);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(product(hn::LoadU(df, gate + i), hn::LoadU(df, up + i)), df, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float g[16] = {};
  HWY_ALIGN float u[16] = {};
  std::memcpy(g, gate + i, (n - i) * sizeof(float));
  std::memcpy(u, up + i, (n - i) * sizeof(float));
  hn::Store(product(hn::Load(df, g), hn::Load(df, u)), df, g);
  std::memcpy(out + i, g, (n - i) * sizeof(float));
}

template <class Limit>
HWY_INLINE void ByActivation(const Gate& by, const float* gate, const float* up, int64_t n,
                             float* out) {
  const Limit limit(by.limit);
  switch (by.activation) {
    case Activation::kGelu:
      return Loop<Gelu>(limit, gate, up, n, out);
    case Activation::kGeluTanh:
      return Loop<GeluTanh>(limit, gate, up, n, out);
    case Activation::kSilu:
      return Loop<Silu>(limit, gate, up, n, out);
  }
}

void GatedProductImpl(const Gate& by, const float* gate, const float* up, int64_t n, float* out) {
  if (by.limit == Gate::kNoLimit) return ByActivation<Unlimited>(by, gate, up, n, out);
  ByActivation<Limited>(by, gate, up, n, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(GatedProductImpl);

void GatedProduct(const Gate& by, const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(GatedProductImpl)(by, gate, up, n, out);
}

double ApplyGate(const Gate& gate, double x, double up) {
  const double limit = gate.limit;
  return ApplyActivation(gate.activation, std::min(x, limit)) * std::clamp(up, -limit, limit);
}

std::optional<Activation> ActivationFromName(std::string_view name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "silu") return Activation::kSilu;
  return std::nullopt;
}

double ApplyActivation(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh: {
      const double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
      return x / (1.0 + std::exp(-2.0 * u));
    }
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
  }
  return 0.0;
}

}  // namespace pagefuse
#endif  // HWY_ONCE
