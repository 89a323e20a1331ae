// SPDX-License-Identifier: Apache-2.0
// Decode over TurboQuant slots of 128 channels: a warp computes one KV head of a page. Device code: for .cu files.
//
// Keys: a table takes two codes to their centroids as two halves; each bank of shared memory has a copy. Products of their squares with ones are
// the squares of the keys' lengths, for the norm correction. Codes of e4m3fn are widened. Values: masked bits are halves, brought back at the
// end; a key's zero is added by its weight alone.
#pragma once

#include "pagefuse/ops/kernels/cuda/paged_decode_slot_outputs.h"

namespace pagefuse::cuda::slots {

// x times the Hadamard matrix / sqrt(kSize), element 4 i + k of lane i.
__device__ inline void Rotate(float (&x)[4]) {
  const float a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
  x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
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
}

// The queries of a sequence in the space of keys, as halves in shared memory [heads, kSize], and behind them the factor of each row. By all
// warps that compute.
template <class Format>
__device__ void RotateQueries(const PagedAttention& p, int64_t token, uint32_t to) {
  const auto heads = static_cast<int>(p.batch.num_heads);
  const auto* query = static_cast<const uint16_t*>(p.query) + token * heads * kSize;
#pragma unroll 1
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < heads; h += kWarps) {
    const uint2 words = *reinterpret_cast<const uint2*>(query + h * kSize + 4 * LaneId());
    float x[4] = {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xFFFF0000u),
                  __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xFFFF0000u)};
    if constexpr (Format::kHasCentroids) Rotate(x);
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

// Queries as B, columns g.
struct Queries {
  uint32_t pairs[16];
  float factors[2];  // what products of heads 2t and 2t + 1 lack

  // `row`: of the sequence's heads in shared memory; negative: none.
  template <class Format>
  __device__ void Load(uint32_t from, int row, int heads, bool odd) {
    // Places are computed for each piece anew: kept for the next one, they would lie in memory.
    const auto t = static_cast<int>(Keep(static_cast<uint32_t>(LaneId() % 4)));
    OfColumns(row < 0 ? 1 : ptx::LoadShared<float>(from + heads * 2 * kSize + 4 * row), factors);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t at = from + 2 * (row * kSize + Format::KeyChannel(t, i, odd));
      pairs[i] = row < 0 ? 0 : ptx::LoadShared<uint32_t>(at);
    }
  }
};

// A lane's part of a key, and its pairs of channels as halves.
template <class Format>
struct Key {
  static constexpr int kWords = Format::kKeyBits;
  uint32_t words[kWords];

  __device__ Key(const LanePlaces& at, uint32_t page) {
    if constexpr (Format::kKeyBits == 3) {
      uint32_t touched[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) touched[i] = ptx::LoadShared<uint32_t>(page + at.keys + 4 * i);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        words[i] = BytePermute(touched[i], touched[i + 1], at.last_key_selector);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = ptx::LoadShared<uint32_t>(page + at.keys + 16 * i);
      }
    }
    if constexpr (Format::kKeyBits == 4) {
      words[3] = BytePermute(ptx::LoadShared<uint32_t>(page + at.last_key), words[3],
                             at.last_key_selector);
    }
  }
  // Pairs 2 step and the next.
  __device__ void Pairs(int step, uint32_t table, uint32_t& first, uint32_t& second) const {
    if constexpr (Format::kKeyBits == 8) {
      WidenE4m3(words[step], first, second);
    } else {
      first = Centroids(2 * step, table), second = Centroids(2 * step + 1, table);
    }
  }

 private:
  __device__ uint32_t Centroids(int pair, uint32_t table) const {
    if constexpr (Format::kKeyBits == 3) {
      return ptx::LoadShared<uint32_t>((KeyPairOf(words, pair) & kKeyPairMask) | table);
    } else {
      const uint32_t selector = kEntryAddress | pair % 4 << 4;
      return ptx::LoadShared<uint32_t>(BytePermute(words[pair / 4], table, selector));
    }
  }
};

// Products of keys g and g + 8 of a page with queries 2t and 2t + 1, and the keys' squares where lengths are corrected.
template <class Format>
__device__ void Scores(const Queries& query, const LanePlaces& at, uint32_t page, uint32_t table,
                       float (&dots)[2][2], float (&squares)[2]) {
  constexpr uint32_t kOnes = 0x3C003C00u;
  float c[2][4] = {}, s[2][4] = {};  // two chains each
  const Key<Format> upper(at, page), lower(at, page + 8 * at.token);
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    uint32_t a[4];
    upper.Pairs(step, table, a[0], a[2]);
    lower.Pairs(step, table, a[1], a[3]);
    ptx::MultiplyHalves(c[step % 2], a, query.pairs[2 * step], query.pairs[2 * step + 1]);
    if constexpr (Format::kHasCentroids) {
      const uint32_t b[4] = {ptx::SquareHalves(a[0]), ptx::SquareHalves(a[1]),
                             ptx::SquareHalves(a[2]), ptx::SquareHalves(a[3])};
      ptx::MultiplyHalves(s[step % 2], b, kOnes, kOnes);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    squares[half] = s[0][2 * half] + s[1][2 * half];
#pragma unroll
    for (int j = 0; j < 2; ++j) dots[half][j] = c[0][2 * half + j] + c[1][2 * half + j];
  }
}

// kPlain: all keys are seen, lengths are corrected, and scores have no cap.
template <class Format, bool kPlain>
__device__ void AttendPage(const PagedAttention& p, const Queries& query, const LanePlaces& at,
                           uint32_t page, uint32_t table, PageMask mask, DecodeSoftmax& softmax,
                           Outputs& output) {
  constexpr float kLeastScale = 0x1p-30f;
  const int g = LaneId() / 4;
  float scores[2][2], squares[2], scales[2], zeros[2];
  Scores<Format>(query, at, page, table, scores, squares);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t slot = page + at.fields + half * 8 * at.token;
    float norm = 1;
    if constexpr (Format::kHasCentroids) {
      norm = LoadHalf(slot + Format::kNormOffset);
      if (kPlain || p.norm_correction) {
        norm *= ptx::InverseRoot(squares[half] + kTurboQuantSquareFloor);
      }
    }
    scales[half] = ScaleOfValue(LoadHalf(slot + Format::kScaleOffset), kLeastScale);
    zeros[half] = LoadHalf(slot + Format::kZeroOffset);
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
  output.AddPage<Format>(at, page, pairs);
}

// Among the warps that compute.
__device__ inline void SyncComputing() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory");
}

template <class Format>
__device__ void AttendPages(const PagedAttention& p, const DecodePlan& plan, const CtaPages& pages,
                            const StagePlaces& places, StageBarriers barriers) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = warp & (plan.heads - 1), phase = warp >> plan.heads_log2;
  const int group = plan.group;
  const int count = pages.count;
  const LanePlaces at =
      LanePlaces::Of<Format>(head, static_cast<int>(p.keys.data_strides.head), plan.heads);
  const uint32_t table = places.table + 4 * LaneId();
  const bool plain_scores =
      (!Format::kHasCentroids || p.norm_correction) && p.batch.rules.softcap <= 0;
  StageReader reader = {barriers, plan.stages, plan.phases, phase};
  int next = phase;
  for (int begin = 0; begin < count;) {
    const Piece piece = PieceAt(pages, begin);
    const int g = LaneId() / 4;
    SyncComputing();  // all have read the queries before
    RotateQueries<Format>(p, p.batch.first_token(piece.b), places.queries);
    SyncComputing();
    Queries query;
    query.Load<Format>(places.queries, g < group ? head * group + g : -1,
                       static_cast<int>(p.batch.num_heads), at.odd_key);
    for (float& factor : query.factors) factor *= p.batch.scale * kLog2E;
    DecodeSoftmax softmax;
    Outputs output;
    output.Clear();
    for (; next < piece.end; next += plan.phases) {
      reader.Wait();
      const PageMask mask = PageMask::Of(piece, next);
      const uint32_t page = places.At(reader.stage);
      if (plain_scores && mask.all()) {
        AttendPage<Format, true>(p, query, at, page, table, mask, softmax, output);
      } else {
        AttendPage<Format, false>(p, query, at, page, table, mask, softmax, output);
      }
      reader.Release();
    }
    softmax.Join();
    const PartialResult to = PartialOf(p, plan, piece.slot, warp);
    StoreSums(to, softmax, group);
    output.Store<Format>(to.values, group, at.odd_value, softmax.extra);
    begin = piece.end;
  }
}

// Entry of two codes: the centroids of the low and of the high one. By the warps that compute.
template <class Format>
__device__ void FillTable(const float* centroids, uint32_t table) {
  constexpr int kCodes = 1 << Format::kKeyBits;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Format::kTableEntries * 8; i += kWarps * kWarp) {
    const int codes = i / 8;
    const uint32_t entry = PackHalves(centroids[codes % kCodes], centroids[codes / kCodes]);
    ptx::StoreShared(table + codes * Format::kTableRow + i % 8 * 16,
                     make_uint4(entry, entry, entry, entry));
  }
}

}  // namespace pagefuse::cuda::slots
