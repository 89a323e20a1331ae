// SPDX-License-Identifier: Apache-2.0
// Why matrices stay as they are where a format of weights is asked for, and their nodes have none
// that could be stored: FailedPrecondition naming the matrix, with what was expected and found. OK
// where no matrix of a file is read.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"

namespace pagefuse {

// A shorter sum has little more codes than scales.
inline constexpr int64_t kLeastTerms = kWeightBlock / 2;
// accuracy_level of products with codes whose activations are rounded to bfloat16.
inline constexpr int64_t kBfloat16Level = 3;

// A weight that is computed at every run of nothing but constants, or that callers may give.
absl::Status ExpectConstant(const Value& weight);
// A constant matrix on the left of a product.
absl::Status ExpectRight(const Node& product);
// A weight that has another format already: formats are made of numbers.
absl::Status ExpectNumbers(const Node& node, const WeightFormat& format);
// A matrix that an op reads beside which there is one that formats have.
absl::Status ExpectOtherOp(const Node& node);

}  // namespace pagefuse
