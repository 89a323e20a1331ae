#include "pagefuse/ops/microsoft/dense_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/ops/onnx/attention_row.h"
#include "pagefuse/ops/parallel.h"

namespace pagefuse::microsoft_ops {
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
    row.bias =
        call.bias.data + b * strides[0] + h * strides[1] + i * strides[2] + first + keys.first;
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
    if (row.bias != nullptr) score += row.bias[j];
    scores[j] = score;
    max = std::fmax(max, score);
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
  onnx_ops::AttentionRow args;
  args.q = row.q;
  args.keys = {row.k, call.k_layout.row, row.count, call.qk_size};
  args.values = {row.v, call.v_layout.row, row.count, call.v_size};
  args.scale = call.scale;
  args.softcap = call.softcap;
  args.bias = row.bias;
  args.bias_stride = 1;
  args.sink = sink;
  args.scores = scores;
  args.y = row.y;
  onnx_ops::AttendRow(args);
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

void DenseAttentionHwy(const DenseAttention& call) {
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

}  // namespace pagefuse::microsoft_ops
