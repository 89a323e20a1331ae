// The reference page of all ops, generated from their definitions.
#pragma once

#include <string>

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// The page as Markdown (docs/ops.md): for each op its meaning, ports, attributes, types, kernels
// and decomposition. The same registry always gives the same text.
std::string OpsReference(const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
