// A decoder's test data run through the paged path: [B, S] feeds become packed sequences over the
// cache.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/testcase.h"

#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {

// True if a case has the inputs of an exported decoder, input_ids and attention_mask, and joins its
// caches itself, not inside of GroupQueryAttention.
bool IsDecoderCase(const TestCase& test_case);

// Runs the pipeline (cache mode none, a row of logits for every token) and then each data set:
// padding is dropped, a past is written into the cache, all rows run in one packed step. Compares
// the logits of tokens that the mask keeps; what the graph computes at padded positions, and the
// present tensors, have no counterpart in a paged graph.
absl::Status CheckPagedCase(TestCase test_case, const SessionOptions& options);

}  // namespace pagefuse
