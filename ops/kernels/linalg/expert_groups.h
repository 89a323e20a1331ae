// SPDX-License-Identifier: Apache-2.0
// Products where every row of x has a matrix of its own among a few: the rows of each matrix are
// multiplied together, so that a matrix is read once, and only if a row asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {

// Rows by expert: those of a group are order[begin, end), ascending.
struct ExpertGroups {
  struct Group {
    int64_t expert, begin, end;
    int64_t size() const { return end - begin; }
  };
  std::vector<int64_t> order;
  std::vector<Group> groups;  // experts with at least one row, ascending
};

// `experts`: the expert of each row, 0 to num_experts - 1.
ExpertGroups GroupByExpert(std::span<const int64_t> experts, int64_t num_experts);

// y = x * W[expert], for the rows of one group, with whatever scratch memory it needs. May
// share it among the workers of the call, or be called by one of them.
using ExpertProduct = std::function<absl::Status(int64_t expert, const RowsView& x,
                                                 const OutputView& y, Scratch& scratch)>;

struct ExpertRows {
  const float* x = nullptr;  // row r of y is made of row r / repeat of x [rows / repeat, k]
  int64_t repeat = 1;
  float* y = nullptr;  // [rows, n]
  int64_t k = 0, n = 0;
};

// Every row of y by the product of its expert. Large matrices come one after the other, each with
// all threads; small ones a thread each. The first error is returned.
absl::Status GroupedProduct(const ExpertGroups& groups, const ExpertRows& rows,
                            const ExpertProduct& product, Scratch& scratch);

}  // namespace pagefuse
