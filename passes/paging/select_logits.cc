// SPDX-License-Identifier: Apache-2.0
// select-logits: lets only the rows of each sequence's last token go through the last norm and the
// vocabulary matrix.
//
//   hidden [1, T, H] -- RMSNormalization -- MatMul -- logits [1, T, V]
//     =>  hidden -- Gather(query_start_loc[1:] - 1) -- last [1, B, H]
//         last -- RMSNormalization -- MatMul -- Reshape -- logits [B, V]
#include <algorithm>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/paging/paging.h"

namespace pagefuse {
namespace {

constexpr char kName[] = "select-logits";

// The same for every token: no constant, or one whose last axis but one has size 1, if it has that.
bool IsSharedConstant(const Value* value) {
  if (!value) return true;
  if (!value->IsConstant()) return false;
  const std::vector<int64_t>& dims = value->initializer()->dims();
  return dims.size() < 2 || dims[dims.size() - 2] == 1;
}

bool IsZero(const Node* node, std::string_view attribute) {
  const auto value = node->IntAttribute(attribute, 0);
  return value.ok() && *value == 0;
}

// x [1, T, H] times a constant matrix, or normalised over H.
bool ComputesRowsOfFirst(const Node* node) {
  const Value* other = node->input(1);
  if (node->input(0)->IsConstant() || (other && !other->IsConstant())) return false;
  if (node->Is("FusedMatMul", "com.microsoft")) {
    return IsZero(node, "transA") && IsZero(node, "transBatchA") && IsZero(node, "transBatchB");
  }
  if (node->Is("RMSNormalization")) {
    const auto axis = node->IntAttribute("axis", -1);
    return axis.ok() && (*axis == -1 || *axis == 2) && IsSharedConstant(other);
  }
  return node->Is("MatMul");
}

// Nodes that compute each token's row from that row alone, with everything else constant: the input
// that carries the rows, or null.
Value* TokenwiseInput(const Node* node) {
  if (IsAnyOf(*node, {"Tanh", "Cast", "Identity", "Neg"})) return node->input(0);
  if (IsAnyOf(*node, {"Mul", "Div", "Add", "Sub"})) {
    if (IsSharedConstant(node->input(1))) return node->input(0);
    return IsSharedConstant(node->input(0)) ? node->input(1) : nullptr;
  }
  return node->num_inputs() > 0 && node->input(0) && ComputesRowsOfFirst(node) ? node->input(0)
                                                                               : nullptr;
}

bool IsRowMatrix(const Value* value) {
  return value->shape() && value->shape()->rank() == 3 && (*value->shape())[0].constant() == 1;
}

// The reader of `rows` on the way to the logits.
Node* FirstReaderTowards(const Value* rows, const Value* logits) {
  Node* node = logits->producer();
  while (TokenwiseInput(node) != rows) node = TokenwiseInput(node)->producer();
  return node;
}

void Insert(Graph& graph, Value* rows, Value* logits, Value* starts) {
  Node* first = FirstReaderTowards(rows, logits);
  GraphBuilder builder(graph, first, "select");
  Value* ends = builder.Add(
      "Slice", {starts, builder.Ints({1}), builder.Ints({INT64_MAX}), builder.Ints({0})});
  Value* wide = builder.Cast(ends, DataType::kInt64);
  Value* last = builder.Add("Sub", {wide, builder.Int(1)});
  Value* selected = builder.Add("Gather", {rows, last}, {{"axis", 1}});
  first->SetInput(first->input(0) == rows ? 0 : 1, selected);
  // [1, B, V] to [B, V], under the old name.
  GraphBuilder tail(graph, nullptr, "select");
  const std::string name = logits->name();
  graph.Rename(logits, graph.UniqueName(name + ".rows"));
  Value* flat = tail.Add("Squeeze", {logits, tail.Ints({0})});
  graph.Rename(flat, name);
  flat->set_dtype(logits->dtype());
  ReplaceOutput(graph, logits, flat);
  ForgetShapes(graph);
}

absl::StatusOr<bool> Select(Model& model, PassContext& context) {
  Graph& graph = *model.graph;
  Value* starts = graph.FindValue("query_start_loc");
  Value* logits = graph.FindValue("logits");
  if (!starts || !starts->is_input() || context.Option("logits", "last") == "all") return false;
  if (!logits || !logits->is_output() || !IsRowMatrix(logits) || !logits->uses().empty())
    return false;
  Value* rows = logits;
  while (Node* node = rows->producer()) {
    Value* before = TokenwiseInput(node);
    // A row that something else reads too is where the selection has to stand.
    const bool shared = rows != logits && (rows->uses().size() > 1 || rows->is_output());
    if (!before || shared || !IsRowMatrix(before)) break;
    rows = before;
  }
  if (rows == logits) return false;
  Insert(graph, rows, logits, starts);
  ++context.counts[kName];
  return true;
}

}  // namespace

std::unique_ptr<Pass> SelectLogits() {
  return MakePass(
      kName, "Computes logits for the last token of each sequence only.", Select,
      {{"logits", "rows of logits that are computed, last by default", {"last", "all"}}});
}

}  // namespace pagefuse
