// SPDX-License-Identifier: Apache-2.0
// Softmax and reductions.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_team.h"
#include "pagefuse/ops/kernels/cuda/rows.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {
namespace {

// --- softmax ---

template <typename T>
__global__ void __launch_bounds__(kMostLanes)
    SoftmaxKernel(const __grid_constant__ SoftmaxParams p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t line = TeamRow();
  const bool has_line = line < p.outer * p.inner;
  const int64_t start = has_line ? line / p.inner * p.n * p.inner + line % p.inner : 0;
  const int64_t n = has_line ? p.n : 0;
  const T* x = static_cast<const T*>(p.x) + start;
  const auto at = [&](int64_t i) { return ToFloat(x[i * p.inner]); };
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) max = fmaxf(max, at(i));
  max = OverTeam(max, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(at(i) - max);
  sum = SumOverTeam(sum);
  const float log_sum = p.log ? logf(sum) : 0.0f;
  T* y = static_cast<T*>(p.y) + start;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float shifted = at(i) - max;
    y[i * p.inner] = FromFloat<T>(p.log ? shifted - log_sum : expf(shifted) / sum);
  }
}

// Lanes side by side read what lies side by side: a line's own elements, or those of neighbouring lines.
int LanesOf(int64_t count, bool dense) { return dense ? LanesFor(count) : 1; }

// --- reductions ---

template <typename T>
constexpr bool kIsFloat = !std::is_integral_v<T>;
// What is reduced in: integers modulo 2^64.
template <typename T>
using Wide = std::conditional_t<kIsFloat<T>, double, int64_t>;

template <typename T>
__device__ Wide<T> Widened(T x) {
  if constexpr (kIsFloat<T>) {
    return static_cast<double>(ToFloat(x));
  } else {
    return x;
  }
}

// Sums of integers wrap.
__device__ inline double Plus(double a, double b) { return a + b; }
__device__ inline int64_t Plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
__device__ inline double Times(double a, double b) { return a * b; }
__device__ inline int64_t Times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Of T: the extremes of nothing are its own.
template <typename T>
__device__ Wide<T> FirstOf(Reduction reduction) {
  if (reduction == Reduction::kProduct) return 1;
  if (reduction != Reduction::kMax && reduction != Reduction::kMin) return 0;
  const bool least = reduction == Reduction::kMax;
  if constexpr (kIsFloat<T>) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return least ? -kInfinity : kInfinity;
  } else {
    return least ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  }
}

template <typename W>
__device__ W Mapped(Reduction reduction, W x) {
  if (reduction == Reduction::kL1) return x < 0 ? Times(x, W{-1}) : x;
  return reduction == Reduction::kL2 || reduction == Reduction::kSumSquare ? Times(x, x) : x;
}

template <typename W>
__device__ W Folded(Reduction reduction, W a, W b) {
  const bool nan = a != a || b != b;
  switch (reduction) {
    case Reduction::kMax:
      return nan ? a + b : a < b ? b : a;
    case Reduction::kMin:
      return nan ? a + b : b < a ? b : a;
    case Reduction::kProduct:
      return Times(a, b);
    default:
      return Plus(a, b);
  }
}

template <typename T>
__device__ T Finished(Reduction reduction, Wide<T> folded, int64_t count) {
  if constexpr (kIsFloat<T>) {
    double y = folded;
    if (reduction == Reduction::kMean) y /= static_cast<double>(count);
    if (reduction == Reduction::kL2) y = sqrt(y);
    if (reduction == Reduction::kLogSum) y = log(y);
    return FromFloat<T>(static_cast<float>(y));
  } else {
    // In T, as a sum that wrapped there.
    const T sum = static_cast<T>(folded);
    if (reduction != Reduction::kMean) return sum;
    return count == 0 ? T{0} : static_cast<T>(sum / static_cast<T>(count));
  }
}

struct Reduced {
  Reduction reduction;
  Strided<1> kept, reduced;
  uint32_t kept_size, reduced_size;
  const void* x;
  void* y;
};

// Elements of a thread that are on their way together.
constexpr uint32_t kAtOnce = 4;

template <typename T>
__global__ void __launch_bounds__(kMostLanes, 1) ReduceKernel(const __grid_constant__ Reduced p) {
  ptx::LetNextKernelBegin();
  ptx::WaitForKernelBefore();
  const int64_t row = TeamRow();
  const bool has_row = row < p.kept_size;
  const uint32_t count = has_row ? p.reduced_size : 0;
  int64_t base[1] = {0};
  if (has_row) p.kept.PlacesOf(static_cast<uint32_t>(row), 1, base);
  const T* x = static_cast<const T*>(p.x) + base[0];
  const bool is_line = p.reduced.axes == 1;  // then there is nothing to divide
  const int64_t step = p.reduced.strides[0][0];
  const auto element = [&](uint32_t i) {
    if (is_line) return x[i * step];
    int64_t place[1];
    p.reduced.PlacesOf(i, 1, place);
    return x[place[0]];
  };
  Wide<T> folded = FirstOf<T>(p.reduction);
  for (uint32_t first = threadIdx.x; first < count; first += kAtOnce * blockDim.x) {
    T at[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      if (first + k * blockDim.x < count) at[k] = element(first + k * blockDim.x);
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      if (first + k * blockDim.x >= count) break;
      folded = Folded(p.reduction, folded, Mapped(p.reduction, Widened(at[k])));
    }
  }
  folded = OverTeam(folded, [&](Wide<T> a, Wide<T> b) { return Folded(p.reduction, a, b); });
  if (!has_row || threadIdx.x != 0) return;
  static_cast<T*>(p.y)[row] = Finished<T>(p.reduction, folded, p.reduced_size);
}

}  // namespace

Error LaunchSoftmax(const SoftmaxParams& params, Stream stream) {
  const int64_t lines = params.outer * params.inner;
  if (lines == 0 || params.n == 0) return 0;
  const int lanes = LanesOf(params.n, params.inner < 8);
  return ForFloatType(params.type, [&]<typename T>() -> Error {
    return Launch(SoftmaxKernel<T>, TeamShape(lines, lanes), stream, params);
  });
}

Error LaunchReduce(const ReduceParams& params, Stream stream) {
  std::vector<int64_t> kept, reduced, kept_strides, reduced_strides;
  const std::vector<int64_t> strides = DenseStrides(params.dims);
  for (size_t d = 0; d < params.dims.size(); ++d) {
    (params.reduced[d] ? reduced : kept).push_back(params.dims[d]);
    (params.reduced[d] ? reduced_strides : kept_strides).push_back(strides[d]);
  }
  const StridedAxes<1> outside(kept, {kept_strides}), inside(reduced, {reduced_strides});
  if (outside.size() == 0) return 0;
  if (outside.outer_axes() > 0 || inside.outer_axes() > 0) return kTooLarge;
  const Reduced call{.reduction = params.reduction,
                     .kept = outside.Walked(),
                     .reduced = inside.Walked(),
                     .kept_size = static_cast<uint32_t>(outside.size()),
                     .reduced_size = static_cast<uint32_t>(inside.size()),
                     .x = params.x,
                     .y = params.y};
  const bool columns = outside.axes.back().strides[0] == 1 && outside.axes.back().size >= 8;
  const LaunchShape shape = TeamShape(outside.size(), LanesOf(inside.size(), !columns));
  switch (params.type) {
    case DataType::kInt32:
      return Launch(ReduceKernel<int32_t>, shape, stream, call);
    case DataType::kInt64:
      return Launch(ReduceKernel<int64_t>, shape, stream, call);
    default:
      return ForFloatType(params.type, [&]<typename T>() -> Error {
        return Launch(ReduceKernel<T>, shape, stream, call);
      });
  }
}

}  // namespace pagefuse::cuda
