// SPDX-License-Identifier: Apache-2.0
// Decode over TurboQuant slots of 128 channels with keys and values of four bits: a warp computes one KV head of a page. Device code: for .cu
// files.
//
// Keys: a table takes a byte, two codes, to their centroids as two halves; each bank of shared memory has a copy. A of the products has queries
// in rows 0 to 7 and the keys themselves in rows 8 to 15: what comes out there has the squares of the keys' lengths on its diagonal, which is the
// norm correction. Values: masked bits are halves, brought back at the end; a key's zero is added by its weight alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_slot_places.h"

namespace pagefuse::cuda::slots {

// Queries as A: for each word and byte of a lane's row two channels.
struct Queries {
  uint32_t pairs[kWords / 4][4];
  float factor;

  __device__ void Load(const PagedAttention& p, int64_t row, NibbleRow order) {
    const int t = LaneId() % 4;
    const auto load = [&](int i, int n) -> float2 {
      if (row < 0) return {0, 0};
      const float* from = p.rotated_query + row * kSize + order.Channel(t + 4 * i, n);
      return *reinterpret_cast<const float2*>(from);
    };
    float largest = 0;
#pragma unroll 1
    for (int i = 0; i < kWords / 4; ++i) {
      for (int n = 0; n < 4; ++n) {
        const float2 x = load(i, n);
        largest = fmaxf(largest, fmaxf(fabsf(x.x), fabsf(x.y)));
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const int exponent = HalfExponent(largest);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    factor = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 x = load(i, n);
        pairs[i][n] = PackHalves(x.x * scale, x.y * scale);
      }
    }
  }
};

// Products of the queries with keys g of half a page, and the keys' squares.
__device__ inline void ScoreHalf(const Queries& query, const LanePlaces& at, uint32_t page,
                                 uint32_t table, float (&c)[4]) {
  float e[4] = {};  // two chains
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 3; ++i) words[i] = ptx::LoadShared<uint32_t>(page + at.keys + 16 * i);
  words[3] = BytePermute(ptx::LoadShared<uint32_t>(page + at.last_key),
                         ptx::LoadShared<uint32_t>(page + at.keys + 48), at.last_key_selector);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t pairs[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      pairs[n] = ptx::LoadShared<uint32_t>(BytePermute(words[i], table, kEntryAddress | n << 4));
    }
    ptx::MultiplyHalves8(c, query.pairs[i][0], pairs[0], pairs[0]);
    ptx::MultiplyHalves8(e, query.pairs[i][1], pairs[1], pairs[1]);
    ptx::MultiplyHalves8(c, query.pairs[i][2], pairs[2], pairs[2]);
    ptx::MultiplyHalves8(e, query.pairs[i][3], pairs[3], pairs[3]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) c[j] += e[j];
}

// Of keys 2t and 2t + 1 of both halves of a page.
struct KeyNumbers {
  float scores[2][2], weighed[2][2];  // in log2; without and with the value's scale
  float scales[2][2];                 // of values
};

__device__ inline KeyNumbers ScorePage(const PagedAttention& p, const Queries& query,
                                       const LanePlaces& at, uint32_t page, uint32_t table,
                                       PageMask mask) {
  constexpr float kLeastScale = 0x1p-20f;  // a scale may be 0
  const int t = LaneId() % 4;
  KeyNumbers keys;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float c[4] = {};
    ScoreHalf(query, at, page + half * 8 * at.token, table, c);
    // Key j of the half has its square in row j + 8, column j.
    const float squares[2] = {__shfl_sync(kAllLanes, c[2], 9 * t),
                              __shfl_sync(kAllLanes, c[3], 9 * t + 4)};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint32_t slot = page + at.fields + (half * 8 + j) * at.token;
      float factor = p.batch.scale * query.factor * LoadHalf(slot + kNormOffset);
      if (p.norm_correction) factor *= ptx::InverseRoot(squares[j] + kTurboQuantSquareFloor);
      const bool seen = mask.all() || mask.Has(half * 8 + 2 * t + j);
      const float score = ScoreInLog2(c[j], factor, p.batch.rules.softcap);
      const float scale = LoadHalf(slot + kScaleOffset);
      keys.scales[half][j] = seen ? scale : 0;
      keys.scores[half][j] = seen ? score : -INFINITY;
      keys.weighed[half][j] = seen ? score + ptx::Log2(fmaxf(scale, kLeastScale)) : -INFINITY;
    }
  }
  return keys;
}

// Outputs of the warp's heads so far, without what values' zeros add.
struct Outputs {
  float tiles[8][4];

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < 8; ++i) tiles[i][0] = tiles[i][1] = tiles[i][2] = tiles[i][3] = 0;
  }
  __device__ void Scale(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tiles[i][0] *= factors[0], tiles[i][1] *= factors[1];
      tiles[i][2] *= factors[0], tiles[i][3] *= factors[1];
    }
  }
  __device__ void AddPage(const LanePlaces& at, uint32_t page, const uint32_t (&weights)[2]) {
    uint32_t words[4][2];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9: words g and g + 8
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t token = page + (k % 2 + k / 2 * 8) * at.token;
      words[k][0] = ptx::LoadShared<uint32_t>(token + at.values);
      words[k][1] =
          BytePermute(ptx::LoadShared<uint32_t>(token + at.last_value),
                      ptx::LoadShared<uint32_t>(token + at.values + 32), at.last_value_selector);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of a word
      const uint32_t selector = half == 0 ? 0x5410 : 0x7632;
      uint32_t pairs[2][2];  // [word][keys 2t, 2t + 1, or 2t + 8, 2t + 9]
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        pairs[word][0] = BytePermute(words[0][word], words[1][word], selector);
        pairs[word][1] = BytePermute(words[2][word], words[3][word], selector);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {  // nibbles
        const uint32_t mask = n % 2 == 0 ? kLowNibbles : kHighNibbles;
        const int shift = n / 2 * 8;
        const uint32_t a[4] = {pairs[0][0] >> shift & mask, pairs[1][0] >> shift & mask,
                               pairs[0][1] >> shift & mask, pairs[1][1] >> shift & mask};
        ptx::MultiplyHalves(tiles[half * 4 + n], a, weights[0], weights[1]);
      }
    }
  }
  // zeros: of heads 2t and 2t + 1.
  __device__ void Store(float* values, int group, NibbleRow order, const float (&zeros)[2]) const {
    const int g = LaneId() / 4, t = LaneId() % 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (2 * t + j >= group) continue;
      float* row = values + (2 * t + j) * kSize;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const float2 pair = {tiles[2 * byte][2 * upper + j] * kLowNibbleUnit + zeros[j],
                               tiles[2 * byte + 1][2 * upper + j] * kHighNibbleUnit + zeros[j]};
          *reinterpret_cast<float2*>(row + order.Channel(g + 8 * upper, byte)) = pair;
        }
      }
    }
  }
};

__device__ inline void AttendPage(const PagedAttention& p, const Queries& query,
                                  const LanePlaces& at, uint32_t page, uint32_t table,
                                  PageMask mask, DecodeSoftmax& softmax, Outputs& output) {
  const KeyNumbers keys = ScorePage(p, query, at, page, table, mask);
  float keep;
  if (softmax.Raise(keys.weighed, keep)) {
    float of_columns[2];
    OfColumns(keep, of_columns);
    output.Scale(of_columns);
  }
  uint32_t weights[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float w[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float weight = ptx::Exp2(keys.scores[half][j] - softmax.reference);
      softmax.sum += weight;
      const int key = half * 8 + 2 * (LaneId() % 4) + j;
      const float zero = LoadHalf(page + at.fields + (half * 8 + j) * at.token + kZeroOffset);
      if (mask.all() || mask.Has(key)) softmax.extra += weight * zero;
      w[j] = weight * keys.scales[half][j];
    }
    weights[half] = PackHalves(w[0], w[1]);
  }
  output.AddPage(at, page, weights);
}

__device__ inline void AttendPages(const PagedAttention& p, const DecodePlan& plan,
                                   const PageSchedule& schedule, const StagePlaces& places,
                                   StageBarriers barriers) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = warp % plan.heads, phase = warp / plan.heads;
  const int group = static_cast<int>(p.batch.group());
  const int cta = static_cast<int>(blockIdx.x);
  const int count = schedule.First(cta + 1) - schedule.First(cta);
  const LanePlaces at =
      LanePlaces::Of(head, static_cast<int>(p.keys.data_strides.head), plan.heads);
  const uint32_t table = places.table + 4 * LaneId();
  StageReader reader = {barriers, plan.stages, plan.phases, phase};
  int next = phase;
  for (int begin = 0; begin < count;) {
    const Piece piece = PieceAt(p.batch, schedule, begin);
    const int g = LaneId() / 4;
    const int64_t row = p.batch.first_token(piece.b) * p.batch.num_heads + head * group + g;
    Queries query;
    query.Load(p, g < group ? row : -1, at.key_row);
    DecodeSoftmax softmax;
    Outputs output;
    output.Clear();
    for (; next < piece.end; next += plan.phases) {
      reader.Wait();
      const PageMask mask = PageMask::Of(piece, next);
      AttendPage(p, query, at, places.At(reader.stage), table, mask, softmax, output);
      reader.Release();
    }
    softmax.Join();
    float zeros[2];
    OfColumns(softmax.extra, zeros);
    const PartialResult to = PartialOf(p, plan, schedule.SlotOf(piece.owner, cta), warp);
    StoreSums(to, softmax, group);
    output.Store(to.values, group, at.value_row, zeros);
    begin = piece.end;
  }
}

// Entry of a byte: the centroids of its low and its high code.
__device__ inline void FillTable(const float* centroids, uint32_t table) {
  for (int i = static_cast<int>(threadIdx.x); i < 256 * kWarp; i += kThreads) {
    const int code = i / kWarp;
    ptx::StoreShared(table + code * kTableRow + i % kWarp * 4,
                     PackHalves(centroids[code & 15], centroids[code >> 4]));
  }
}

}  // namespace pagefuse::cuda::slots
