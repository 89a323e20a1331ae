// SPDX-License-Identifier: Apache-2.0
// Accumulators of the reductions: Add for each element, Finish for the result.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/scalar_math.h"

namespace pagefuse::onnx_ops {

// Floats accumulate in double, integers wrap in their own type.
template <typename T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <typename T>
struct SumReducer {
  Accumulator<T> sum = 0;
  void Add(T x) { sum = kAdd(sum, static_cast<Accumulator<T>>(x)); }
  T Finish(int64_t) const { return static_cast<T>(sum); }
};

// The mean of no float is NaN, of no integer 0.
template <typename T>
struct MeanReducer : SumReducer<T> {
  T Finish(int64_t count) const {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(this->sum / static_cast<double>(count));
    } else {
      return count == 0 ? T{0} : static_cast<T>(this->sum / static_cast<T>(count));
    }
  }
};

template <typename T>
struct ProdReducer {
  Accumulator<T> product = 1;
  void Add(T x) { product = kMul(product, static_cast<Accumulator<T>>(x)); }
  T Finish(int64_t) const { return static_cast<T>(product); }
};

// The maximum of nothing is -infinity, or the type's least value.
template <typename T>
struct MaxReducer {
  using Limits = std::numeric_limits<T>;
  T best = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  void Add(T x) { best = kMax(best, x); }
  T Finish(int64_t) const { return best; }
};

template <typename T>
struct MinReducer {
  using Limits = std::numeric_limits<T>;
  T best = Limits::has_infinity ? Limits::infinity() : Limits::max();
  void Add(T x) { best = kMin(best, x); }
  T Finish(int64_t) const { return best; }
};

template <typename T>
struct L1Reducer : SumReducer<T> {
  void Add(T x) { SumReducer<T>::Add(x < T{0} ? kSub(T{0}, x) : x); }
};

template <typename T>
struct SumSquareReducer {
  Accumulator<T> sum = 0;
  void Add(T x) {
    const auto wide = static_cast<Accumulator<T>>(x);
    sum = kAdd(sum, kMul(wide, wide));
  }
  T Finish(int64_t) const { return static_cast<T>(sum); }
};

// Roots and logarithms go through double for integers too.
template <typename T>
struct L2Reducer {
  double sum = 0;
  void Add(T x) { sum += static_cast<double>(x) * static_cast<double>(x); }
  T Finish(int64_t) const { return ConvertElement<T>(std::sqrt(sum)); }
};

template <typename T>
struct LogSumReducer {
  double sum = 0;
  void Add(T x) { sum += static_cast<double>(x); }
  T Finish(int64_t) const { return ConvertElement<T>(std::log(sum)); }
};

// log(sum of e^x) = max + log(sum of e^(x - max)), with the maximum so far.
template <typename T>
struct LogSumExpReducer {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of e^(x - max)
  void Add(T element) {
    const auto x = static_cast<double>(element);
    if (x == max) {
      sum += std::isinf(x) && x < 0 ? 0 : 1;
    } else if (x < max) {
      sum += std::exp(x - max);
    } else {  // a new maximum, or NaN, which stays
      sum = sum * std::exp(max - x) + 1;
      max = x;
    }
  }
  T Finish(int64_t) const { return ConvertElement<T>(max + std::log(sum)); }
};

}  // namespace pagefuse::onnx_ops
