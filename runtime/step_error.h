// SPDX-License-Identifier: Apache-2.0
// Errors of a step that are one token's.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace pagefuse {

// The error, which is that of one token of a packed step: those of other sequences can be computed without it.
absl::Status AtToken(absl::Status error, int64_t token);

// The error without its token, which is none of the caller's step.
absl::Status WithoutToken(absl::Status error);

// The token that an error is of, counted through the step; none of other errors.
std::optional<int64_t> TokenOf(const absl::Status& error);

}  // namespace pagefuse
