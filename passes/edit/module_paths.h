// SPDX-License-Identifier: Apache-2.0
// Reads from which modules of the exported program a node comes, as exporters note it in metadata.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// "model.layers.0.mlp.gate_proj" and the modules around it, outermost first: of
// "pkg.torch.onnx.name_scopes", or of "namespace" of older exporters. A node that a rewrite made of
// several nodes has the modules of all of them. Empty where no exporter noted any.
std::vector<std::string> ModulePaths(const Node& node);

// Notes on a node the modules of those that it was made of.
void NoteModules(const std::vector<const Node*>& origins, Node& node);

}  // namespace pagefuse
