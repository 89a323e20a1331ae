// A task in float32 vectors: tiles of rows decoded once into two packed panels, one for each
// product, and the micro-kernels of paged prefill.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pagefuse/ops/pagefuse/latent/sparse_mla_attention_f32_hwy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_prefill-inl.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_softmax-inl.h"
#include "pagefuse/ops/pagefuse/latent/latent_rows-inl.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention_hwy.h"

#ifndef PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_F32_ONCE_
#define PAGEFUSE_OPS_PAGEFUSE_SPARSE_MLA_F32_ONCE_
namespace pagefuse {

// Where a task keeps its intermediates.
struct SparseMlaF32Memory {
  int64_t key_floats;    // of a query row, padded for the widest panels
  int64_t value_floats;  // of an output row
  float* query;          // [rows][key_floats]
  float* output;         // [rows][value_floats], not divided by the sum of weights
  float* scores;         // [rows][kPaTileKeys], then weights
  float* alpha;          // [rows]
  float* keys;           // packed: [kPaTileKeys / width][key_floats][width]
  float* values;         // packed: [value_floats / width][kPaTileKeys][width]
  int32_t* key_offsets;  // [kPaTileKeys]: 0, 1, 2, ...
  int64_t bytes;

  SparseMlaF32Memory(const SparseMlaProblem& p, int64_t num_rows, std::byte* base) {
    constexpr int64_t kWidestPanel = 32;  // two vectors of 16
    constexpr int64_t kMostRows = 12;     // of a micro-kernel
    const auto round_up = [](int64_t x, int64_t step) { return (x + step - 1) / step * step; };
    key_floats = round_up(p.head_size, kWidestPanel);
    value_floats = round_up(p.value_size, kWidestPanel);
    const int64_t rows = round_up(num_rows, kMostRows);
    bytes = 0;
    const auto take = [&](int64_t floats) {
      auto* at = reinterpret_cast<float*>(base + bytes);
      bytes += round_up(floats * 4, 64);
      return at;
    };
    query = take(rows * key_floats);
    output = take(rows * value_floats);
    scores = take(rows * kPaTileKeys);
    alpha = take(rows);
    keys = take(kPaTileKeys * key_floats);
    values = take(kPaTileKeys * value_floats);
    key_offsets = reinterpret_cast<int32_t*>(take(kPaTileKeys));
  }
};

}  // namespace pagefuse
#endif

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class F32Task {
 public:
  explicit F32Task(const SparseMlaTask& task)
      : task_(task), p_(*task.problem), at_(p_, task.num_rows(), task.scratch) {}

  HWY_INLINE bool Run() {
    if (!PartlySeenRowsAreFinite(task_)) return false;
    Begin();
    const auto count = static_cast<int64_t>(task_.rows.size());
    for (int64_t tile = 0; tile < count; tile += kPaTileKeys) {
      Tile(tile, std::min(kPaTileKeys, count - tile));
    }
    for (int64_t r = 0; r < task_.num_rows(); ++r) {
      task_.Put(r, {states_[r].max, states_[r].sum, at_.output + r * at_.value_floats});
    }
    return true;
  }

 private:
  size_t key_floats() const { return static_cast<size_t>(at_.key_floats); }
  size_t value_floats() const { return static_cast<size_t>(at_.value_floats); }
  size_t head_size() const { return static_cast<size_t>(p_.head_size); }

  HWY_INLINE void Begin() {
    const int64_t count = task_.num_rows();
    padded_rows_ = (static_cast<size_t>(count) + kRows - 1) / kRows * kRows;
    const auto rows = static_cast<int64_t>(padded_rows_);
    std::fill_n(at_.query, rows * at_.key_floats, 0.0f);
    std::fill_n(at_.output, rows * at_.value_floats, 0.0f);
    std::fill_n(at_.scores, rows * kPaTileKeys, 0.0f);
    std::fill_n(at_.alpha, rows, 1.0f);
    std::iota(at_.key_offsets, at_.key_offsets + kPaTileKeys, 0);
    states_.assign(static_cast<size_t>(count), SoftmaxState());
    const int64_t bytes = p_.head_size * BitWidth(p_.query_type) / 8;
    const auto* from =
        static_cast<const std::byte*>(p_.q) + task_.first_token * p_.num_heads * bytes;
    for (int64_t r = 0; r < count; ++r) {
      // A float type: never an error.
      DecodeToFloat(p_.query_type, from + r * bytes, p_.head_size, at_.query + r * at_.key_floats)
          .IgnoreError();
    }
  }

  // Rows [tile, tile + count) of the task.
  HWY_INLINE void Tile(int64_t tile, int64_t count) {
    WithLatentCodec(p_, [&](const auto& codec) HWY_ATTR { Pack(codec, tile, count); });
    const auto width = static_cast<int64_t>(PanelWidth());
    for (size_t d = 0; d < head_size(); d += kPassSize) {
      const size_t size = std::min(kPassSize, head_size() - d);
      for (int64_t column = 0; column < count; column += width) Scores(d, size, column);
    }
    const size_t lanes = hn::Lanes(DF());
    const size_t last = (static_cast<size_t>(count) + lanes - 1) / lanes * lanes;
    for (int64_t r = 0; r < task_.num_rows(); ++r) {
      const int64_t seen = std::clamp<int64_t>(task_.visible[r / p_.num_heads] - tile, 0, count);
      const KeyInterval visible{0, seen};
      const ScoreRow row{
          .factor = p_.attributes.scale, .key_offsets = at_.key_offsets, .visible = {&visible, 1}};
      at_.alpha[r] = SoftmaxTile(row, 0, 0, last, at_.scores + r * kPaTileKeys, states_[r]);
    }
    for (int64_t d = 0; d < at_.value_floats; d += width) {
      for (size_t r = 0; r < padded_rows_; r += kRows) {
        ValuePanel(at_.scores + r * kPaTileKeys, at_.alpha + r, at_.values + d * kPaTileKeys,
                   {0, count}, at_.output + r * value_floats() + d, value_floats());
      }
    }
  }

  // Adds elements [d, d + size) to the scores of a panel of rows.
  HWY_INLINE void Scores(size_t d, size_t size, int64_t column) {
    const float* keys = at_.keys + column * at_.key_floats + d * PanelWidth();
    for (size_t r = 0; r < padded_rows_; r += kRows) {
      const float* query = at_.query + r * key_floats() + d;
      float* scores = at_.scores + r * kPaTileKeys + column;
      if (d == 0) {
        ScorePass<true>(query, key_floats(), keys, size, scores);
      } else {
        ScorePass<false>(query, key_floats(), keys, size, scores);
      }
    }
  }

  // Decodes rows, four at a time, into columns of the keys' panels and rows of the values'. Columns
  // behind the last row are copies of it.
  template <class Codec>
  HWY_INLINE void Pack(const Codec& codec, int64_t tile, int64_t count) {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    const size_t width = PanelWidth();
    for (int64_t j = 0; j < count; j += 4) {
      typename Codec::Row rows[4];
      for (int64_t k = 0; k < 4; ++k) {
        Prefetch(tile + j + k + kPaTileKeys);
        rows[k] = codec.Open(task_.rows[static_cast<size_t>(tile + std::min(j + k, count - 1))]);
      }
      const auto column = static_cast<size_t>(j);
      for (size_t d = 0; d < key_floats(); d += lanes) {
        V v[4];
        for (size_t k = 0; k < 4; ++k) v[k] = LoadLatent(df, codec, rows[k], d, head_size());
        StoreKeys(v, column, d);
        if (d >= value_floats()) continue;
        float* values = at_.values + d / width * width * kPaTileKeys + column * width + d % width;
        for (size_t k = 0; k < 4; ++k) hn::Store(v[k], df, values + k * width);
      }
    }
  }

  // Elements [d, d + Lanes) of four keys into their columns of a panel.
  HWY_INLINE void StoreKeys(const V (&v)[4], size_t column, size_t d) const {
    const size_t width = PanelWidth();
#if HWY_TARGET == HWY_SCALAR
    for (size_t k = 0; k < 4; ++k) {
      const size_t c = column + k;
      hn::Store(v[k], DF(), at_.keys + c / width * width * key_floats() + d * width + c % width);
    }
#else
    float* keys = at_.keys + column / width * width * key_floats() + column % width;
    TransposeFour(v[0], v[1], v[2], v[3], width, keys + d * width);
#endif
  }

  // Brings a row of the next tile nearer, if there is one.
  HWY_INLINE void Prefetch(int64_t row) const {
    if (row >= static_cast<int64_t>(task_.rows.size())) return;
    constexpr int64_t kLine = 64;
    const int64_t bytes =
        p_.plain() ? p_.head_size * BitWidth(p_.cache_type) / 8 : p_.grouped.DataBytes();
    const uint8_t* data = task_.rows[static_cast<size_t>(row)].data;
    for (int64_t i = 0; i < bytes; i += kLine) hwy::Prefetch(data + i);
  }

  const SparseMlaTask& task_;
  const SparseMlaProblem& p_;
  const SparseMlaF32Memory at_;
  size_t padded_rows_ = 0;
  std::vector<SoftmaxState> states_;
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
