// SPDX-License-Identifier: Apache-2.0
// Decode over TurboQuant slots of 128 channels with keys and values of four bits: a warp computes one KV head of a page. Device code: for .cu
// files.
//
// Keys: a table takes a byte, two codes, to their centroids as two halves; each bank of shared memory has a copy. Products of their squares with
// ones are the squares of the keys' lengths, for the norm correction. Values: masked bits are halves, brought back at the end; a key's zero is
// added by its weight alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_slot_places.h"

namespace pagefuse::cuda::slots {

// The queries of a sequence in the space of keys, as halves in shared memory [heads, kSize], and behind them the factor of each row. By all
// warps that compute.
__device__ inline void RotateQueries(const PagedAttention& p, int64_t token, uint32_t to) {
  const auto heads = static_cast<int>(p.batch.num_heads);
  const auto* query = static_cast<const uint16_t*>(p.query) + token * heads * kSize;
#pragma unroll 1
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < heads; h += kWarps) {
    const uint2 words = *reinterpret_cast<const uint2*>(query + h * kSize + 4 * LaneId());
    float x[4];
    const auto widen = [](uint32_t code) { return __uint_as_float(code); };
    const float a = widen(words.x << 16), b = widen(words.x & 0xFFFF0000u);
    const float c = widen(words.y << 16), d = widen(words.y & 0xFFFF0000u);
    x[0] = a + b + (c + d), x[1] = a - b + (c - d), x[2] = a + b - (c + d), x[3] = a - b - (c - d);
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float other = __shfl_xor_sync(kAllLanes, x[i], distance);
        x[i] = (LaneId() & distance) != 0 ? other - x[i] : x[i] + other;
      }
    }
    constexpr float kEntry = 0.08838834764831845f;  // 1 / sqrt(kSize)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= kEntry;
    const float largest =
        MaxOfLanes(fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3]))));
    const int exponent = HalfExponent(largest);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    const uint2 halves = {PackHalves(x[0] * scale, x[1] * scale),
                          PackHalves(x[2] * scale, x[3] * scale)};
    ptx::StoreShared(to + h * 2 * kSize + 8 * LaneId(), halves);
    if (LaneId() == 0) {
      ptx::StoreShared(to + heads * 2 * kSize + 4 * h,
                       __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23));
    }
  }
}

// Queries as B, columns g: for each word and byte of a lane's row two channels.
struct Queries {
  uint32_t pairs[kWords / 4][4];
  float factors[2];  // what products of heads 2t and 2t + 1 lack

  // `row`: of the sequence's heads in shared memory; negative: none.
  __device__ void Load(uint32_t from, int row, int heads, NibbleRow order) {
    const int t = LaneId() % 4;
    OfColumns(row < 0 ? 1 : ptx::LoadShared<float>(from + heads * 2 * kSize + 4 * row), factors);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t at = from + 2 * (row * kSize + order.Channel(t + 4 * i, n));
        pairs[i][n] = row < 0 ? 0 : ptx::LoadShared<uint32_t>(at);
      }
    }
  }
};

// The words of a lane's part of a key.
__device__ inline void LoadKey(const LanePlaces& at, uint32_t page, uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) words[i] = ptx::LoadShared<uint32_t>(page + at.keys + 16 * i);
  words[3] = BytePermute(ptx::LoadShared<uint32_t>(page + at.last_key),
                         ptx::LoadShared<uint32_t>(page + at.keys + 48), at.last_key_selector);
}

// Products of keys g and g + 8 of a page with queries 2t and 2t + 1, and the keys' squares.
__device__ inline void Scores(const Queries& query, const LanePlaces& at, uint32_t page,
                              uint32_t table, float (&dots)[2][2], float (&squares)[2]) {
  constexpr uint32_t kOnes = 0x3C003C00u;
  float c[2][4] = {}, s[2][4] = {};  // two chains each
  uint32_t upper[4], lower[4];
  LoadKey(at, page, upper);
  LoadKey(at, page + 8 * at.token, lower);
  const auto pair = [&](uint32_t word, int n) {
    return ptx::LoadShared<uint32_t>(BytePermute(word, table, kEntryAddress | n << 4));
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t a[4] = {pair(upper[i], 2 * n), pair(lower[i], 2 * n),
                             pair(upper[i], 2 * n + 1), pair(lower[i], 2 * n + 1)};
      ptx::MultiplyHalves(c[n], a, query.pairs[i][2 * n], query.pairs[i][2 * n + 1]);
      const uint32_t b[4] = {ptx::SquareHalves(a[0]), ptx::SquareHalves(a[1]),
                             ptx::SquareHalves(a[2]), ptx::SquareHalves(a[3])};
      ptx::MultiplyHalves(s[n], b, kOnes, kOnes);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    squares[half] = s[0][2 * half] + s[1][2 * half];
#pragma unroll
    for (int j = 0; j < 2; ++j) dots[half][j] = c[0][2 * half + j] + c[1][2 * half + j];
  }
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

// kPlain: all keys are seen, lengths are corrected, and scores have no cap.
template <bool kPlain>
__device__ inline void AttendPage(const PagedAttention& p, const Queries& query,
                                  const LanePlaces& at, uint32_t page, uint32_t table,
                                  PageMask mask, DecodeSoftmax& softmax, Outputs& output) {
  constexpr float kLeastScale = 0x1p-30f;  // a scale may be 0
  const int g = LaneId() / 4;
  float scores[2][2], squares[2], scales[2], zeros[2];
  Scores(query, at, page, table, scores, squares);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t slot = page + at.fields + half * 8 * at.token;
    float norm = LoadHalf(slot + kNormOffset);
    scales[half] = fmaxf(LoadHalf(slot + kScaleOffset), kLeastScale);
    zeros[half] = LoadHalf(slot + kZeroOffset);
    if (kPlain || p.norm_correction) {
      norm *= ptx::InverseRoot(squares[half] + kTurboQuantSquareFloor);
    }
    const bool seen = kPlain || mask.Has(half * 8 + g);
    if (!seen) scales[half] = 1, zeros[half] = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scores[half][j] *= norm * query.factors[j];
      if constexpr (!kPlain) {
        scores[half][j] = seen ? CapInLog2(scores[half][j], p.batch.rules.softcap) : -INFINITY;
      }
    }
  }
  float weights[2][2], weighed[2][2], keep[2];
  if (softmax.Weigh(scores, scales, weights, weighed, keep)) output.Scale(keep);
  uint32_t pairs[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 2; ++j) softmax.extra[j] += weights[half][j] * zeros[half];
    pairs[half] = ptx::Transpose(PackHalves(weighed[half][0], weighed[half][1]));
  }
  output.AddPage(at, page, pairs);
}

// Among the warps that compute.
__device__ inline void SyncComputing() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory");
}

__device__ inline void AttendPages(const PagedAttention& p, const DecodePlan& plan,
                                   const PageSchedule& schedule, const KeySpan* keys,
                                   const StagePlaces& places, StageBarriers barriers) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = warp % plan.heads, phase = warp / plan.heads;
  const int group = static_cast<int>(p.batch.group());
  const int cta = static_cast<int>(blockIdx.x);
  const int count = schedule.First(cta + 1) - schedule.First(cta);
  const LanePlaces at =
      LanePlaces::Of(head, static_cast<int>(p.keys.data_strides.head), plan.heads);
  const uint32_t table = places.table + 4 * LaneId();
  const bool plain_scores = p.norm_correction && p.batch.rules.softcap <= 0;
  StageReader reader = {barriers, plan.stages, plan.phases, phase};
  int next = phase;
  for (int begin = 0; begin < count;) {
    const Piece piece = PieceAt(schedule, keys, begin);
    const int g = LaneId() / 4;
    SyncComputing();  // all have read the queries before
    RotateQueries(p, p.batch.first_token(piece.b), places.queries);
    SyncComputing();
    Queries query;
    query.Load(places.queries, g < group ? head * group + g : -1,
               static_cast<int>(p.batch.num_heads), at.key_row);
    for (float& factor : query.factors) factor *= p.batch.scale * kLog2E;
    DecodeSoftmax softmax;
    Outputs output;
    output.Clear();
    for (; next < piece.end; next += plan.phases) {
      reader.Wait();
      const PageMask mask = PageMask::Of(piece, next);
      const uint32_t page = places.At(reader.stage);
      if (plain_scores && mask.all()) {
        AttendPage<true>(p, query, at, page, table, mask, softmax, output);
      } else {
        AttendPage<false>(p, query, at, page, table, mask, softmax, output);
      }
      reader.Release();
    }
    softmax.Join();
    const PartialResult to = PartialOf(p, plan, schedule.SlotOf(piece.owner, cta), warp);
    StoreSums(to, softmax, group);
    output.Store(to.values, group, at.value_row, softmax.extra);
    begin = piece.end;
  }
}

// Entry of a byte: the centroids of its low and its high code. By the warps that compute.
__device__ inline void FillTable(const float* centroids, uint32_t table) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < 256 * 8; i += kWarps * kWarp) {
    const int code = i / 8;
    const uint32_t entry = PackHalves(centroids[code & 15], centroids[code >> 4]);
    ptx::StoreShared(table + code * kTableRow + i % 8 * 16, make_uint4(entry, entry, entry, entry));
  }
}

}  // namespace pagefuse::cuda::slots
