// SPDX-License-Identifier: Apache-2.0
// The base of passes that look at one node after the other.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Shapes and contents are inferred anew after every rewrite, and counted as one of the pass's name.
class NodePass : public Pass {
 public:
  NodePass(std::string name, std::string description)
      : name_(std::move(name)), description_(std::move(description)) {}
  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override;

 protected:
  // True if the graph was rewritten at `node`. Of the graph's nodes it may erase this one and those
  // that stood before it.
  virtual absl::StatusOr<bool> Rewrite(Graph& graph, Node* node,
                                       const SymbolicContents& contents) const = 0;

 private:
  std::string name_, description_;
};

}  // namespace pagefuse
