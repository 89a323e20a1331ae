// SPDX-License-Identifier: Apache-2.0
// rope-by-element: recognises the rotation of pairs of channels element by element, and makes it
// RotaryEmbedding.
//
//   y = x * c + t * s,  t[lo(i)] = -x[hi(i)], t[hi(i)] = x[lo(i)],  c[lo(i)] = c[hi(i)] = cos[i], s alike
//     =>  RotaryEmbedding (x, cos, sin)
//
// or both channels of a pair by themselves, a * c - b * s and b * c + a * s, as complex products come
// out in reals.
//
// lo(i), hi(i) are 2i, 2i + 1 (interleaved = 1) or i, i + R/2. Turned pairs and widened tables are
// read by element, so that it does not matter how they are made (DeepSeek-V4 exports stack and tile
// them) or scaled. Heads stand before tokens, [B, H, S, R], or behind them, [B, S, H, R], as in the
// indexer of DeepSeek-V3.2: the tables tell. Where x is a part of the channels of heads, the others
// pass beside it as exported. The op takes tables of each sequence and token; those that are the
// same for all sequences are repeated.
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/rotation_reader.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "rope-by-element";
constexpr int kRank = 4;  // [B, H, S, R] or [B, S, H, R]

// y as a sum of two products, in every order of their factors; empty if it is none.
std::vector<RotationTerms> TermsOf(const Node& sum) {
  const auto& shape = sum.output(0) ? sum.output(0)->shape() : std::nullopt;
  if (!sum.Is("Add") || !shape || shape->rank() != kRank) return {};
  if (shape->back(0).constant().value_or(1) % 2 != 0) return {};
  const Node* products[] = {sum.input(0)->producer(), sum.input(1)->producer()};
  for (const Node* product : products) {
    if (!product || !product->Is("Mul")) return {};
  }
  std::vector<RotationTerms> orders;
  for (int straight : {0, 1}) {
    const Node& a = *products[straight];
    const Node& b = *products[1 - straight];
    for (int x : {0, 1}) {
      for (int turned : {0, 1}) {
        orders.push_back({a.input(x), a.input(1 - x), b.input(turned), b.input(1 - turned)});
      }
    }
  }
  return orders;
}

// Whether two channels may be put together there, each computed by itself.
bool JoinsPairs(const Node& node) {
  const Value* y = node.output(0);
  if (!y || !y->shape() || y->shape()->rank() != kRank) return false;
  if (y->shape()->back(0).constant().value_or(1) % 2 != 0) return false;
  const Node* join = node.Is("Reshape") ? node.input(0)->producer() : &node;
  return join && join->Is("Concat") && join->num_inputs() == 2;
}

std::optional<Rotation> FindRotation(RotationReader& reader, const Node& node,
                                     const std::vector<RotationTerms>& terms) {
  if (terms.empty()) return reader.ReadPairs(node.output(0));
  for (const RotationTerms& reading : terms) {
    if (auto rotation = reader.ReadTerms(reading)) return rotation;
  }
  return std::nullopt;
}

struct Operands {
  Value *x, *cos, *sin;
};

Value* ForAllSequences(GraphBuilder& builder, Value* table, Value* x) {
  Value* sizes = builder.Add("Concat", {builder.Size(x, 0), builder.Ints({1, 1})}, {{"axis", 0}});
  return builder.Add("Expand", {table, sizes});
}

// The op takes heads behind tokens side by side, in rows [B, S, H * R].
Value* Rotated(GraphBuilder& builder, const Rotation& rotation, Operands of) {
  const Shape shape = *of.x->shape();
  const int64_t heads = shape[2].constant().value_or(0), size = *shape.back(0).constant();
  const bool beside = rotation.heads_are_behind();
  for (auto [table, value] : {std::pair(&rotation.cos, &of.cos), {&rotation.sin, &of.sin}}) {
    if (table->shared) *value = ForAllSequences(builder, *value, of.x);
  }
  if (beside) of.x = builder.Add("Reshape", {of.x, builder.Ints({0, 0, heads * size})});
  Node* rope = builder.AddNode("", "RotaryEmbedding", {of.x, of.cos, of.sin}, 1);
  rope->SetAttribute("interleaved", MakeAttribute(int64_t{rotation.interleaved}));
  if (!beside) return rope->output(0);
  rope->SetAttribute("num_heads", MakeAttribute(heads));
  return builder.Add("Reshape", {rope->output(0), builder.Ints({0, 0, heads, size})});
}

absl::StatusOr<bool> Replace(Graph& graph, Node* node, const Rotation& rotation,
                             RotationReader& reader, PassContext& context) {
  Replacement replacement(graph, *node->output(0), kName);
  GraphBuilder& builder = replacement.builder();
  const auto x = reader.ArrangedRows(builder, rotation);
  const auto cos = reader.ArrangedTable(builder, rotation.cos, graph.inputs());
  const auto sin = reader.ArrangedTable(builder, rotation.sin, graph.inputs());
  for (const auto* part : {&x, &cos, &sin}) {
    if (part->ok()) continue;
    context.AddMissedMatch(kName, NodeLabel(*node), StdView(part->status().message()), 3);
    replacement.Undo();
    return false;
  }
  ReplaceNode(node, Rotated(builder, rotation, {*x, *cos, *sin}));
  return true;
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  Graph& graph = *model.graph;
  bool changed = false;
  EqualColumns equal_columns;
  for (Node* node : NodesOf(graph)) {
    const std::vector<RotationTerms> terms = TermsOf(*node);
    if (terms.empty() && !JoinsPairs(*node)) continue;
    const Shape shape = *node->output(0)->shape();
    if (!shape.back(0).constant()) continue;
    RotationReader reader(shape, contents, equal_columns);
    const auto rotation = FindRotation(reader, *node, terms);
    if (!rotation || (rotation->heads_are_behind() && !shape[2].constant())) continue;
    PF_ASSIGN_OR_RETURN(const bool replaced, Replace(graph, node, *rotation, reader, context));
    if (replaced) PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = changed || replaced;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseRopeByElement() {
  return MakePass(
      kName,
      "Recognises rotary position embedding by which pairs of channels are rotated, however "
      "nodes arrange the channels.",
      Run);
}

}  // namespace pagefuse
