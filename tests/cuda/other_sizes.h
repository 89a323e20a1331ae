// SPDX-License-Identifier: Apache-2.0
// Cases of a table in other sizes.
#pragma once

#include <cstdint>
#include <optional>

#include "op_test.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The case with other dims and elements: sizes that are equal stay equal, and 1 stays 1, so that what is
// broadcast or multiplied still is. Elements are drawn among those that the tensor has. Inference may
// refuse it. Nullopt where contents of an input are sizes or places: if any is an integer, of an op that
// is not elementwise.
std::optional<OpCase> InOtherSizes(const OpDef& op, const OpCase& op_case, uint64_t seed);

}  // namespace pagefuse
