// SPDX-License-Identifier: Apache-2.0
// A task in float32 vectors. Query rows are lanes: scores are computed transposed, S^T = K Q^T, so
// that a cache row is decoded once, as it lies, for both products, and the softmax needs no sums
// across lanes.
#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/kernels/latent/sparse_mla_attention_f32_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/kernels/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/kernels/latent/latent_rows-inl.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/scratch_pieces.h"

#ifndef PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_F32_ONCE_
#define PAGEFUSE_KERNELS_LATENT_SPARSE_MLA_F32_ONCE_
namespace pagefuse {

// Cache rows of a tile: decoded they stay in a second-level cache. A multiple of what the
// micro-kernels take.
inline constexpr int64_t kF32TileRows = 48;

// Where a task keeps its intermediates. Query rows are padded to whole panels of the widest
// vectors.
struct SparseMlaF32Memory {
  int64_t query_rows;
  int64_t row_floats;    // from a decoded cache row to the next
  int64_t value_floats;  // of an output row
  float* query;          // panels: [query_rows / width][head_size][width]
  float* output;         // [query_rows][value_floats], not divided by the sum of weights
  float* rows;           // [kF32TileRows][row_floats]
  float* scores;         // [kF32TileRows][query_rows], then weights
  float* max;            // [query_rows], as the next two
  float* sum;
  float* alpha;
  int32_t* visible;  // how many rows of the task each query row sees
  int64_t bytes;

  SparseMlaF32Memory(const SparseMlaProblem& p, int64_t num_rows, std::byte* base) {
    constexpr int64_t kWidestPanel = 32;  // two vectors of 16
    const auto round_up = [](int64_t x, int64_t step) { return (x + step - 1) / step * step; };
    query_rows = round_up(num_rows, kWidestPanel);
    value_floats = round_up(p.value_size, kWidestPanel);
    // A line more than they are: elements of the same place would fall into few sets of a
    // first-level cache else.
    row_floats = round_up(p.head_size, kWidestPanel) + 16;
    ScratchPieces pieces(base);
    query = pieces.Take<float>(query_rows * p.head_size);
    output = pieces.Take<float>(query_rows * value_floats);
    rows = pieces.Take<float>(kF32TileRows * row_floats);
    scores = pieces.Take<float>(kF32TileRows * query_rows);
    max = pieces.Take<float>(query_rows);
    sum = pieces.Take<float>(query_rows);
    alpha = pieces.Take<float>(query_rows);
    visible = pieces.Take<int32_t>(query_rows);
    bytes = pieces.bytes();
  }
};

}  // namespace pagefuse
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;

constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
// Sums of a micro-kernel: cache rows by vectors of query rows, query rows by vectors of values.
constexpr int64_t kScoreRows = kManyRegisters ? 12 : 6;
constexpr int64_t kValueRows = kManyRegisters ? 8 : 4;
static_assert(kF32TileRows % kScoreRows == 0);

// Scores of kScoreRows decoded rows with a panel of kVectors vectors of query rows. Meanwhile rows
// of the next tile are brought into the second-level cache: memory is read while there is
// arithmetic to do.
struct ScoreBlock {
  const float* rows;
  int64_t row_floats;
  const float* panel;
  int64_t size;  // of a row
  float* scores;
  int64_t stride;                // of scores, from row to row
  const uint8_t* const* coming;  // kScoreRows, null if there are none
  int64_t element_bytes;         // of them

  template <size_t kVectors>
  HWY_INLINE void Run() const {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    V sums[kScoreRows][kVectors];
    for (auto& row : sums) {
      for (V& sum : row) sum = hn::Zero(df);
    }
    constexpr int64_t kStep = 16;  // elements: a cache line at most
    const float* HWY_RESTRICT from = panel;
    for (int64_t begin = 0; begin < size; begin += kStep) {
      for (int64_t k = 0; coming != nullptr && k < kScoreRows; ++k) {
        constexpr int kSecondLevel = 2;
        __builtin_prefetch(coming[k] + begin * element_bytes, 0, kSecondLevel);
      }
      const int64_t end = std::min(begin + kStep, size);
      for (int64_t d = begin; d < end; ++d, from += kVectors * lanes) {
        V query[kVectors];
        for (size_t v = 0; v < kVectors; ++v) query[v] = hn::Load(df, from + v * lanes);
        HWY_UNROLL(kScoreRows)
        for (int64_t k = 0; k < kScoreRows; ++k) {
          const V element = hn::Set(df, rows[k * row_floats + d]);
          for (size_t v = 0; v < kVectors; ++v) {
            sums[k][v] = hn::MulAdd(element, query[v], sums[k][v]);
          }
        }
      }
    }
    for (int64_t k = 0; k < kScoreRows; ++k) {
      for (size_t v = 0; v < kVectors; ++v) {
        hn::Store(sums[k][v], df, scores + k * stride + static_cast<int64_t>(v * lanes));
      }
    }
  }
};

// Two vectors of kValueRows output rows, value_floats apart: alpha times what they are, plus
// weights times `count` decoded rows.
struct ValueBlock {
  const float* weights;  // [count], `stride` apart, of kValueRows
  int64_t stride;
  const float* alpha;
  const float* rows;
  int64_t row_floats;
  int64_t count;
  float* output;
  int64_t value_floats;

  HWY_INLINE void Run() const {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    V sums[kValueRows][2];
    for (int64_t r = 0; r < kValueRows; ++r) {
      const V factor = hn::Set(df, alpha[r]);
      sums[r][0] = hn::Mul(factor, hn::Load(df, output + r * value_floats));
      sums[r][1] = hn::Mul(factor, hn::Load(df, output + r * value_floats + lanes));
    }
    const float* HWY_RESTRICT w = weights;
    const float* HWY_RESTRICT values = rows;
    for (int64_t k = 0; k < count; ++k, w += stride, values += row_floats) {
      const V v0 = hn::Load(df, values);
      const V v1 = hn::Load(df, values + lanes);
      HWY_UNROLL(kValueRows)
      for (int64_t r = 0; r < kValueRows; ++r) {
        const V weight = hn::Set(df, w[r]);
        sums[r][0] = hn::MulAdd(weight, v0, sums[r][0]);
        sums[r][1] = hn::MulAdd(weight, v1, sums[r][1]);
      }
    }
    for (int64_t r = 0; r < kValueRows; ++r) {
      hn::Store(sums[r][0], df, output + r * value_floats);
      hn::Store(sums[r][1], df, output + r * value_floats + lanes);
    }
  }
};

class F32Task {
 public:
  explicit F32Task(const SparseMlaTask& task)
      : task_(task), p_(*task.problem), at_(p_, task.num_rows(), task.scratch) {}

  HWY_INLINE bool Run() {
    if (!PartlySeenRowsAreFinite(task_)) return false;
    Begin();
    const auto count = static_cast<int64_t>(task_.rows.size());
    for (int64_t tile = 0; tile < count; tile += kF32TileRows) {
      Tile(tile, std::min(kF32TileRows, count - tile));
    }
    for (int64_t r = 0; r < task_.num_rows(); ++r) {
      task_.Put(r, {at_.max[r], at_.sum[r], at_.output + r * at_.value_floats});
    }
    return true;
  }

 private:
  int64_t lanes() const { return static_cast<int64_t>(hn::Lanes(DF())); }
  // Query rows of a panel: one vector where that is enough for all of them.
  int64_t width() const { return task_.num_rows() <= lanes() ? lanes() : 2 * lanes(); }
  // Query rows up to the end of the last panel and the last block of output rows.
  int64_t padded_rows() const {
    const int64_t step = std::max(width(), kValueRows);
    return (task_.num_rows() + step - 1) / step * step;
  }

  HWY_INLINE void Begin() {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    std::fill_n(at_.query, at_.query_rows * p_.head_size, 0.0f);
    std::fill_n(at_.output, at_.query_rows * at_.value_floats, 0.0f);
    std::fill_n(at_.max, at_.query_rows, kLowest);
    std::fill_n(at_.sum, at_.query_rows, 0.0f);
    for (int64_t r = 0; r < at_.query_rows; ++r) {
      const int64_t token = std::min(r / p_.num_heads, task_.num_tokens - 1);
      at_.visible[r] = static_cast<int32_t>(task_.visible[token]);
    }
    for (int64_t r = 0; r < task_.num_rows(); ++r) PackQueryRow(r);
  }

  HWY_INLINE void PackQueryRow(int64_t r) {
    const int64_t bytes = p_.head_size * BitWidth(p_.query_type) / 8;
    const auto* from =
        static_cast<const std::byte*>(p_.q) + (task_.first_token * p_.num_heads + r) * bytes;
    // A float type: never an error.
    DecodeToFloat(p_.query_type, from, p_.head_size, at_.rows).IgnoreError();
    float* to = at_.query + r / width() * width() * p_.head_size + r % width();
    for (int64_t d = 0; d < p_.head_size; ++d) to[d * width()] = at_.rows[d];
  }

  // Rows [tile, tile + count) of the task.
  HWY_INLINE void Tile(int64_t tile, int64_t count) {
    WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR {
      for (int64_t k = 0; k < count; ++k) Decode(codec, tile + k, at_.rows + k * at_.row_floats);
    });
    for (int64_t k = 0; k < count; k += kScoreRows) {
      Scores(k, 0, Coming(tile + kF32TileRows + k));
      for (int64_t r = width(); r < padded_rows(); r += width()) Scores(k, r, nullptr);
    }
    for (int64_t r = 0; r < padded_rows(); r += lanes()) Softmax(r, tile, count);
    for (int64_t d = 0; d < p_.value_size; d += 2 * lanes()) {
      for (int64_t r = 0; r < padded_rows(); r += kValueRows) {
        ValueBlock{.weights = at_.scores + r,
                   .stride = at_.query_rows,
                   .alpha = at_.alpha + r,
                   .rows = at_.rows + d,
                   .row_floats = at_.row_floats,
                   .count = count,
                   .output = at_.output + r * at_.value_floats + d,
                   .value_floats = at_.value_floats}
            .Run();
      }
    }
  }

  template <class Codec>
  HWY_INLINE void Decode(const Codec& codec, int64_t row, float* to) {
    const DF df;
    const auto opened = codec.Open(task_.rows[static_cast<size_t>(row)]);
    // All that the micro-kernels read, zeros behind the end.
    for (int64_t d = 0; d < at_.row_floats; d += lanes()) {
      hn::Store(
          LoadLatent(df, codec, opened, static_cast<size_t>(d), static_cast<size_t>(p_.head_size)),
          df, to + d);
    }
  }

  // Where kScoreRows rows of the task lie, from `row`; null if there are none.
  HWY_INLINE const uint8_t* const* Coming(int64_t row) {
    const auto count = static_cast<int64_t>(task_.rows.size());
    if (row >= count) return nullptr;
    for (int64_t k = 0; k < kScoreRows; ++k) {
      coming_[k] = task_.rows[static_cast<size_t>(std::min(row + k, count - 1))].data;
    }
    return coming_;
  }

  // Of rows [k, k + kScoreRows) of the tile with the panel of query rows from r. What rows behind
  // the last give, nothing reads.
  HWY_INLINE void Scores(int64_t k, int64_t r, const uint8_t* const* coming) const {
    const ScoreBlock block = {.rows = at_.rows + k * at_.row_floats,
                              .row_floats = at_.row_floats,
                              .panel = at_.query + r * p_.head_size,
                              .size = p_.head_size,
                              .scores = at_.scores + k * at_.query_rows + r,
                              .stride = at_.query_rows,
                              .coming = coming,
                              .element_bytes = p_.plain ? BitWidth(p_.cache_type) / 8 : 1};
    width() == lanes() ? block.Run<1>() : block.Run<2>();
  }

  // Scores of the query rows at r into weights; the factor for what was summed before into alpha.
  HWY_INLINE void Softmax(int64_t r, int64_t tile, int64_t count) {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const V lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
    const V factor = hn::Set(df, p_.scale);
    const auto visible = hn::Load(di, at_.visible + r);
    float* const scores = at_.scores + r;
    const V old_max = hn::Load(df, at_.max + r);
    V max = old_max;
    for (int64_t k = 0; k < count; ++k) {
      float* at = scores + k * at_.query_rows;
      const auto seen = hn::Gt(visible, hn::Set(di, static_cast<int32_t>(tile + k)));
      const V score = hn::Mul(hn::Load(df, at), factor);
      const V s = hn::IfThenElse(hn::RebindMask(df, seen), score, lowest);
      hn::Store(s, df, at);
      max = hn::Max(s, max);  // x86 returns the second for NaN, which then shows in the sum
    }
    // Nothing to be seen so far: any finite number will do, every weight is 0.
    const V base = hn::IfThenElse(hn::Eq(max, lowest), hn::Zero(df), max);
    V sum = hn::Zero(df);
    for (int64_t k = 0; k < count; ++k) {
      float* at = scores + k * at_.query_rows;
      const V weight = Exp(df, hn::Sub(hn::Load(df, at), base));
      hn::Store(weight, df, at);
      sum = hn::Add(sum, weight);
    }
    const V alpha = Exp(df, hn::Sub(old_max, base));
    hn::Store(max, df, at_.max + r);
    hn::Store(hn::MulAdd(hn::Load(df, at_.sum + r), alpha, sum), df, at_.sum + r);
    hn::Store(alpha, df, at_.alpha + r);
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaF32Memory at_;
  const uint8_t* coming_[kScoreRows];
};

bool F32TaskRun(const SparseMlaTask& task) { return F32Task(task).Run(); }

template <typename T>
HWY_INLINE void StoreScaled(const SparseMlaOutputRow& row, size_t n, void* out) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, row.factor);
  T* to = static_cast<T*>(out) + row.index * static_cast<int64_t>(n);
  size_t d = 0;
  for (; d + lanes <= n; d += lanes) {
    StoreFromFloat(hn::Mul(hn::LoadU(df, row.values + d), factor), df, to + d);
  }
  if (d == n) return;
  const auto rest = LoadToFloatN(df, row.values + d, n - d);
  StoreFromFloatN(hn::Mul(rest, factor), df, to + d, n - d);
}

void StoreRow(const SparseMlaProblem& p, const SparseMlaOutputRow& row) {
  const auto n = static_cast<size_t>(p.value_size);
  if (p.query_type == DataType::kFloat) return StoreScaled<float>(row, n, p.out);
  if (p.query_type == DataType::kFloat16) return StoreScaled<Float16>(row, n, p.out);
  StoreScaled<Bfloat16>(row, n, p.out);
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(F32TaskRun);
HWY_EXPORT(StoreRow);

int64_t SparseMlaF32Scratch(const SparseMlaProblem& p, int64_t num_rows) {
  return SparseMlaF32Memory(p, num_rows, nullptr).bytes;
}

bool RunSparseMlaF32(const SparseMlaTask& task) { return HWY_DYNAMIC_DISPATCH(F32TaskRun)(task); }

void StoreSparseMlaRow(const SparseMlaProblem& p, const SparseMlaOutputRow& row) {
  HWY_DYNAMIC_DISPATCH(StoreRow)(p, row);
}

}  // namespace pagefuse
#endif
