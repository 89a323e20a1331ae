// SPDX-License-Identifier: Apache-2.0
// A task on tiles of bfloat16.
#include <algorithm>
#include <limits>

#define HWY_WANT_AVX3_DL  // byte_tables-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/latent/sparse_mla_attention_tiles_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"

// The pieces assume lanes in blocks of four; units for bfloat16 come with AVX-512.
#if HWY_TARGET != HWY_SCALAR
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_operands-inl.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_tiles-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

bool TilesTaskRun(const SparseMlaTask&) { PF_CHECK(false); }

#else

// Operands: how products get at cache rows (sparse_mla_attention_operands-inl.h).
template <class Operands>
class TilesTask {
 public:
  explicit TilesTask(const SparseMlaTask& task)
      : task_(task),
        p_(*task.problem),
        at_(p_, task.num_rows(), SparseMlaTilesMemory::TakesRowsInPlace(task), task.scratch),
        operands_(task, at_) {}

  HWY_INLINE bool Run() {
    if (!PartlySeenRowsAreFinite(task_)) return false;
    operands_.AskForFirst();
    PackQuery();
    operands_.Begin();
    const auto count = static_cast<int64_t>(task_.rows.size());
    for (int64_t tile = 0; tile < count; tile += kPartKeys) {
      Tile(tile, std::min(kPartKeys, count - tile));
    }
    operands_.End();
    for (int64_t r = 0; r < task_.num_rows(); ++r) Put(r);
    return true;
  }

 private:
  HWY_INLINE void PackQuery() {
    const int64_t words = at_.row_words();
    const int64_t first = task_.first_token * p_.num_heads;
    for (int64_t r = 0; r < at_.head_tiles * kTileRows; r += 4) {
      for (int64_t k = 0; k < 4; ++k) {
        uint16_t* row = at_.rows + k * words;
        if (r + k < task_.num_rows()) {
          SplitQueryRow(p_, first + r + k, words, row, 4 * words);
        } else {
          std::fill_n(row, words, uint16_t{0});
          std::fill_n(row + 4 * words, words, uint16_t{0});
        }
      }
      for (int64_t term = 0; term < at_.query_terms; ++term) {
        operands_.PackFourColumns(at_.rows + term * 4 * words, r % kTileColumns,
                                  at_.query_tile(term, r / kTileColumns));
      }
    }
    std::fill_n(at_.max, at_.head_tiles * kTileRows, -std::numeric_limits<float>::infinity());
    std::fill_n(at_.sum, at_.head_tiles * kTileRows, 0.0f);
  }

  // Rows [tile, tile + count) of the task.
  HWY_INLINE void Tile(int64_t tile, int64_t count) {
    operands_.Scores(tile, count);
    Softmax(tile, count);
    if (tile > 0) Rescale();
    operands_.Values(tile > 0, (count + kTileDepth - 1) / kTileDepth);
  }

  HWY_INLINE void Softmax(int64_t tile, int64_t count) {
    const bool sees_all = task_.visible[0] >= tile + count;
    for (int64_t r = 0; r < at_.head_tiles * kTileRows; ++r) {
      int64_t seen = count;
      if (!sees_all) {
        const int64_t token = std::min(r / p_.num_heads, task_.num_tokens - 1);
        seen = std::clamp<int64_t>(task_.visible[token] - tile, 0, count);
      }
      at_.visible[r] = static_cast<int32_t>(seen);
    }
    constexpr float kLog2E = 1.44269504f;
    for (int64_t h = 0; h < at_.head_tiles; ++h) {
      const int64_t row = h * kTileRows;
      const TransposedSoftmax softmax(at_.score_tile(h, 0), count, p_.scale * kLog2E,
                                      {at_.max + row, at_.base + row, at_.sum + row,
                                       at_.alpha + row, at_.visible + row, sees_all});
      for (int64_t lane = 0; lane < kTileRows; lane += static_cast<int64_t>(hn::Lanes(DF()))) {
        softmax.Begin(lane);
        for (int64_t key = 0; key < count; key += kTileDepth) {
          softmax.Weights(lane, key, at_.weight_tile(h) + key / kTileDepth * kTileWords);
        }
      }
    }
  }

  // What was summed before, under the new maxima.
  HWY_INLINE void Rescale() {
    const DF df;
    for (int64_t r = 0; r < task_.num_rows(); ++r) {
      if (at_.alpha[r] == 1.0f) continue;
      const V factor = hn::Set(df, at_.alpha[r]);
      for (int64_t j = 0; j < at_.value_tiles; ++j) {
        float* at = at_.output_tile(r / kTileRows, j) + r % kTileRows * kTileColumns;
        for (int64_t i = 0; i < kTileColumns; i += static_cast<int64_t>(hn::Lanes(df))) {
          hn::Store(hn::Mul(hn::Load(df, at + i), factor), df, at + i);
        }
      }
    }
  }

  HWY_INLINE void Put(int64_t r) const {
    constexpr float kLn2 = 0.69314718f;
    float* values = at_.row;
    if (task_.rows.empty()) {
      std::fill_n(values, p_.value_size, 0.0f);
    } else {
      const float* tiles = at_.output_tile(r / kTileRows, 0) + r % kTileRows * kTileColumns;
      OrderColumns(tiles, p_.value_size, values);
    }
    task_.Put(r, {at_.max[r] * kLn2, at_.sum[r], values});
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaTilesMemory at_;
  Operands operands_;
};

bool TilesTaskRun(const SparseMlaTask& task) {
  if (SparseMlaTilesMemory::TakesRowsInPlace(task)) {
    return TilesTask<RowsInPlace>(task).Run();
  }
  return TilesTask<PackedRows>(task).Run();
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(TilesTaskRun);

bool SparseMlaTilesSupports(const SparseMlaProblem& p) {
  return p.query_type != DataType::kFloat && (!p.plain || p.cache_type == DataType::kBfloat16);
}

int64_t SparseMlaTilesScratch(const SparseMlaProblem& p, int64_t num_rows) {
  // Either way: sequences of a call may differ in it.
  const int64_t lone_rows = std::min(num_rows, kInPlaceRows);
  return std::max(SparseMlaTilesMemory(p, num_rows, false, nullptr).bytes,
                  SparseMlaTilesMemory(p, lone_rows, true, nullptr).bytes);
}

bool RunSparseMlaTiles(const SparseMlaTask& task) {
  return HWY_DYNAMIC_DISPATCH(TilesTaskRun)(task);
}

}  // namespace pagefuse
#endif
