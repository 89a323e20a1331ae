// SPDX-License-Identifier: Apache-2.0
// Reads what the host says of a node when it makes the node's kernel.
#pragma once

#include "absl/status/statusor.h"
#include "plugin/ort/node_kernel.h"
#include "plugin/ort/ort_abi.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::ort {

// Attributes by the names and kinds that `op` declares, ports with their names and types, constant
// inputs as views of the host's memory, which lasts as long as the kernel.
absl::StatusOr<NodeSpec> ReadNodeSpec(Api* api, const KernelInfo* info, const OpDef& op);

// A tensor of the host's as an argument; absent for null.
absl::StatusOr<TensorArg> ArgOf(Api* api, const Value* value);

}  // namespace pagefuse::ort
