// SPDX-License-Identifier: Apache-2.0
// Makes a custom op of a library an op of ours, whose kernels are the rows of the library.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/plugin/custom_ops/row.h"

namespace pagefuse::ort {

// `rows`: all of one domain and name, at least one, in the order in which they were added.
// `library`: what errors call it.
absl::StatusOr<OpDef> HostedOp(std::vector<Row> rows, const std::string& library);

}  // namespace pagefuse::ort
