// SPDX-License-Identifier: Apache-2.0
// Infers the types and shapes of an op's outputs from its body, for ops whose ports do not tell
// them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// What an op computes, in one function or several: for calls that leave optional inputs out.
struct OpBody {
  struct Form {
    std::vector<int> without;  // inputs; the form is for calls that have none of them
    Function function;         // its inputs and outputs are ports, by name
  };

  // The first whose `without` fits; the last one is for all calls.
  const Form& FormOf(const Node& call) const;

  std::vector<std::string> inputs, outputs;  // names of the ports
  std::vector<bool> typed;                   // outputs whose type the ports tell
  std::vector<Form> forms;
};

// Infers the body for a call where some output has no type, no rank or a dim that nothing tells, and
// writes what it gives. InvalidArgument naming the node of the body that is wrong for the call, or the
// output where body and ports disagree.
absl::Status InferByBody(const OpBody& body, ShapeContext& context);

}  // namespace pagefuse
