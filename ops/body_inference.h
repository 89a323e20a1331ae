// Types and shapes of an op's outputs as its body gives them, for ops whose ports do not tell.
#pragma once

#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse {

struct OpBody {
  Function function;        // its inputs and outputs are the ports, in order
  std::vector<bool> typed;  // outputs whose type the ports tell
};

// Infers the body for a call where some output has no type, no rank or a dim that nothing tells, and
// writes what it gives. InvalidArgument naming the node of the body that is wrong for the call, or the
// output where body and ports disagree.
absl::Status InferByBody(const OpBody& body, ShapeContext& context);

}  // namespace pagefuse
