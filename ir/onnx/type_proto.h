// SPDX-License-Identifier: Apache-2.0
// Converts between TypeProto and the dtype and shape of a value.
#pragma once

#include "absl/status/status.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// Sets dtype and shape, or type_proto for what is no tensor. InvalidArgument for an element type
// that ONNX does not define.
absl::Status ImportType(const onnx::TypeProto& proto, Value& value);

// The type of a value, spelled as it was imported if it still is the same. False if nothing is
// known of it.
bool ExportType(const Value& value, onnx::TypeProto* proto);

}  // namespace pagefuse
