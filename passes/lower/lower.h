// The passes of stage export: a fused graph becomes a file that other runtimes read. They run when
// ONNX is written, never before a graph is run here; import undoes what they do to calls
// (ir/graph/body_domains.h).
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

// All of them, in order.
std::vector<std::unique_ptr<Pass>> ExportPasses();

// Inputs and outputs of float8 become uint8: a function's float8 ports are refused by ONNX Runtime.
// Ops tell what the bytes are by their attributes.
std::unique_ptr<Pass> ByteCaches();
// A model-local function for each distinct body of a fused op.
std::unique_ptr<Pass> WriteBodies();
// Ops newer than the target: BitCast and float8 in arithmetic, others by bodies.
std::unique_ptr<Pass> LowerOpset();

// What was written: "bodies: GatedLinear 1, PagedAttention 2 (193 nodes); opset 21, IR 10".
std::string WrittenReport(const Model& model);

}  // namespace pagefuse
