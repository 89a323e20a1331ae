// SPDX-License-Identifier: Apache-2.0
// Makes the functions for the bodies of calls: what a runtime without an op finds under its name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The bodies of one model, each once. Overloads are of no use: ONNX Runtime before 1.30 ignores them
// and runs the last body for every call, so a further body of an op is in a domain of its own.
class CallBodies {
 public:
  // `domain`: of first bodies.
  CallBodies(Model& model, std::string_view domain) : model_(model), domain_(domain) {}

  // Lets the call, a node of `op`, run its body: sets its domain, which is returned, and those
  // attributes that the body refers to. ResourceExhausted naming the op where it has kMaxBodies others.
  absl::StatusOr<std::string> Add(Node* call, const OpDef& op);

 private:
  absl::StatusOr<std::string> DomainOf(const Node& call, const OpDef& op, Function body);

  Model& model_;
  std::string domain_;
  // Texts of the bodies of an op that has its types in one way, in the order of their domains.
  absl::flat_hash_map<std::pair<std::string, std::string>, std::vector<std::string>> texts_;
};

}  // namespace pagefuse
