// SPDX-License-Identifier: Apache-2.0
// Nodes whose constant matrices can be stored in a format of weights.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/passes/quantise/weights/weight_codes.h"

namespace pagefuse {

// A constant matrix that a node reads.
struct WeightUse {
  const Value* value = nullptr;
  WeightMatrix matrix = {};
};

// A product with constant matrices, or a look-up in one.
struct WeightMatch {
  Node* node = nullptr;
  std::vector<WeightUse> weights = {};
  Value* bias = nullptr;  // of a product
  bool is_table = false;
  bool is_grouped = false;  // rows that each have a matrix of a stack
  // Gate and up: both are read in one pass.
  bool is_gated() const { return weights.size() == 2; }
};

// The use of a node for a format; OK and without weights for one that is none (another op, which has
// no node here either, a product of two computed values, weights that have a format already);
// FailedPrecondition with what was expected and found for one whose weights stay as they are.
absl::StatusOr<WeightMatch> WeightMatchOf(Node* node, const WeightFormat& format);

}  // namespace pagefuse
