// SPDX-License-Identifier: Apache-2.0
// attention-masks: brings Attention to the form that other runtimes take. ONNX Runtime refuses a mask
// that has one row for all queries, and a past without its present, and knows no windows, which came
// with opset 25.
//
//   y = Attention <is_causal = 1, left_window_size = 15> (q, k, v, padding [B, 1, 1, T])
//   =>  near = position(s) - t <= 15                                       [S, T]
//       y = Attention <is_causal = 1> (q, k, v, And (padding, near))       [B, 1, S, T]
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

using ports::Attention;

constexpr std::string_view kName = "attention-masks";

// Keys that a query sees around its own position; -1: no bound.
struct Window {
  int64_t left = -1, right = -1;
  bool bounded() const { return left >= 0 || right >= 0; }
};

Window WindowOf(const Node& node) {
  return {IntOr(node, "left_window_size", -1), IntOr(node, "right_window_size", -1)};
}

// The axis of tokens: of [B, H, S, D], and of [B, S, H * D].
int TokenAxis(const Value& rows) { return rows.shape()->rank() == 4 ? 2 : 1; }
const Dim& Tokens(const Value& rows) { return (*rows.shape())[TokenAxis(rows)]; }

// Whether all queries share a row of the mask, though there may be several.
bool HasOneRow(const Node& node) {
  const Value* mask = node.input(Attention::kMask);
  if (mask == nullptr || !mask->shape() || Tokens(*node.input(Attention::kQuery)) == Dim(1)) {
    return false;
  }
  return mask->shape()->rank() < 2 || mask->shape()->back(1) == Dim(1);
}

class MaskWriter {
 public:
  MaskWriter(Graph& graph, Node* node) : node_(*node), build_(graph, node, "attention_mask") {}

  // True where a query sees a key: [S, T].
  Value* Near(const Window& window) {
    Value* queries = Length(Attention::kQuery);
    Value* keys = Length(Attention::kKey);
    Value* position = Counted(queries, 1);
    if (node_.input(Attention::kPastKey) != nullptr) {
      Value* past = build_.Size(node_.input(Attention::kPastKey), 2);
      keys = build_.Add("Add", {keys, past});
      position = build_.Add("Add", {position, past});
    }
    Value* back = build_.Add("Sub", {position, Counted(keys, 0)});
    Value* near = nullptr;
    if (window.left >= 0) near = build_.Add("LessOrEqual", {back, build_.Ints({window.left})});
    if (window.right < 0) return near;
    Value* before = build_.Add("GreaterOrEqual", {back, build_.Ints({-window.right})});
    return near == nullptr ? before : build_.Add("And", {near, before});
  }

  Value* Joined(Value* mask, Value* near) {
    if (mask == nullptr) return near;
    if (mask->dtype() == DataType::kBool) return build_.Add("And", {mask, near});
    // No infinity: a query that sees no key would be NaN.
    return build_.Add("Where", {near, mask, build_.Float(LowestOf(mask->dtype()), mask->dtype())});
  }

  Value* WithRows(Value* mask) {
    Value* rows =
        build_.Add("Concat", {Length(Attention::kQuery), build_.Ints({1})}, {{"axis", 0}});
    return build_.Add("Expand", {mask, rows});
  }

 private:
  Value* Length(int port) { return build_.Size(node_.input(port), TokenAxis(*node_.input(port))); }

  // 0, 1, ... as a column or as a row.
  Value* Counted(Value* length, int64_t axis) {
    Value* end = build_.Add("Squeeze", {length, build_.Ints({0})});
    Value* numbers = build_.Add("Range", {build_.Int(0), end, build_.Int(1)});
    return build_.Add("Unsqueeze", {numbers, build_.Ints({axis})});
  }

  static float LowestOf(DataType type) {
    if (type == DataType::kFloat16) return -65504.0f;
    return type == DataType::kBfloat16 ? -0x1.fep127f : std::numeric_limits<float>::lowest();
  }

  const Node& node_;
  GraphBuilder build_;
};

// The masks of one graph. Layers that mask alike share what is written.
class Masks {
 public:
  explicit Masks(Graph& graph) : graph_(graph) {}

  // True if the node was rewritten.
  bool Rewrite(Node* node) {
    const Window window = WindowOf(*node);
    const bool one_row = HasOneRow(*node);
    if (!window.bounded() && !one_row) return false;
    Value*& written = known_[KeyOf(*node, window)];
    if (written == nullptr) written = Write(node, window);
    node->SetInput(Attention::kMask, written);
    for (const char* name : {"left_window_size", "right_window_size"}) node->RemoveAttribute(name);
    return true;
  }

 private:
  using Key = std::tuple<const Value*, int64_t, int64_t, std::string>;

  // Lengths that are not known are those of one node alone.
  static Key KeyOf(const Node& node, const Window& window) {
    std::string lengths;
    for (const int port : {Attention::kQuery, Attention::kKey, Attention::kPastKey}) {
      const Value* rows = node.input(port);
      if (rows == nullptr) continue;
      const Dim& length = port == Attention::kPastKey ? (*rows->shape())[2] : Tokens(*rows);
      StrAppend(&lengths, length.known() ? length.ToString() : rows->name(), "\n");
    }
    return {node.input(Attention::kMask), window.left, window.right, lengths};
  }

  Value* Write(Node* node, const Window& window) {
    MaskWriter writer(graph_, node);
    Value* mask = node->input(Attention::kMask);
    if (!window.bounded()) return writer.WithRows(mask);
    Value* joined = writer.Joined(mask, writer.Near(window));
    if (mask == nullptr) joined->set_dtype(DataType::kBool);
    return joined;
  }

  Graph& graph_;
  std::map<Key, Value*> known_;
};

// Presents that nothing reads, beside a past. The node in place of this one.
Node* WithPresents(Graph& graph, Node* node) {
  GraphBuilder builder(graph, node, node->output(0)->name());
  Node* written = builder.AddNode("", "Attention", node->inputs(), 3, *node);
  TakePlace(*written, *node);
  for (int i = 0; i < node->num_outputs(); ++i) {
    graph.ReplaceAllUses(node->output(i), written->output(i));
  }
  graph.EraseNode(node);
  return written;
}

bool HasKnownRanks(const Node& node) {
  for (const int port : {Attention::kQuery, Attention::kKey, Attention::kPastKey}) {
    const Value* rows = node.input(port);
    if (rows != nullptr && !rows->shape()) return false;
  }
  return true;
}

absl::StatusOr<bool> WriteMasks(Model& model, PassContext& context, const GraphScope& scope) {
  Masks masks(*scope.graph);
  bool changed = false;
  for (Node* node : NodesOf(*scope.graph)) {
    // Lengths of a cache count positions otherwise.
    if (!node->Is("Attention") || node->input(Attention::kKeyLengths) != nullptr) continue;
    const bool adds = node->input(Attention::kPastKey) != nullptr && node->num_outputs() < 3;
    if (adds) node = WithPresents(*scope.graph, node);
    if ((!HasKnownRanks(*node) || !masks.Rewrite(node)) && !adds) continue;
    changed = true;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  }
  if (changed) PF_RETURN_IF_ERROR(InferShapes(model));
  return changed;
}

}  // namespace

std::unique_ptr<Pass> AttentionMasks() {
  return MakeGraphPass(kName,
                       "Gives masks of Attention a row for each query, makes masks of windows, and "
                       "adds presents beside pasts, as other runtimes take them.",
                       WriteMasks);
}

}  // namespace pagefuse
