// SPDX-License-Identifier: Apache-2.0
// The passes of the stage export, which lower a fused graph to a file that other runtimes read.
// They run when ONNX is written, never before a graph is run here; import undoes what they do to
// calls (ir/graph/body_domains.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Opsets of ai.onnx that a file may be written in: what ONNX Runtime 1.20 takes, to the newest here.
inline constexpr int64_t kOldestTarget = 21;

// The option of lower-opset.
inline PassOption TargetOpsetOption() {
  return {"target_opset", "opset of ai.onnx that is written, 21"};
}

// All passes of the stage, in order.
std::vector<std::unique_ptr<Pass>> ExportPasses();

// Turns inputs and outputs of float8 into uint8, since ONNX Runtime refuses float8 ports of
// functions. The attributes of ops tell what the bytes are.
std::unique_ptr<Pass> ByteCaches();
// Gives masks of Attention a row for each query, makes masks of its windows, and adds presents beside
// pasts.
std::unique_ptr<Pass> AttentionMasks();
// Writes a model-local function for each distinct body of a fused op.
std::unique_ptr<Pass> WriteBodies();
// Replaces ops that are newer than the target: BitCast and float8 by arithmetic, others by calls of
// bodies.
std::unique_ptr<Pass> LowerOpset();

// What was written: "bodies: GatedLinear 1, PagedAttention 2 (193 nodes); opset 21, IR 10".
std::string WrittenReport(const Model& model);

}  // namespace pagefuse
