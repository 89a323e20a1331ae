// SPDX-License-Identifier: Apache-2.0
// Small edits of graphs that passes share: walking all graphs of a model, replacing values,
// creating typed nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

using OpsetImports = std::map<std::string, int64_t>;

// A graph of a model with the opset imports that hold in it (functions have their own).
struct GraphScope {
  Graph* graph = nullptr;
  OpsetImports* opsets = nullptr;
};

// The main graph, function bodies, and the subgraphs of all of them; outer graphs before inner
// ones.
std::vector<GraphScope> AllGraphs(Model& model);

// The nodes of a graph as they are now, so that a caller may erase while it walks: all, those that
// `holds`, or those of an op.
std::vector<Node*> NodesOf(const Graph& graph);
std::vector<Node*> NodesOf(const Graph& graph, absl::FunctionRef<bool(const Node&)> holds);
std::vector<Node*> NodesOf(const Graph& graph, std::string_view op_type,
                           std::string_view domain = "");

// Version of a domain, 0 if it is not imported; "ai.onnx" is "".
int64_t OpsetOf(const OpsetImports& opsets, std::string_view domain);

// The definition of a node's op in these opsets, null if none is registered.
const OpDef* FindOpDef(const Node& node, const OpsetImports& opsets);

// Whether the node is an op of ai.onnx each element of whose result is computed from those at its place.
bool IsElementwise(const Node& node);

// The constant behind a value (an initialiser that no caller overrides), or null.
const Tensor* ConstantOf(const Value* value);

// The contents of an integer value as numbers: a constant of any size up to `max_size`, or known
// symbolic contents that are all numbers.
std::optional<std::vector<int64_t>> KnownInts(const Value* value, const SymbolicContents& contents,
                                              int64_t max_size = 64);

// The contents of an integer value of rank 0 or 1, as far as they are known.
std::optional<std::vector<Dim>> KnownDims(const Value* value, const SymbolicContents& contents);

// What shape inference may know of a value; a default-constructed Known for null.
ShapeContext::Known KnownOf(const Value* value, const SymbolicContents& contents);

// Infers types and shapes of the node's outputs from its inputs and writes them and their contents.
// Does nothing where the op is unknown or has subgraphs; an output keeps what it had where
// inference does not know better.
absl::Status InferNode(const Node& node, const OpsetImports& opsets, SymbolicContents& contents);

// Lets readers of `from` read `to` instead. A graph output keeps its name; where `to` cannot take
// it (it is a graph input, another output, an initialiser or of an outer graph), the output keeps
// `from` and only the other readers change. Returns true if anything changed.
bool ReplaceValue(Graph& graph, Value* from, Value* to);

// True if ReplaceValue would leave `from` without readers.
bool CanReplaceWholly(const Value& from, const Value& to);

// Lets readers of the node's first output, or of its graph, read `to`, and erases the node, with the
// producers that only it kept alive, unless something else of it is read.
void ReplaceNode(Node* node, Value* to);
// Name and metadata of a node for the one that takes its place.
void TakePlace(Node& made, const Node& old);

// A new initialiser with a name made from `base`; the contents of small integer ones are entered.
Value* AddConstant(Graph& graph, std::string_view base, Tensor tensor, SymbolicContents& contents);

// A 1-D int64 initialiser.
Value* AddInts(Graph& graph, std::string_view base, const std::vector<int64_t>& values,
               SymbolicContents& contents);

// True if nothing reads what the node computes.
bool IsDead(const Node& node);
// Erases `node` if nothing reads it, then in turn the producers that only it kept alive; forgets
// their contents. Returns the nodes erased (dangling, for use as keys only), in order.
std::vector<const Node*> EraseDead(Node* node, SymbolicContents& contents);

// Metadata entries that survive a rewrite: `namespace` and `pkg.*` but those of pagefuse itself.
bool KeepsMetadata(std::string_view key);

// The node's name, or that of its first output.
std::string NodeLabel(const Node& node);

// An integer (string) attribute, the default if absent or of another kind.
int64_t IntOr(const Node& node, std::string_view name, int64_t default_value);
std::string StringOr(const Node& node, std::string_view name, std::string_view default_value);

// Makes a node one of the same op type in another domain, under the same names.
void MoveCall(Node* call, const std::string& domain);

// The tensor that a Constant node stands for; nullopt for references to attributes, strings in
// sparse form and the like.
std::optional<Tensor> ConstantNodeValue(const Attribute& attribute, std::string_view name);

// An attribute of that value.
template <typename T>
Attribute MakeAttribute(T value) {
  Attribute attribute;
  attribute.value = std::move(value);
  return attribute;
}

// True if an attribute is a reference to one of the enclosing function.
bool HasAttributeRef(const Node& node);

// `axis` counted from the front for a tensor of that rank.
inline int64_t NormalAxis(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

}  // namespace pagefuse
