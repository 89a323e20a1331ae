#include <algorithm>
#include <cstring>
#include <limits>

#include "pagefuse/kernels/indexer/mqa_logits.h"
#include "pagefuse/kernels/numeric/small_float.h"

namespace pagefuse::pagefuse_ops {
namespace {

// e4m3fn products of any head size that fits memory are exact in double.
double Dot(const uint8_t* a, const uint8_t* b, int64_t size) {
  double sum = 0;
  for (int64_t d = 0; d < size; ++d) {
    sum += double{DecodeFloat<E4M3FNFormat>(a[d])} * DecodeFloat<E4M3FNFormat>(b[d]);
  }
  return sum;
}

float Logit(const MqaLogitsProblem& p, int64_t row, int64_t position) {
  const RowAddress key = p.Key(p.SequenceOf(row), position);
  float scale;
  std::memcpy(&scale, key.scale, sizeof(scale));
  double sum = 0;
  for (int64_t h = 0; h < p.heads; ++h) {
    const double score = Dot(p.q + (row * p.heads + h) * p.head_size, key.data, p.head_size);
    sum += p.weights[row * p.heads + h] * std::max(0.0, score * scale);
  }
  return static_cast<float>(sum);
}

}  // namespace

void FillOutside(const MqaLogitsProblem& problem, int64_t row) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t filled = problem.filled[row];
  const KeyRange& range = problem.ranges[row];
  const int64_t begin = std::min(range.begin, filled);
  float* logits = problem.logits + row * problem.width;
  std::fill(logits, logits + begin, kNone);
  const int64_t end = std::max(range.begin, range.end);
  if (end < filled) std::fill(logits + end, logits + filled, kNone);
}

void MqaLogitsReference(const MqaLogitsProblem& problem) {
  for (int64_t row = 0; row < problem.rows; ++row) {
    FillOutside(problem, row);
    const KeyRange& range = problem.ranges[row];
    for (int64_t n = range.begin; n < range.end; ++n) {
      problem.logits[row * problem.width + n] = Logit(problem, row, n);
    }
  }
}

}  // namespace pagefuse::pagefuse_ops
