// SPDX-License-Identifier: Apache-2.0
// Restores the fused graph from a file that was written for other runtimes (body_domains.h).
#pragma once

#include <onnx/onnx_pb.h>

namespace pagefuse {

// Calls name their ops again, functions that say what these mean go, and the opset is what it was.
// Does nothing to a model without the metadata kWrittenFromOpset.
void RestoreCalls(onnx::ModelProto& model);

}  // namespace pagefuse
