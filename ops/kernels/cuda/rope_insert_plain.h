// SPDX-License-Identifier: Apache-2.0
// RopeCacheInsert of rows that lanes hold in fours, into caches of plain numbers: what layers do in each step. Device code: for .cu files.
//
// A step of one token is as long as what waits one for the other: new lines of instructions and of parameters count as loads do, so there are
// few, and all loads are on their way before one is used.
#pragma once

#include "pagefuse/ops/kernels/cuda/element.h"
#include "pagefuse/ops/kernels/cuda/insert_rows.h"
#include "pagefuse/ops/kernels/cuda/rope_cache_insert.h"
#include "pagefuse/ops/kernels/cuda/strided.h"

namespace pagefuse::cuda {

inline constexpr int kLaneFours = 2;
inline constexpr int kLongestPlainRow = kLaneFours * 4 * kWarp;
inline constexpr int kSpreadWarps =
    1;  // of a block where there are no more rows than multiprocessors

// RopeCacheInsert in few words.
struct PlainRopeInsert {
  // Rows [tokens, heads, size] of query, key or value, and where they go.
  struct Rows {
    int heads, size;
    const void* source;
    const void* norm;  // null: none
    uint8_t* to;
    int64_t block, row, head;  // bytes between those of `to`
  };
  Rows query, key, value;  // of the query a token is a block
  SlotMapping slots;
  const void *cos, *sin;
  const void* positions;
  int pairs, offset, table_rows;
  uint32_t num_slots;
  Divisor block_size;
  float epsilon;
  DataType type, weight_type, table_type, cache_type;  // float, float16, bfloat16
  bool positions_int64, constant_weights;
};

// A lane's four of a row: of elements 4 * (lane + 32 k).
using FourFloats = Four<float>;

template <typename T>
__device__ FourFloats ToFloats(const Four<T>& four) {
  FourFloats floats;
#pragma unroll
  for (int i = 0; i < 4; ++i) floats.at[i] = static_cast<float>(four.at[i]);
  return floats;
}

// Elements [at, at + 4) of float, float16 or bfloat16 as they are in memory, on their way.
class RawFour {
 public:
  __device__ void Load(DataType type, const void* from, int64_t at) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    if (type == DataType::kFloat) {
      words_ = *reinterpret_cast<const uint4*>(bytes + 4 * at);
    } else {
      const uint2 words = *reinterpret_cast<const uint2*>(bytes + 2 * at);
      words_.x = words.x, words_.y = words.y;
    }
  }
  __device__ FourFloats Floats(DataType type) const {
    if (type == DataType::kFloat) return *reinterpret_cast<const FourFloats*>(&words_);
    return type == DataType::kBfloat16 ? FloatsOf<Bfloat>() : FloatsOf<Half>();
  }

 private:
  template <typename T>
  __device__ FourFloats FloatsOf() const {
    const auto& four = *reinterpret_cast<const Four<T>*>(&words_);
    FourFloats floats;
#pragma unroll
    for (int i = 0; i < 4; ++i) floats.at[i] = ToFloat(four.at[i]);
    return floats;
  }

  uint4 words_ = {};
};

// EncodeFloat of small_float.h by the device's own rounding, which has other NaN.
template <typename T, typename F>
__device__ Four<T> Narrowed(const FourFloats& x) {
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const typename F::Storage nan = NanCode<F>(__float_as_uint(x.at[i]));
    four.at[i] = FromFloat<T>(x.at[i]);
    if (x.at[i] != x.at[i]) four.at[i] = *reinterpret_cast<const T*>(&nan);
  }
  return four;
}

// Stores elements [at, at + 4) of a row.
__device__ inline void StoreFour(DataType type, const FourFloats& x, uint8_t* row, int at) {
  if (type == DataType::kFloat) {
    reinterpret_cast<FourFloats*>(row)[at / 4] = x;
  } else if (type == DataType::kBfloat16) {
    reinterpret_cast<Four<Bfloat>*>(row)[at / 4] = Narrowed<Bfloat, Bfloat16Format>(x);
  } else {
    reinterpret_cast<Four<Half>*>(row)[at / 4] = Narrowed<Half, Float16Format>(x);
  }
}

// NormRow of rows/rope_row.h.
__device__ inline void NormFours(FourFloats (&x)[kLaneFours], const RawFour (&weights)[kLaneFours],
                                 DataType weight_type, int size, float epsilon) {
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kLaneFours; ++k) {
    double squares[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) squares[i] = static_cast<double>(x[k].at[i]) * x[k].at[i];
    sum += (squares[0] + squares[1]) + (squares[2] + squares[3]);
  }
  const auto whole = static_cast<float>(SumOfLanes(sum));
  const float mean = __fdiv_rn(whole, static_cast<float>(size));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
#pragma unroll
  for (int k = 0; k < kLaneFours; ++k) {
    const FourFloats weight = weights[k].Floats(weight_type);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[k].at[i] = __fmul_rn(__fmul_rn(x[k].at[i], inverse), weight.at[i]);
    }
  }
}

// Where a four lies among the pairs: its first one, and where the others of those pairs are.
struct FourOfPairs {
  int pair, other;
  bool rotates, first;

  __device__ FourOfPairs(const PlainRopeInsert& p, int at) {
    const int from = at - p.offset;
    first = from < p.pairs;
    rotates = from >= 0 && from < 2 * p.pairs;
    pair = first ? from : from - p.pairs;
    other = first ? at + p.pairs : at - p.pairs;
  }
};

// This lane's part of RotateRow of rows/rope_row.h, whose first numbers are x; `others` are the second ones, or the other way round.
__device__ inline void RotateFour(const FourFloats& others, const FourFloats& cos,
                                  const FourFloats& sin, bool first, FourFloats& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float s = first ? -sin.at[i] : sin.at[i];
    x.at[i] = __fadd_rn(__fmul_rn(x.at[i], cos.at[i]), __fmul_rn(others.at[i], s));
  }
}

template <typename T>
__global__ void __launch_bounds__(8 * kWarp)
    PlainRopeInsertKernel(const __grid_constant__ PlainRopeInsert p) {
  ptx::LetNextKernelBegin();
  if (!p.constant_weights) ptx::WaitForKernelBefore();
  const int row = RowOfWarp(), key_row = row - p.query.heads, value_row = key_row - p.key.heads;
  const bool is_query = key_row < 0, is_value = value_row >= 0;
  const PlainRopeInsert::Rows& rows = is_query ? p.query : is_value ? p.value : p.key;
  const int head = is_query ? row : is_value ? value_row : key_row;
  const bool has_row = head < rows.heads, norms = rows.norm != nullptr;
  const auto at = [](int k) { return 4 * (LaneId() + kWarp * k); };
  const auto for_own = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < kLaneFours; ++k) {
      if (has_row && at(k) < rows.size) f(k);
    }
  };
  RawFour weights[kLaneFours];
  if (norms) for_own([&](int k) { weights[k].Load(p.weight_type, rows.norm, at(k)); });
  const int64_t token = blockIdx.x;
  const T* from = static_cast<const T*>(rows.source) + (token * rows.heads + head) * rows.size;
  uint8_t* to = rows.to + head * rows.head;
  if (p.constant_weights) ptx::WaitForKernelBefore();

  // Without positions what is loaded for one is not looked at.
  const bool has_position = p.positions != nullptr;
  const IndexAhead given(has_position ? p.positions : p.slots.slots,
                         has_position ? p.positions_int64 : p.slots.is_int64, token);
  Four<T> source[kLaneFours] = {};
  for_own([&](int k) { source[k] = *reinterpret_cast<const Four<T>*>(from + at(k)); });
  const TokenSlot slot(p.slots, token, p.num_slots);
  const int64_t position = has_position ? given.Get() : token;
  RawFour cos[kLaneFours], sin[kLaneFours];
  const bool turns = !is_value && position >= 0 && position < p.table_rows;  // the host checked
  if (turns) {
    for_own([&](int k) {
      const FourOfPairs four(p, at(k));
      if (!four.rotates) return;
      cos[k].Load(p.table_type, p.cos, position * p.pairs + four.pair);
      sin[k].Load(p.table_type, p.sin, position * p.pairs + four.pair);
    });
  }
  if (!has_row) return;
  FourFloats x[kLaneFours];
#pragma unroll
  for (int k = 0; k < kLaneFours; ++k) x[k] = ToFloats(source[k]);
  if (norms) NormFours(x, weights, p.weight_type, rows.size, p.epsilon);
  if (turns) {
    FourFloats* shared = reinterpret_cast<FourFloats*>(FloatsOfWarp(rows.size));
    for_own([&](int k) { shared[at(k) / 4] = x[k]; });
    __syncwarp();
    for_own([&](int k) {
      const FourOfPairs four(p, at(k));
      if (!four.rotates) return;
      RotateFour(shared[four.other / 4], cos[k].Floats(p.table_type), sin[k].Floats(p.table_type),
                 four.first, x[k]);
    });
  }
  int64_t block = token, in_block = 0;
  if (!is_query) {
    const int64_t place = slot.ToWrite();
    if (place < 0) return;
    block = p.block_size.Quotient(static_cast<uint32_t>(place));
    in_block = place - block * p.block_size.size;
  }
  to += block * rows.block + in_block * rows.row;
  if (is_value && p.type == p.cache_type) {  // as it is
    for_own([&](int k) { reinterpret_cast<Four<T>*>(to)[at(k) / 4] = source[k]; });
    return;
  }
  const DataType stored = is_query ? p.type : p.cache_type;
  for_own([&](int k) { StoreFour(stored, x[k], to, at(k)); });
}

// Bytes of an element that a plain insert may have; 0: of another type.
constexpr int64_t PlainBytes(DataType type) {
  if (type == DataType::kFloat) return 4;
  return type == DataType::kFloat16 || type == DataType::kBfloat16 ? 2 : 0;
}

// Whether all fours are aligned and in one half of the pairs, and sizes fit what the kernel counts in.
inline bool SuitsPlainInsert(const RopeCacheInsert& p) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const InsertSide &key = p.key, &value = p.value;
  const auto comes_in_fours = [](DataType type, std::initializer_list<const void*> all) {
    const int64_t bytes = 4 * PlainBytes(type);
    return bytes > 0 && std::all_of(all.begin(), all.end(),
                                    [=](const void* data) { return IsAligned(data, bytes); });
  };
  const auto is_plain = [&](const InsertSide& side) {
    const CacheRows::Strides& strides = side.rows.data_strides;
    const int64_t steps = strides.block | strides.row | strides.head;
    return side.mode == KvQuantMode::kNone && comes_in_fours(side.element, {side.rows.data}) &&
           steps % (4 * PlainBytes(side.element)) == 0 && side.source_type == p.type &&
           side.head_size % 4 == 0 && side.head_size <= kLongestPlainRow &&
           side.element == key.element && side.rows.block_size == key.rows.block_size;
  };
  return is_plain(key) && is_plain(value) && key.head_size == p.size && !p.interleaved &&
         p.size <= kLongestPlainRow && (p.size | p.pairs | p.offset) % 4 == 0 &&
         NumSlots(key.rows) < kMost && p.table_rows < kMost &&
         comes_in_fours(p.type, {p.query, p.query_out, key.source, value.source}) &&
         comes_in_fours(p.table_type, {p.cos, p.sin}) &&
         (comes_in_fours(p.weight_type, {p.q_norm, p.k_norm}) ||
          (p.q_norm == nullptr && p.k_norm == nullptr));
}

template <typename T>
Error LaunchPlainInsert(const RopeCacheInsert& p, Stream stream) {
  const auto rows_of = [&](const InsertSide& side, const void* norm) -> PlainRopeInsert::Rows {
    const CacheRows::Strides& strides = side.rows.data_strides;
    return {side.heads,     side.head_size, side.source, norm,
            side.rows.data, strides.block,  strides.row, strides.head};
  };
  const int64_t head_bytes = p.size * PlainBytes(p.type);
  const PlainRopeInsert call{
      .query = {p.heads, p.size, p.query, p.q_norm, static_cast<uint8_t*>(p.query_out),
                p.heads * head_bytes, 0, head_bytes},
      .key = rows_of(p.key, p.k_norm),
      .value = rows_of(p.value, nullptr),
      .slots = p.slots,
      .cos = p.cos,
      .sin = p.sin,
      .positions = p.positions,
      .pairs = p.pairs,
      .offset = p.offset,
      .table_rows = static_cast<int>(p.table_rows),
      .num_slots = static_cast<uint32_t>(NumSlots(p.key.rows)),
      .block_size = Divisor(static_cast<uint32_t>(p.key.rows.block_size)),
      .epsilon = p.epsilon,
      .type = p.type,
      .weight_type = p.weight_type,
      .table_type = p.table_type,
      .cache_type = p.key.element,
      .positions_int64 = p.positions_int64,
      .constant_weights = p.constant_weights};
  const int rows = p.heads + p.key.heads + p.value.heads;
  const int warps = p.tokens * rows <= Multiprocessors() ? kSpreadWarps : kMostInsertWarps;
  const LaunchShape shape = InsertGridFor(p.tokens, rows, p.size, warps);
  return Launch(PlainRopeInsertKernel<T>, shape, stream, call);
}

}  // namespace pagefuse::cuda
