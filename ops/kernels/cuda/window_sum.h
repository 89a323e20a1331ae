// SPDX-License-Identifier: Apache-2.0
// Windows of rows summed into one, column by column, each row weighted by the softmax of its scores. Device code: for .cu files.
//
// A block of (lanes, groups) threads: a lane has kVector neighbouring columns, and groups take rows in turn, kWindowRows at a time.
#pragma once

#include <algorithm>
#include <cmath>

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"

namespace pagefuse::cuda {

inline constexpr int kWindowRows = 4;       // that a thread loads at a time
inline constexpr int kWindowThreads = 512;  // of a block, at most

// Threads for `pieces` pieces of columns of `rows` rows.
inline dim3 WindowBlock(int64_t pieces, int64_t rows) {
  constexpr int64_t kLanes = 32;
  const int64_t lanes =
      std::clamp<int64_t>(CeilDiv(pieces, kLanes) * kLanes, kLanes, kWindowThreads);
  const int64_t groups = std::clamp<int64_t>(CeilDiv(rows, kWindowRows), 1, kWindowThreads / lanes);
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
  __device__ void Add(const float (&scores)[kWindowRows], const float (&values)[kWindowRows]) {
    float next = largest;
    for (const float score : scores) next = fmaxf(next, score);
    const float kept = KeptAt(next);
    weights *= kept;
    sum *= kept;
    largest = next;
    for (int i = 0; i < kWindowRows; ++i) {
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
template <int kVector, class Load>
__device__ void SumRows(uint32_t begin, uint32_t end, const Load& load, WindowSum<kVector>& sum) {
  for (uint32_t first = begin + threadIdx.y * kWindowRows; first < end;
       first += blockDim.y * kWindowRows) {
    Vector<float, kVector> scores[kWindowRows], values[kWindowRows];
#pragma unroll
    for (int i = 0; i < kWindowRows; ++i) {
      if (first + i < end) {
        load(first + i, scores[i], values[i]);
        continue;
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) scores[i].at[v] = -INFINITY, values[i].at[v] = 0.0f;
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      float column_scores[kWindowRows], column[kWindowRows];
#pragma unroll
      for (int i = 0; i < kWindowRows; ++i) {
        column_scores[i] = scores[i].at[v], column[i] = values[i].at[v];
      }
      sum.at[v].Add(column_scores, column);
    }
  }
}

// Joins the sums of all groups, which then the first one has. All threads come here; `shared` has room for those of the other groups.
template <int kVector>
__device__ void JoinGroups(WindowSum<kVector>& sum, WindowSum<kVector>* shared) {
  if (blockDim.y == 1) return;
  __syncthreads();  // what was there is read
  WindowSum<kVector>* own = shared + threadIdx.x;
  if (threadIdx.y > 0) own[(threadIdx.y - 1) * blockDim.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (unsigned group = 0; group + 1 < blockDim.y; ++group) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum.at[v].Join(own[group * blockDim.x].at[v]);
  }
}
// Bytes of that room.
template <int kVector>
size_t JoinedBytes(const dim3& block) {
  return size_t{block.x} * (block.y - 1) * sizeof(WindowSum<kVector>);
}

}  // namespace pagefuse::cuda
