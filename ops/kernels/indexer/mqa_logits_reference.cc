#include <algorithm>
#include <cstring>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/kernels/indexer/mqa_logits.h"
#include "pagefuse/kernels/numeric/dispatch.h"
#include "pagefuse/kernels/numeric/small_float.h"

namespace pagefuse::pagefuse_ops {
namespace {

double ElementAt(DataType type, const uint8_t* row, int64_t i) {
  double value = 0;
  const absl::Status status = DispatchType(type, [&]<typename T>() {
    T element;
    std::memcpy(&element, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    value = static_cast<double>(ConvertElement<float>(element));
  });
  PF_CHECK(status.ok());
  return value;
}

// e4m3fn products of any head size that fits memory are exact in double.
double Dot(const MqaLogitsProblem& p, const uint8_t* query, const uint8_t* key) {
  double sum = 0;
  for (int64_t d = 0; d < p.head_size; ++d) {
    sum += ElementAt(p.query_type, query, d) * ElementAt(p.key_type, key, d);
  }
  return sum;
}

float Logit(const MqaLogitsProblem& p, int64_t row, int64_t position) {
  const RowAddress key = p.Key(p.sequences[row], position);
  float scale = 1;
  if (key.scale) std::memcpy(&scale, key.scale, sizeof(scale));
  double sum = 0;
  for (int64_t h = 0; h < p.heads; ++h) {
    const double score = Dot(p, p.q + (row * p.heads + h) * p.QueryRowBytes(), key.data);
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
