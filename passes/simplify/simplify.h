// SPDX-License-Identifier: Apache-2.0
// The passes that bring sums, products, views, casts and sizes of a graph to one canonical form.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

std::unique_ptr<Pass> ConstantFolding();
std::unique_ptr<Pass> ConstantViews();
std::unique_ptr<Pass> FoldWeights();
std::unique_ptr<Pass> GatherCutRows();
std::unique_ptr<Pass> SimplifyCasts();
std::unique_ptr<Pass> SimplifyShapes();
std::unique_ptr<Pass> SimplifyArithmetic();
std::unique_ptr<Pass> SimplifyProducts();
std::unique_ptr<Pass> CheaperForms();
std::unique_ptr<Pass> Cse();
std::unique_ptr<Pass> DeadCode();
std::unique_ptr<Pass> JoinSizes();

// The outputs of a node of constants alone; nothing where an input is none or it cannot be computed.
std::optional<std::vector<Tensor>> OutputsOfConstants(const Node& node, const OpsetImports& opsets);
// A constant takes the place of a node's output and, where the graph does not give that, its name.
void PutConstant(Graph& graph, Value& value, const Tensor& tensor, SymbolicContents& contents);

// Erases the nodes that nothing uses, those of subgraphs too; true if there were any.
bool EraseDeadNodes(Graph& graph, SymbolicContents& contents);

// Sizes of values, by name, are called otherwise. Contents have to be inferred anew.
void RenameSizes(Graph& graph, const std::map<std::string, Dim>& names);

}  // namespace pagefuse
