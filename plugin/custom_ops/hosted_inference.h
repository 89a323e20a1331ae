// SPDX-License-Identifier: Apache-2.0
// Infers the types and shapes of the outputs of a custom op, as far as its library tells them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/shape_context.h"
#include "pagefuse/plugin/custom_ops/row.h"

namespace pagefuse::ort {

absl::Status InferHosted(const std::vector<Row>& rows, const std::string& library, ShapeContext& c);

// Whether that version of the row's domain has it.
bool IsInVersion(const Row& row, int64_t opset);

}  // namespace pagefuse::ort
