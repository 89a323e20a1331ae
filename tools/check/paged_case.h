// SPDX-License-Identifier: Apache-2.0
// Runs a decoder's test data through the paged path: [B, S] feeds become packed sequences over the
// cache.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/check/testcase.h"

#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {

// True if a case has the inputs of an exported decoder, input_ids and attention_mask, and its pasts
// are rows of keys and values as a paged cache has them: not quantised, and all of one length.
bool IsDecoderCase(const TestCase& test_case);

// Runs the pipeline (cache mode none, a row of logits for every token) and then each data set:
// padding is dropped, a past is written into the cache (or, where it has other rows than the cache,
// its tokens are run first, if another data set tells them), all rows run in one packed step.
// Compares
// the logits of tokens that the mask keeps, by the case's rule (RuleFor); what the graph computes
// at padded positions, and the present tensors, have no counterpart in a paged graph. `notes` gets
// what was not compared. Unimplemented with the reason, and nothing run, for data that the paged
// path has no counterpart of and for graphs that are not paged.
absl::Status CheckPagedCase(TestCase test_case, const SessionOptions& options,
                            std::vector<std::string>* notes = nullptr);

}  // namespace pagefuse
