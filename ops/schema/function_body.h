// SPDX-License-Identifier: Apache-2.0
// The body of a function with the attributes of one call filled in.
#pragma once

#include <memory>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// A copy of the body in which `@name` attributes have the caller's value, else the function's
// default; an attribute that has neither is left out, as ONNX says.
std::unique_ptr<Graph> InstantiateBody(const Function& function, const Node& caller);

}  // namespace pagefuse
