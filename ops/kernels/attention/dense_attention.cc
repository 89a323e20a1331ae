// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/attention/dense_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/attention/attention_row.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"

namespace pagefuse::onnx_ops {
namespace {

// One query row: where its operands are.
struct Row {
  const float* q;
  const float* k;
  const float* v;
  const float* bias;
  float* y;
  int64_t count;  // keys
};

Row RowOf(const DenseAttention& call, int64_t b, int64_t h, int64_t i) {
  const DenseAttention::Range keys = call.KeysOf(b, i);
  const int64_t kv_head = h / (call.q_heads / call.kv_heads);
  const int64_t key = call.kv_row(b) + keys.first;
  Row row;
  row.q = call.q + call.q_layout.At(b, h, call.q_row(b) + i);
  row.k = call.k + call.k_layout.At(b, kv_head, key);
  row.v = call.v + call.v_layout.At(b, kv_head, key);
  row.y = call.y + call.y_layout.At(b, h, call.q_row(b) + i);
  row.count = keys.last - keys.first;
  row.bias = nullptr;
  if (call.bias.data != nullptr) {
    const int64_t* strides = call.bias.strides;
    const int64_t first = call.bias.first_keys.empty() ? 0 : call.bias.first_keys[b];
    row.bias = call.bias.data + b * strides[0] + h * strides[1] + i * strides[2] +
               (first + keys.first) * strides[3];
  }
  return row;
}

void ReferenceRow(const DenseAttention& call, const Row& row, const float* sink) {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  std::vector<double> scores(static_cast<size_t>(row.count));
  double max = kMasked;
  for (int64_t j = 0; j < row.count; ++j) {
    const float* k = row.k + j * call.k_layout.row;
    double sum = 0;
    for (int64_t d = 0; d < call.qk_size; ++d) sum += static_cast<double>(row.q[d]) * k[d];
    double score = sum * call.scale;
    if (call.softcap != 0) score = call.softcap * std::tanh(score / call.softcap);
    if (row.bias != nullptr) score += row.bias[j * call.bias.strides[3]];
    scores[j] = score;
    if (score > max || std::isnan(score)) max = score;  // NaN stays, and shows in the sum
  }
  std::vector<double> y(static_cast<size_t>(call.v_size));
  if (max != kMasked) {
    double sum = sink != nullptr ? std::exp(*sink - max) : 0;
    for (double score : scores) sum += std::exp(score - max);
    for (int64_t j = 0; j < row.count; ++j) {
      const double p = std::exp(scores[j] - max) / sum;
      const float* v = row.v + j * call.v_layout.row;
      for (int64_t d = 0; p != 0 && d < call.v_size; ++d) y[d] += p * v[d];
    }
  }
  std::copy(y.begin(), y.end(), row.y);
}

void HwyRow(const DenseAttention& call, const Row& row, const float* sink, float* scores) {
  AttentionRow args;
  args.q = row.q;
  args.keys = {row.k, call.k_layout.row, row.count, call.qk_size};
  args.values = {row.v, call.v_layout.row, row.count, call.v_size};
  args.scale = call.scale;
  args.softcap = call.softcap;
  args.bias = row.bias;
  args.bias_stride = call.bias.strides[3];
  args.sink = sink;
  args.scores = scores;
  args.y = row.y;
  AttendRow(args);
}

const float* SinkOf(const DenseAttention& call, int64_t h) {
  return call.sinks.empty() ? nullptr : &call.sinks[h];
}

}  // namespace

DenseAttention::Range DenseAttention::KeysOf(int64_t b, int64_t i) const {
  const DenseSequence& sequence = sequences[b];
  const int64_t position = sequence.first_position + i;
  Range range = {0, sequence.keys};
  if (causal) range.last = std::min(range.last, position + 1);
  if (right_window >= 0) range.last = std::min(range.last, position + right_window + 1);
  if (window > 0) range.first = std::max<int64_t>(0, position - window + 1);
  range.last = std::max<int64_t>(range.last, 0);
  range.first = std::min(range.first, range.last);
  return range;
}

void DenseAttentionReference(const DenseAttention& call) {
  for (size_t b = 0; b < call.sequences.size(); ++b) {
    for (int64_t i = 0; i < call.sequences[b].queries; ++i) {
      for (int64_t h = 0; h < call.q_heads; ++h) {
        ReferenceRow(call, RowOf(call, b, h, i), SinkOf(call, h));
      }
    }
  }
}

namespace {

// Query rows of a block share their products with the keys; a causal block computes scores that
// none of its rows sees, the more of them the larger it is. Fewer rows go one by one.
constexpr int64_t kBlockRows = 128, kCausalBlockRows = 64, kMinBlockRows = 8;

struct Block {
  int64_t b, h, first, rows;
};

// e^(score - max), divided by their sum, of the keys that a row sees; 0 for the others.
void SoftmaxOfScores(float* scores, int64_t count, const float* sink) {
  const float max = MaxOfRow(scores, count);
  if (max == -std::numeric_limits<float>::infinity()) {
    std::fill_n(scores, count, 0.0f);
    return;
  }
  if (sink == nullptr) return SoftmaxRow(scores, scores, count);
  SubRow({scores, 1, &max, 0}, scores, count);
  ExpRow(scores, scores, count, 0.0f);
  const float sum = SumOfRow(scores, count) + std::exp(*sink - max);
  DivRow({scores, 1, &sum, 0}, scores, count);
}

// Scores of row i, `keys` of them from key `first` on, become probabilities.
void FinishRow(const DenseAttention& call, const Block& block, int64_t i,
               DenseAttention::Range keys, float* scores) {
  const DenseAttention::Range own = call.KeysOf(block.b, i);
  const Row row = RowOf(call, block.b, block.h, i);
  float* begin = scores + (own.first - keys.first);
  const int64_t count = own.last - own.first;
  std::fill(scores, begin, 0.0f);
  std::fill(begin + count, scores + (keys.last - keys.first), 0.0f);
  if (call.softcap != 0) {
    const float inverse = 1.0f / call.softcap;
    MulRow({begin, 1, &inverse, 0}, begin, count);
    TanhRow(begin, begin, count, 0.0f);
    MulRow({begin, 1, &call.softcap, 0}, begin, count);
  }
  if (row.bias != nullptr) AddRow({begin, 1, row.bias, call.bias.strides[3]}, begin, count);
  SoftmaxOfScores(begin, count, SinkOf(call, block.h));
}

bool AllFinite(const float* row, int64_t count) {
  return std::all_of(row, row + count, [](float y) { return std::isfinite(y); });
}

// A key that a row does not see has probability 0 for it, and 0 times a value that
// is not finite is NaN: rows that are not finite are computed again from the keys that they see.
void RepairRows(const DenseAttention& call, const Block& block, float* scores) {
  for (int64_t i = block.first; i < block.first + block.rows; ++i) {
    const Row row = RowOf(call, block.b, block.h, i);
    if (!AllFinite(row.y, call.v_size)) HwyRow(call, row, SinkOf(call, block.h), scores);
  }
}

// Two products: of the block's rows with all keys that one of them sees, and of the probabilities
// with their values. False if oneDNN refuses.
bool AttendBlock(const DenseAttention& call, const Block& block, float* scores) {
  const int64_t last_row = block.first + block.rows - 1;
  const DenseAttention::Range keys = {call.KeysOf(block.b, block.first).first,
                                      call.KeysOf(block.b, last_row).last};
  const int64_t count = keys.last - keys.first;
  const Row first = RowOf(call, block.b, block.h, block.first);
  if (count <= 0) {
    for (int64_t i = 0; i < block.rows; ++i) {
      std::fill_n(first.y + i * call.y_layout.row, call.v_size, 0.0f);
    }
    return true;
  }
  const bool scored = RunSgemm({.trans_b = true,
                                .m = block.rows,
                                .n = count,
                                .k = call.qk_size,
                                .alpha = call.scale,
                                .a = first.q,
                                .lda = call.q_layout.row,
                                .b = first.k,
                                .ldb = call.k_layout.row,
                                .c = scores,
                                .ldc = count});
  for (int64_t i = 0; i < block.rows; ++i) {
    FinishRow(call, block, block.first + i, keys, scores + i * count);
  }
  const bool summed = scored && RunSgemm({.m = block.rows,
                                          .n = call.v_size,
                                          .k = count,
                                          .a = scores,
                                          .lda = count,
                                          .b = first.v,
                                          .ldb = call.v_layout.row,
                                          .c = first.y,
                                          .ldc = call.y_layout.row});
  if (!summed) return false;
  const bool masks = call.causal || call.window > 0 || call.right_window >= 0;
  if (masks || call.bias.data != nullptr) RepairRows(call, block, scores);
  return true;
}

// The rows of a sequence, a block a task. Every score of a block is computed, so windows that are
// shorter than the sequence are left to the rows.
bool AttendBlocks(const DenseAttention& call) {
  std::vector<Block> blocks;
  int64_t longest = 0;
  const int64_t rows = call.causal ? kCausalBlockRows : kBlockRows;
  for (size_t b = 0; b < call.sequences.size(); ++b) {
    const DenseSequence& sequence = call.sequences[b];
    const int64_t i = static_cast<int64_t>(b);
    longest = std::max(longest, sequence.keys);
    for (int64_t h = 0; h < call.q_heads; ++h) {
      for (int64_t first = 0; first < sequence.queries; first += rows) {
        blocks.push_back({i, h, first, std::min(rows, sequence.queries - first)});
      }
    }
  }
  PerWorker<std::vector<float>> scores;
  std::atomic<bool> ok = true;
  ParallelTasks(static_cast<int64_t>(blocks.size()), [&](int64_t i, int worker) {
    if (!ok) return;
    std::vector<float>& own = scores[worker];
    own.resize(static_cast<size_t>(rows * longest));
    if (!AttendBlock(call, blocks[i], own.data())) ok = false;
  });
  return ok;
}

bool SuitsBlocks(const DenseAttention& call) {
  bool many = !call.sequences.empty() && call.qk_size > 0 && call.v_size > 0;
  for (const DenseSequence& s : call.sequences) {
    many = many && s.queries >= kMinBlockRows &&
           (call.window <= 0 || s.keys <= 4 * call.window + 4 * kBlockRows);
  }
  return many;
}

}  // namespace

void DenseAttentionHwy(const DenseAttention& call) {
  if (SuitsBlocks(call) && AttendBlocks(call)) return;
  // Query rows of all sequences, counted through; the heads of a group follow each other and read
  // the same keys.
  std::vector<int64_t> starts = {0};
  int64_t longest = 0;
  for (const DenseSequence& sequence : call.sequences) {
    starts.push_back(starts.back() + sequence.queries * call.q_heads);
    longest = std::max(longest, sequence.keys);
  }
  const int64_t work = longest * (call.qk_size + call.v_size) + 1;
  ParallelFor(starts.back(), work, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(longest));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
      const int64_t local = row - starts[b];
      const int64_t queries = call.sequences[b].queries;
      const int64_t h = local / queries;
      HwyRow(call, RowOf(call, b, h, local % queries), SinkOf(call, h), scores.data());
    }
  });
}

}  // namespace pagefuse::onnx_ops
