// SPDX-License-Identifier: Apache-2.0
// The keys that queries choose by index scores, of which no more are kept at a time than memory is
// given for.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/indexer/indexer_topk.h"
#include "pagefuse/ops/kernels/indexer/mqa_logits.h"

namespace pagefuse::pagefuse_ops {

// One call with checked arguments: the topk best columns of columns[m], relative to its begin, of
// the scores of row m, as SelectTopK gives them. Columns that a row does not see score -inf.
struct KeyChoice {
  MqaLogitsProblem scores;  // without logits, their width and what is filled
  std::vector<KeyRange> columns;
  int64_t topk = 0;
  int32_t* indices = nullptr;              // [rows, topk]
  int64_t score_bytes = int64_t{8} << 20;  // of scores that are kept, unless one row has more
};

using MqaLogitsFn = void (*)(const MqaLogitsProblem& problem, Scratch* scratch);

// The plain way; and with vectors, parallel over rows.
void ChooseKeysPlain(const KeyChoice& choice, Scratch* scratch);
void ChooseKeys(const KeyChoice& choice, MqaLogitsFn score, Scratch* scratch);

}  // namespace pagefuse::pagefuse_ops
