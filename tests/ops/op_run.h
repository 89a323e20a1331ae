// SPDX-License-Identifier: Apache-2.0
// Runs one kernel on one case, between guard bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "op_test.h"

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// A case as a node in a graph of its own, with the types of its tensors.
class CaseNode {
 public:
  CaseNode(const OpDef& op, const OpCases& table, const OpCase& op_case);
  Node& node() { return *node_; }
  const Node& node() const { return *node_; }
  int64_t opset() const { return opset_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }

 private:
  Graph graph_;
  Node* node_ = nullptr;
  int64_t opset_;
  std::vector<Tensor> inputs_;
};

struct RunOptions {
  const Kernel* kernel = nullptr;
  bool in_place = false;  // outputs that may be in place are
  // Distance of every buffer from 64-byte alignment, in elements.
  int64_t misalignment = 0;
  // Bytes between the blocks of inputs that the op takes in blocks (PortSpec::InBlocks).
  int64_t block_gap = 0;
};

// Infers, checks values, runs the kernel. The status of inference and checks is returned; that no
// byte outside the outputs and no input was written is EXPECTed.
absl::StatusOr<std::vector<Tensor>> RunGuarded(const OpDef& op, CaseNode& call,
                                               const RunOptions& options);

// The definition: what the kernel "reference" gives, or the decomposition where there is none.
absl::StatusOr<std::vector<Tensor>> RunReference(const OpDef& op, CaseNode& call);

// The inferred types and shapes of the outputs, from the inputs' shapes and contents.
absl::StatusOr<std::vector<ShapeContext::Known>> InferOutputs(const OpDef& op, CaseNode& call);

// EXPECTs that two lists of tensors have the same types and dims, and values within the tolerances
// of the table, or of the case.
void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                 const OpCases& table, const OpCase& op_case);

}  // namespace pagefuse
