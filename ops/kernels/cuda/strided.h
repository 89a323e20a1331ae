// SPDX-License-Identifier: Apache-2.0
// Places of elements of strided tensors, by the number of an element of the result: made on the host, walked on
// either side.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagefuse::cuda {

// n / size for n < 2^31 without a division: (n + high half of n * multiplier) >> shift.
struct Divisor {
  uint32_t size = 1, multiplier = 0, shift = 0;

  constexpr Divisor() = default;
  explicit constexpr Divisor(uint32_t by) : size(by > 0 ? by : 1) {
    while ((uint64_t{1} << shift) < size) ++shift;
    const uint64_t above = (uint64_t{1} << shift) - size;
    multiplier = static_cast<uint32_t>((above << 32) / size) + (shift == 0 ? 0 : 1);
  }
  constexpr uint32_t Quotient(uint32_t n) const {
    const auto high = static_cast<uint32_t>((uint64_t{n} * multiplier) >> 32);
    return (n + high) >> shift;
  }
};

inline constexpr int kMaxAxes = 8;
// Elements that one launch walks: what Divisor divides.
inline constexpr int64_t kMaxWalked = (int64_t{1} << 31) - 1;

// Axes of the result, the innermost first, and how far apart neighbours along them are in each of a
// few tensors: in elements, 0 where a tensor is repeated.
template <int kTensors>
struct Strided {
  int axes = 0;
  Divisor sizes[kMaxAxes];
  int64_t strides[kTensors][kMaxAxes] = {};

  // The place of element `index` of the result in the first `tensors` tensors.
  constexpr void PlacesOf(uint32_t index, int tensors, int64_t (&places)[kTensors]) const {
    for (int t = 0; t < tensors; ++t) places[t] = 0;
    for (int axis = 0; axis < axes; ++axis) {
      const uint32_t rest = sizes[axis].Quotient(index);
      const int64_t at = index - rest * sizes[axis].size;
      for (int t = 0; t < tensors; ++t) places[t] += at * strides[t][axis];
      index = rest;
    }
  }
};

// The same on the host: neighbouring axes are one where all tensors allow it, and there are none of
// size 1. Many walks where the result has more than kMaxWalked elements.
template <int kTensors>
struct StridedAxes {
  struct Axis {
    int64_t size = 1;
    std::array<int64_t, kTensors> strides = {};
  };
  std::vector<Axis> axes;  // the outermost first; not empty

  // strides[t] has one entry a dim.
  StridedAxes(const std::vector<int64_t>& dims, const std::vector<std::vector<int64_t>>& strides) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == 1) continue;
      Axis axis{.size = dims[d]};
      for (size_t t = 0; t < strides.size(); ++t) axis.strides[t] = strides[t][d];
      bool joins =
          !axes.empty() && axes.back().size <= kMaxWalked / std::max<int64_t>(axis.size, 1);
      for (int t = 0; joins && t < kTensors; ++t) {
        joins = axes.back().strides[t] == axis.strides[t] * axis.size;
      }
      if (joins) {
        axis.size *= axes.back().size;
        axes.back() = axis;
      } else {
        axes.push_back(axis);
      }
    }
    if (axes.empty()) axes.push_back({});
  }

  Axis& inner() { return axes.back(); }
  int64_t size() const {
    int64_t product = 1;
    for (const Axis& axis : axes) product *= axis.size;
    return product;
  }
  // What a kernel walks at once: inner axes of at most kMaxWalked elements together. How many axes are
  // left outside.
  size_t outer_axes() const {
    int64_t product = 1;
    size_t outer = axes.size();
    while (outer > 0 && axes.size() - outer < kMaxAxes &&
           axes[outer - 1].size <= kMaxWalked / product) {
      product *= std::max<int64_t>(axes[--outer].size, 1);
    }
    return outer;
  }

  Strided<kTensors> Walked() const {
    Strided<kTensors> walked;
    for (size_t i = axes.size(); i-- > outer_axes();) {
      walked.sizes[walked.axes] = Divisor(static_cast<uint32_t>(axes[i].size));
      for (int t = 0; t < kTensors; ++t) walked.strides[t][walked.axes] = axes[i].strides[t];
      ++walked.axes;
    }
    return walked;
  }

  // Calls launch(places) for each point of the axes outside, with the place of its first element in each
  // tensor, until one does not return 0; returns what the last one did. kTooLong for an axis that no walk
  // holds.
  static constexpr int kTooLong = 1;  // cudaErrorInvalidValue
  template <typename F>
  int ForEachWalk(const F& launch) const {
    const size_t outer = outer_axes();
    if (outer == axes.size()) return kTooLong;
    int64_t count = 1;
    for (size_t i = 0; i < outer; ++i) count *= axes[i].size;
    for (int64_t point = 0; point < count; ++point) {
      std::array<int64_t, kTensors> places = {};
      int64_t rest = point;
      for (size_t i = outer; i-- > 0; rest /= axes[i].size) {
        for (int t = 0; t < kTensors; ++t) places[t] += rest % axes[i].size * axes[i].strides[t];
      }
      if (const int error = launch(places); error != 0) return error;
    }
    return 0;
  }
  // Elements of one walk.
  int64_t walked_size() const {
    int64_t product = 1;
    for (size_t i = outer_axes(); i < axes.size(); ++i) product *= axes[i].size;
    return product;
  }
};

// Strides of a dense tensor, and of one that is repeated to `dims`.
inline std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}
inline std::vector<int64_t> RepeatedStrides(const std::vector<int64_t>& own,
                                            const std::vector<int64_t>& dims) {
  const std::vector<int64_t> dense = DenseStrides(own);
  std::vector<int64_t> strides(dims.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] != 1) strides[dims.size() - own.size() + i] = dense[i];
  }
  return strides;
}

}  // namespace pagefuse::cuda
