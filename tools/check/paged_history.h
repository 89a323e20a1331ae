// SPDX-License-Identifier: Apache-2.0
// Finds the tokens that made a past, in another data set of the case that gave this past as its
// output.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/check/paged_batch.h"
#include "tools/check/testcase.h"

namespace pagefuse {

// For each sequence of `batch`, all tokens before its new ones. Every past of data set `index` must
// be, bit for bit wherever a token is kept, an output of one other data set, whose kept tokens and
// own past are then those of its columns; followed back to a set without a past. None if there is
// no such set.
std::optional<std::vector<std::vector<int64_t>>> FindHistory(const TestCase& test_case,
                                                             size_t index, const PagedBatch& batch);

}  // namespace pagefuse
