// SPDX-License-Identifier: Apache-2.0
// The kernel of a node in a host's session: how it is chosen, and what it keeps between calls. It
// knows no host.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plugin/ort/one_node.h"
#include "plugin/ort/seen_shapes.h"

#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::ort {

// What the host gives for a call.
class CallHost {
 public:
  virtual ~CallHost() = default;
  // Memory for an output.
  virtual absl::StatusOr<void*> Output(int output, const std::vector<int64_t>& dims) = 0;
  // The kernel that computes the node from now on; empty: its decomposition does.
  virtual void KernelChosen(std::string_view kernel) = 0;
  // An output that is an input, updated, has other memory than that: all of it was copied.
  virtual void Copied(int input, int output, int64_t bytes) = 0;
};

// Any number of threads may run it at once.
class NodeKernel {
 public:
  // `force_kernel`: preferred where the op has it.
  NodeKernel(const OpDef& op, NodeSpec spec, std::string force_kernel = {});
  ~NodeKernel();

  // Computes the node. Shapes and values are checked before memory for an output is asked for.
  absl::Status Run(std::vector<TensorArg> inputs, CallHost& host);

 private:
  struct Choice;
  absl::StatusOr<std::shared_ptr<Choice>> ChoiceFor(const std::vector<TensorArg>& inputs,
                                                    CallHost& host);
  absl::StatusOr<std::shared_ptr<Choice>> Choose() const;
  absl::StatusOr<std::vector<TensorArg>> InferOutputs(const Node& node,
                                                      const std::vector<TensorArg>& inputs) const;
  absl::Status PlaceOutputs(KernelArgs& args, CallHost& host) const;
  absl::Status RunDecomposition(KernelArgs& args) const;

  const OpDef& op_;
  const NodeSpec spec_;
  const std::string force_kernel_;
  std::mutex mutex_;  // of what follows
  SeenShapes seen_;
  std::shared_ptr<Choice> choice_;
};

}  // namespace pagefuse::ort
