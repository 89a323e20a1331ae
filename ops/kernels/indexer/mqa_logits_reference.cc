// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/indexer/mqa_logits.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

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

// A key's elements, and what their products are multiplied by.
struct Key {
  std::vector<double> elements;
  float scale = 1;
};

Key ReadKey(const MqaLogitsProblem& p, const RowAddress& row) {
  Key key{.elements = std::vector<double>(p.head_size)};
  if (p.key_groups) {
    std::vector<float> values(p.head_size);
    DecodeGroupedRow(*p.key_groups, row, values.data());
    std::copy(values.begin(), values.end(), key.elements.begin());
    return key;
  }
  for (int64_t d = 0; d < p.head_size; ++d) key.elements[d] = ElementAt(p.key_type, row.data, d);
  if (row.scale) std::memcpy(&key.scale, row.scale, sizeof(key.scale));
  return key;
}

// e4m3fn products of any head size that fits memory are exact in double.
double Dot(const MqaLogitsProblem& p, const uint8_t* query, const std::vector<double>& key) {
  double sum = 0;
  for (int64_t d = 0; d < p.head_size; ++d) sum += ElementAt(p.query_type, query, d) * key[d];
  return sum;
}

float Logit(const MqaLogitsProblem& p, int64_t row, int64_t position) {
  const Key key = ReadKey(p, p.Key(p.sequences[row], position));
  double sum = 0;
  for (int64_t h = 0; h < p.heads; ++h) {
    const double score = Dot(p, p.q + (row * p.heads + h) * p.QueryRowBytes(), key.elements);
    sum += p.weights[row * p.heads + h] * std::max(0.0, score * key.scale);
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
