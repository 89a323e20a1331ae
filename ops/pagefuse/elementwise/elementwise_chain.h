// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise ops: the graph that a pagefuse.Elementwise node holds, checked, and as the
// steps that its kernel runs on every tile.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::pagefuse_ops {

// The graph that is a node's attribute "body", and the ops of its nodes in order.
struct ChainGraph {
  const Graph* body = nullptr;
  std::vector<const OpDef*> ops;
};

// InvalidArgument naming the node unless the graph has as many inputs as the node, one output that
// one of its nodes computes, and only elementwise ops, which read nothing from around it and,
// between them, every other value.
absl::StatusOr<ChainGraph> ChainOf(const Node& node);

// Types and shapes of the values of such a graph, as far as those of its inputs tell. The errors
// of its nodes' inference.
using ChainValues = absl::flat_hash_map<const Value*, ShapeContext::Known>;
absl::StatusOr<ChainValues> InferChain(const ChainGraph& chain,
                                       const std::vector<ShapeContext::Known>& inputs);

// One node of a chain. Values are indices into Chain::values, -1 where omitted.
struct ChainStep {
  const Node* node = nullptr;
  const Kernel* kernel = nullptr;
  std::vector<int> inputs;
  int output = -1;
};

struct ChainValue {
  DataType dtype = DataType::kUndefined;
  int slot = -1;  // of scratch memory; -1 for what comes from outside, and for the result
};

class ChainCall;

// A chain as steps. Intermediate values share slots by lifetime.
struct Chain : KernelState {
  std::unique_ptr<Graph> body;       // a copy with types; keeps the steps' nodes and constants
  std::vector<TensorArg> constants;  // initialisers of the body
  std::vector<ChainValue> values;    // inputs, constants, then one for each step
  std::vector<ChainStep> steps;
  std::vector<int64_t> slot_widths;  // by slot: bytes of its widest element
  int result = -1;
  std::shared_ptr<ChainCall> last_call;  // of RunChain
};

// The chain of a node whose inputs have types. Unimplemented saying why there are no tiles: an
// element that is no whole number of bytes, an integer divisor, a kernel with needs of its own.
absl::StatusOr<std::unique_ptr<Chain>> CompileChain(const KernelQuery& query);

// The kernel's work, on a CompileChain result as its state.
absl::Status RunChain(KernelArgs& args);

}  // namespace pagefuse::pagefuse_ops
