// SPDX-License-Identifier: Apache-2.0
// select-logits: lets only the rows of tokens whose logits are wanted go through the last norm and
// the vocabulary matrix. The input logit_rows [R] says which of the step's tokens they are; pieces of
// prompts that go on want none.
//
//   hidden [1, T, H] -- RMSNormalization -- MatMul -- logits [1, T, V]
//     =>  hidden -- Gather(logit_rows) -- wanted [1, R, H]
//         wanted -- RMSNormalization -- MatMul -- Squeeze -- logits [R, V]

#include <algorithm>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/paging/paging.h"

namespace pagefuse {
namespace {

constexpr char kName[] = "select-logits", kRows[] = "logit_rows";

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

bool IsConstantOrAbsent(const Value* value) { return value == nullptr || value->IsConstant(); }

// x [1, T, H] times a constant matrix, or normalised over H.
bool ComputesRowsOfFirst(const Node* node) {
  if (node->input(0)->IsConstant()) return false;
  const Value* other = node->input(1);
  if (node->Is("Linear", "pagefuse") || node->Is("MatMulNBits", "com.microsoft")) {
    return std::all_of(node->inputs().begin() + 1, node->inputs().end(), IsConstantOrAbsent);
  }
  if (!IsConstantOrAbsent(other)) return false;
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

void Insert(Graph& graph, Value* rows, Value* logits) {
  Value* wanted = graph.AddInput(kRows, DataType::kInt64, Shape{Dim::Symbol("num_logits")});
  Node* first = FirstReaderTowards(rows, logits);
  GraphBuilder builder(graph, first, "select");
  Value* selected = builder.Add("Gather", {rows, wanted}, {{"axis", 1}});
  first->SetInput(first->input(0) == rows ? 0 : 1, selected);
  // [1, R, V] to [R, V], under the old name.
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
  // Packed tokens, among which rows are chosen.
  if (!starts || !starts->is_input() || graph.FindValue(kRows)) return false;
  if (context.Option("logits", "last") == "all") return false;
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
  Insert(graph, rows, logits);
  ++context.counts[kName];
  return true;
}

}  // namespace

std::unique_ptr<Pass> SelectLogits() {
  return MakePass(
      kName, "Computes logits for the tokens of logit_rows only.", Select,
      {{"logits",
        "rows of logits that are computed, by default those of the last tokens, which logit_rows tells",
        {"last", "all"}}});
}

}  // namespace pagefuse
