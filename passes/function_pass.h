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

// As Pass::Run. `options` and `rules` are told as they are.
using PassFunction = std::function<absl::StatusOr<bool>(Model&, PassContext&)>;
std::unique_ptr<Pass> MakePass(std::string_view name, std::string_view description,
                               PassFunction run, std::vector<PassOption> options = {},
                               std::vector<RuleSummary> rules = {});

// True if the graph was rewritten at the node. Of the graph's nodes it may erase this one and those
// that stood before it.
using NodeFunction = std::function<absl::StatusOr<bool>(Graph&, Node*, const SymbolicContents&)>;
// A pass that looks at one node of the main graph after the other. Shapes and contents are inferred
// anew after every rewrite, and counted as one of the pass's name.
std::unique_ptr<Pass> MakeNodePass(std::string_view name, std::string_view description,
                                   NodeFunction rewrite);

// True if the graph changed.
using GraphFunction = std::function<absl::StatusOr<bool>(Model&, PassContext&, const GraphScope&)>;
// A pass that looks at every graph of a model, inner ones first: erasing a node of an outer one may
// erase the graphs in it.
std::unique_ptr<Pass> MakeGraphPass(std::string_view name, std::string_view description,
                                    GraphFunction run, std::vector<RuleSummary> rules = {});

}  // namespace pagefuse
