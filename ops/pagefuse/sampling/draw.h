// SPDX-License-Identifier: Apache-2.0
// Which token is next, by a row of logits: changes of single logits, and a draw among those that may come.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/rows/logit_edit.h"
#include "pagefuse/ops/pagefuse/sampling/logit_row.h"

namespace pagefuse {

// In this order. Weights are those of token_weights.h.
struct DrawSettings {
  double temperature = 0;  // 0: the largest logit, of several the first
  int64_t top_k = 0;       // the k largest, with those equal to the k-th; 0: all
  double min_p = 0;        // those with this part of the largest weight
  double top_p = 1;        // the fewest, of equal ones the first, whose weights reach it
};

// Finite for the smallest temperatures too.
double InverseOf(double temperature);

// The index of a logit. A row of more than kMostWeights has temperature 0. `random` divided by 2^64 is the part of
// the weights of those that may come, summed in the row's order, that is passed.
absl::StatusOr<int64_t> DrawToken(const LogitRow& row, const DrawSettings& settings,
                                  uint64_t random);

}  // namespace pagefuse
