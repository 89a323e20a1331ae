// select-logits: only the rows of each sequence's last token go through the last norm and the
// vocabulary matrix.
//
//   hidden [1, T, H] -- RMSNormalization -- MatMul -- logits [1, T, V]
//     =>  hidden -- Gather(query_start_loc[1:] - 1) -- last [1, B, H]
//         last -- RMSNormalization -- MatMul -- Reshape -- logits [B, V]
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/page/page.h"

namespace pagefuse {
namespace {

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
  static constexpr std::string_view kUnary[] = {"Tanh", "Cast", "Identity", "Neg"};
  for (std::string_view op : kUnary) {
    if (node->Is(op)) return node->input(0);
  }
  if (node->Is("Mul") || node->Is("Div") || node->Is("Add") || node->Is("Sub")) {
    if (IsSharedConstant(node->input(1))) return node->input(0);
    return IsSharedConstant(node->input(0)) ? node->input(1) : nullptr;
  }
  return node->num_inputs() > 0 && node->input(0) && ComputesRowsOfFirst(node) ? node->input(0)
                                                                               : nullptr;
}

class SelectLogitsPass : public Pass {
 public:
  std::string_view name() const override { return "select-logits"; }
  std::string_view description() const override {
    return "Computes logits for the last token of each sequence only.";
  }
  std::vector<PassOption> options() const override {
    return {{"logits", "rows of logits that are computed, last by default", {"last", "all"}}};
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
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
    ++context.counts[std::string(name())];
    return true;
  }

 private:
  static bool IsRowMatrix(const Value* value) {
    return value->shape() && value->shape()->rank() == 3 && (*value->shape())[0].constant() == 1;
  }

  static void Insert(Graph& graph, Value* rows, Value* logits, Value* starts) {
    Node* first = FirstReaderTowards(rows, logits);
    GraphBuilder builder(graph, first, "select");
    Value* ends = builder.Add(
        "Slice", {starts, builder.Ints({1}), builder.Ints({INT64_MAX}), builder.Ints({0})});
    Value* wide = builder.Add("Cast", {ends}, "to", static_cast<int64_t>(DataType::kInt64));
    Value* last = builder.Add("Sub", {wide, builder.Int(1)});
    Value* selected = builder.Add("Gather", {rows, last}, "axis", 1);
    first->SetInput(IndexOf(first, rows), selected);
    // [1, B, V] to [B, V], under the old name.
    GraphBuilder tail(graph, nullptr, "select");
    const std::string name = logits->name();
    graph.Rename(logits, graph.UniqueName(name + ".rows"));
    Value* flat = tail.Add("Squeeze", {logits, tail.Ints({0})});
    graph.Rename(flat, name);
    flat->set_dtype(logits->dtype());
    for (int i = 0; i < static_cast<int>(graph.outputs().size()); ++i) {
      if (graph.outputs()[i] == logits) graph.ReplaceOutput(i, flat);
    }
    for (const auto& node : graph.nodes()) {
      for (Value* output : node->outputs()) {
        if (output) output->set_shape(std::nullopt);
      }
    }
  }

  // The reader of `rows` on the way to the logits.
  static Node* FirstReaderTowards(const Value* rows, const Value* logits) {
    Node* node = logits->producer();
    while (TokenwiseInput(node) != rows) node = TokenwiseInput(node)->producer();
    return node;
  }

  static int IndexOf(const Node* node, const Value* value) {
    return node->input(0) == value ? 0 : 1;
  }
};

}  // namespace

std::unique_ptr<Pass> SelectLogits() { return std::make_unique<SelectLogitsPass>(); }

}  // namespace pagefuse
