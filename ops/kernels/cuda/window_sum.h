// SPDX-License-Identifier: Apache-2.0
// Windows of rows summed into one, column by column, each row weighted by the softmax of its scores. Device code: for .cu files.
//
// A block of (lanes, groups) threads: a lane has kVector neighbouring columns, and groups take rows in turn, some at a time.
#pragma once

#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"

namespace pagefuse::cuda {

inline constexpr int kWindowRows = 4;       // that a thread loads at a time, mostly
inline constexpr int kWindowThreads = 512;  // of a block, at most

// At most `threads` threads for `pieces` pieces of columns of `rows` rows, `at_once` of them at a time.
inline dim3 WindowBlock(int64_t pieces, int64_t rows, int64_t threads = kWindowThreads,
                        int64_t at_once = kWindowRows) {
  constexpr int64_t kLanes = 32;
  const int64_t lanes = std::clamp<int64_t>(CeilDiv(pieces, kLanes) * kLanes, kLanes, threads);
  const int64_t groups = std::clamp<int64_t>(CeilDiv(rows, at_once), 1, threads / lanes);
  return dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(groups));
}

// The rows so far, of one column: weights are e^(score - largest).
struct ColumnSum {
  float largest = -INFINITY;
  float weights = 0.0f;
  float sum = 0.0f;

  // What sums so far are multiplied by where `next` becomes the largest. Nothing is added before there is a score above -inf.
  __device__ float KeptAt(float next) const {
    return largest == next ? 1.0f : expf(largest - next);
  }
  template <int kRows>
  __device__ void Add(const float (&scores)[kRows], const float (&values)[kRows]) {
    float next = largest;
    for (const float score : scores) next = fmaxf(next, score);
    const float kept = KeptAt(next);
    weights *= kept;
    sum *= kept;
    largest = next;
    for (int i = 0; i < kRows; ++i) {
      const float weight = scores[i] == -INFINITY ? 0.0f : expf(scores[i] - next);
      weights += weight;
      sum += weight * values[i];
    }
  }
  __device__ void Join(const ColumnSum& other) {
    const float next = fmaxf(largest, other.largest);
    const float kept = KeptAt(next), joined = other.KeptAt(next);
    weights = weights * kept + other.weights * joined;
    sum = sum * kept + other.sum * joined;
    largest = next;
  }
  // NaN where no score is above -inf.
  __device__ float Result() const { return __fdiv_rn(sum, weights); }
};

template <int kVector>
struct WindowSum {
  ColumnSum at[kVector];
};

// The sum of this thread's rows among [begin, end), at most 2^31: load(i, scores, values) gives row i.
template <int kVector, int kRows = kWindowRows, class Load>
__device__ void SumRows(uint32_t begin, uint32_t end, const Load& load, WindowSum<kVector>& sum) {
#pragma unroll 1
  for (uint32_t first = begin + threadIdx.y * kRows; first < end; first += blockDim.y * kRows) {
    Vector<float, kVector> scores[kRows], values[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (first + i < end) {
        load(first + i, scores[i], values[i]);
        continue;
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) scores[i].at[v] = -INFINITY, values[i].at[v] = 0.0f;
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      float column_scores[kRows], column[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        column_scores[i] = scores[i].at[v], column[i] = values[i].at[v];
      }
      sum.at[v].Add(column_scores, column);
    }
  }
}

// Joins the sums of all groups, which then the first one has: those of the upper half to those of the lower one, and so on. All threads
// come here; `shared` has room for those of the other groups.
template <int kVector>
__device__ void JoinGroups(WindowSum<kVector>& sum, WindowSum<kVector>* shared) {
  if (blockDim.y == 1) return;
  __syncthreads();  // what was there is read
  WindowSum<kVector>* own = shared + threadIdx.x;
#pragma unroll 1
  for (unsigned left = blockDim.y; left > 1;) {
    const unsigned kept = (left + 1) / 2, group = threadIdx.y;
    if (group >= kept && group < left) own[(group - kept) * blockDim.x] = sum;
    __syncthreads();
    if (group + kept < left) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum.at[v].Join(own[group * blockDim.x].at[v]);
    }
    own += (left - kept) * blockDim.x;
    left = kept;
  }
}
// Bytes of that room.
template <int kVector>
size_t JoinedBytes(const dim3& block) {
  return size_t{block.x} * (block.y - 1) * sizeof(WindowSum<kVector>);
}

}  // namespace pagefuse::cuda
