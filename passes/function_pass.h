// SPDX-License-Identifier: Apache-2.0
// Makes a pass of a single function.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// As Pass::Run.
using PassFunction = std::function<absl::StatusOr<bool>(Model&, PassContext&)>;
std::unique_ptr<Pass> MakePass(std::string_view name, std::string_view description,
                               PassFunction run, std::vector<PassOption> options = {});

// As NodePass::Rewrite.
using NodeFunction = std::function<absl::StatusOr<bool>(Graph&, Node*, const SymbolicContents&)>;
std::unique_ptr<Pass> MakeNodePass(std::string_view name, std::string_view description,
                                   NodeFunction rewrite);

// True if the graph changed.
using GraphFunction = std::function<absl::StatusOr<bool>(Model&, PassContext&, const GraphScope&)>;
// A pass that looks at every graph of a model, inner ones first.
std::unique_ptr<Pass> MakeGraphPass(std::string_view name, std::string_view description,
                                    GraphFunction run);

}  // namespace pagefuse
