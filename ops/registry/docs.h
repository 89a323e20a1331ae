// SPDX-License-Identifier: Apache-2.0
// The reference of all ops, generated from their definitions.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

struct ReferencePage {
  std::string path;  // in docs/: "ops/onnx_logic.md"
  std::string text;  // Markdown
};

// First the index, ops.md, which links every op; then the pages that ops.inc names, and one for
// each domain that it does not know. A page gives for each op its meaning, ports, attributes, types,
// kernels and decomposition. The same registry always gives the same text.
std::vector<ReferencePage> OpsReference(const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
