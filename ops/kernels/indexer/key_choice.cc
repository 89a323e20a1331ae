// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/indexer/key_choice.h"

#include <algorithm>

#include "pagefuse/base/parallel.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int kScoresSlot = 2;  // of the scratch, behind those of the scores' kernels

// Scores of rows [begin, end) up to the last column that one of them is asked for.
MqaLogitsProblem ScoresOf(const KeyChoice& choice, int64_t begin, int64_t end) {
  MqaLogitsProblem part = choice.scores;
  part.q += begin * part.heads * part.QueryRowBytes();
  part.weights += begin * part.heads;
  part.rows = end - begin;
  part.sequences = {choice.scores.sequences.begin() + begin, choice.scores.sequences.begin() + end};
  part.ranges = {choice.scores.ranges.begin() + begin, choice.scores.ranges.begin() + end};
  part.width = 0;
  part.filled.clear();
  for (int64_t m = begin; m < end; ++m) {
    part.filled.push_back(choice.columns[m].end);
    part.width = std::max(part.width, choice.columns[m].end);
  }
  for (int64_t i = 0; i < part.rows; ++i) {
    part.ranges[i].end = std::min(part.ranges[i].end, part.filled[i]);
  }
  return part;
}

int64_t WidthOf(const KeyChoice& choice) {
  int64_t width = 1;
  for (const KeyRange& columns : choice.columns) width = std::max(width, columns.end);
  return width;
}

TopKRow RowOf(const KeyChoice& choice, const MqaLogitsProblem& scores, int64_t begin, int64_t i) {
  const KeyRange columns = choice.columns[begin + i];
  return {.logits = scores.logits + i * scores.width + columns.begin,
          .count = columns.end - columns.begin,
          .indices = choice.indices + (begin + i) * choice.topk,
          .topk = choice.topk};
}

// Calls select(scores, first row) for as many rows at a time as memory is given for.
template <class Select>
void ForRows(const KeyChoice& choice, MqaLogitsFn score, Scratch* scratch, const Select& select) {
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * WidthOf(choice);
  const int64_t rows = std::max<int64_t>(choice.score_bytes / row_bytes, 1);
  for (int64_t begin = 0; begin < choice.scores.rows; begin += rows) {
    MqaLogitsProblem scores = ScoresOf(choice, begin, std::min(begin + rows, choice.scores.rows));
    const size_t bytes = static_cast<size_t>(scores.rows * scores.width) * sizeof(float);
    scores.logits = static_cast<float*>(scratch->Get(bytes, kScoresSlot));
    score(scores, scratch);
    select(scores, begin);
  }
}

}  // namespace

void ChooseKeysPlain(const KeyChoice& choice, Scratch* scratch) {
  const MqaLogitsFn score = [](const MqaLogitsProblem& problem, Scratch*) {
    MqaLogitsReference(problem);
  };
  ForRows(choice, score, scratch, [&](const MqaLogitsProblem& scores, int64_t begin) {
    for (int64_t i = 0; i < scores.rows; ++i) SelectTopK(RowOf(choice, scores, begin, i));
  });
}

void ChooseKeys(const KeyChoice& choice, MqaLogitsFn score, Scratch* scratch) {
  const int64_t topk = choice.topk;
  ForRows(choice, score, scratch, [&](const MqaLogitsProblem& scores, int64_t begin) {
    const size_t words = TopKScratchBytes(topk, scores.width) / sizeof(uint32_t);
    ParallelFor(scores.rows, (scores.width + 16 * topk) * 4, [&](int64_t first, int64_t last) {
      std::vector<uint32_t> space(words);
      for (int64_t i = first; i < last; ++i) {
        SelectTopKHwy(RowOf(choice, scores, begin, i), space.data());
      }
    });
  });
}

}  // namespace pagefuse::pagefuse_ops
