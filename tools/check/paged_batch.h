// SPDX-License-Identifier: Apache-2.0
// Converts a decoder's data set to the form that the paged path takes: sequences without their
// padding.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/check/testcase.h"

namespace pagefuse {

// Unimplemented: the paged path has no counterpart of this case, and `why`.
absl::Status NoPagedCounterpart(const TestDataSet& data, std::string_view why);

// One sequence of a batch [B, S] with P columns of past.
struct PagedSequence {
  int64_t row = 0;                    // in the batch
  std::vector<int64_t> past = {};     // columns of the past that the mask keeps
  std::vector<int64_t> columns = {};  // of its new tokens that the mask keeps, in [0, S)
  std::vector<int64_t> tokens = {};   // at these columns
};

struct PagedBatch {
  int64_t batch = 0, length = 0, past = 0;    // B, S, P
  std::vector<PagedSequence> sequences = {};  // those with new tokens
  int64_t hidden = 0;                         // new tokens that are padding
};

// Reads the feeds input_ids [B, S], attention_mask [B, P + S] and, where there is one, position_ids
// [B, S], which must count the tokens that the mask keeps. Unimplemented naming the feed that is
// missing or of another type or shape, or if no token is kept.
absl::StatusOr<PagedBatch> ReadPagedBatch(const TestDataSet& data);

// The expected logits of the batch's tokens.
struct PagedLogits {
  Tensor rows;                     // [N, V]
  std::vector<int64_t> positions;  // of these rows among the packed tokens
};

// Takes them from the data set's output `index`: [B, S, V], or [B, 1, V] or [B, V] of last columns.
// Unimplemented if there is none, or it has another shape or no type of logits, or all rows are
// padding.
absl::StatusOr<PagedLogits> ReadPagedLogits(const TestDataSet& data, const PagedBatch& batch,
                                            int index);

}  // namespace pagefuse
