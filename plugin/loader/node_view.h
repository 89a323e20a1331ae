// SPDX-License-Identifier: Apache-2.0
// A node as a plug-in's callback sees it: the pf_node of pagefuse/plugin.h.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"

#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/plugin.h"

struct pf_node {
 public:
  // Before a run: shapes as far as the graph tells them, data of constants.
  explicit pf_node(const pagefuse::KernelQuery& query);
  // In a run. `args` must outlive it.
  explicit pf_node(const pagefuse::KernelArgs& args);

  int32_t num_inputs() const { return static_cast<int32_t>(inputs_.size()); }
  int32_t num_outputs() const { return static_cast<int32_t>(outputs_.size()); }
  const pf_tensor* input(int32_t index) const;
  const pf_tensor* output(int32_t index) const;
  // Null where a run could change the input.
  const pf_tensor* constant(int32_t index) const;
  const pagefuse::Node& node() const { return node_; }
  // The node's, or else the op's default; null where there is neither.
  const pagefuse::Attribute* attribute(const std::string& name) const;
  void* Scratch(size_t size) const;

 private:
  using Tensors = absl::InlinedVector<pf_tensor, 8>;

  const pagefuse::Node& node_;
  const int64_t opset_;
  Tensors inputs_, outputs_;
  std::vector<std::vector<int64_t>> dims_;  // of tensors before a run
  pagefuse::Scratch* scratch_ = nullptr;
  mutable int scratch_slots_ = 0;
  mutable std::list<std::pair<std::string, pagefuse::Attribute>> defaults_;  // that were asked for
};

namespace pagefuse {

// What is known of a value, with its data where it is a constant. `dims` must outlive the result.
pf_tensor TensorOf(const Value* value, std::vector<int64_t>& dims);

}  // namespace pagefuse
