// SPDX-License-Identifier: Apache-2.0
// fuse-paged-output: lets PagedAttention itself guard its result against NaN, and give the type to
// which it is cast or quantised, so that it is rounded once.
//
//   PagedAttention (..) -- Cast                                   =>  <output_dtype> (..)
//   PagedAttention (..) -- / scale -- Clip -448, 448 -- Cast e4m3fn   =>  <output_dtype> (.., scale)
//   PagedAttention <fp8_per_tensor> (.., v_scale 1) -- * scale        =>  (.., v_scale = scale)
//   PagedAttention (..) -- Where (IsNaN (y), c, y)                =>  <nan_value = c> (..)
//
// Views between them go behind what is taken in.
#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/nan_guard.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "fuse-paged-output";

constexpr int kScale = kPagedAttentionIn["output_scale"];
constexpr double kLargestE4m3fn = 448;

// From a result to what becomes of it: one reader after the other, behind views, which do not
// matter to what is done to every element alike.
struct Walk {
  const Value* at = nullptr;
  std::vector<Node*> views = {};

  // The next reader that is no view; null if there are more, or none.
  Node* Next() {
    Node* reader = OnlyReader(*at);
    while (reader && reader->Is("Reshape") && reader->input(0) == at) {
      views.push_back(reader);
      at = reader->output(0);
      reader = OnlyReader(*at);
    }
    return reader;
  }
};

// What the result becomes.
struct Ending {
  Node* last = nullptr;
  Value* scale = nullptr;  // null: a cast
  std::vector<Node*> views = {};
};

bool IsSingle(const Value* value) {
  return value && value->dtype() == DataType::kFloat && value->shape() &&
         value->shape()->rank() < 2 &&
         (value->shape()->rank() == 0 || (*value->shape())[0].constant() == 1);
}

// The scale by which `node` divides `value`; null if it does something else.
Value* DividedBy(const Node& node, const Value& value) {
  if (node.Is("Div") && node.input(0) == &value) return node.input(1);
  if (!node.Is("Mul")) return nullptr;
  const Value* other = node.input(node.input(0) == &value ? 1 : 0);
  const Node* reciprocal = other->producer();
  return reciprocal && reciprocal->Is("Reciprocal") ? reciprocal->input(0) : nullptr;
}

// A cast saturates; exporters that do not trust it clip first.
Node* SaturatedCast(Walk& walk) {
  Node* reader = walk.Next();
  if (reader && reader->Is("Clip") && reader->input(0) == walk.at) {
    const bool saturates = NumberOf(reader->input(ports::Clip::kLow)) == -kLargestE4m3fn &&
                           NumberOf(reader->input(ports::Clip::kHigh)) == kLargestE4m3fn;
    walk.at = reader->output(0);
    reader = saturates ? walk.Next() : nullptr;
  }
  const bool casts = reader && reader->Is("Cast") && IntOr(*reader, "saturate", 1) != 0 &&
                     reader->output(0)->dtype() == DataType::kFloat8E4M3FN;
  return casts ? reader : nullptr;
}

std::optional<Ending> EndingOf(const Value& result) {
  Walk walk{&result};
  Node* first = walk.Next();
  if (!first) return std::nullopt;
  const DataType type = first->output(0) ? first->output(0)->dtype() : DataType::kUndefined;
  const bool narrows = type == DataType::kFloat16 || type == DataType::kBfloat16;
  if (first->Is("Cast") && narrows) return Ending{first, nullptr, walk.views};
  Value* scale = DividedBy(*first, *walk.at);
  if (!IsSingle(scale)) return std::nullopt;
  walk.at = first->output(0);
  Node* cast = SaturatedCast(walk);
  if (!cast) return std::nullopt;
  Ending ending{cast, scale, walk.views};
  walk.at = cast->output(0);
  Node* twin = walk.Next();
  const bool bytes = twin && twin->Is("BitCast") && twin->output(0)->dtype() == DataType::kUint8;
  return bytes ? Ending{twin, scale, walk.views} : ending;
}

struct End {
  Value* value = nullptr;
  const std::vector<Node*>& views;
};

// The op stands where the end was computed, the views behind it: its new inputs are known there.
Node* Replace(Graph& graph, const Node& node, std::vector<Value*> inputs, const End& end) {
  Node* last = end.value->producer();
  GraphBuilder builder(graph, last, end.value->name());
  Node* fused = builder.AddNode("pagefuse", "PagedAttention", std::move(inputs), 1, node);
  TakePlace(*fused, node);
  Value* result = fused->output(0);
  for (const Node* view : end.views) {
    Node* moved = builder.AddNode("", "Reshape", {result, view->input(1)}, 1, *view);
    moved->name = view->name;
    result = moved->output(0);
  }
  graph.ReplaceAllUses(end.value, result);
  graph.EraseIfDead(last);
  return fused;
}

bool TakeGuard(Node& node) {
  Walk walk{node.output(0)};
  walk.Next();
  const auto guard = FindNanGuard(*walk.at);
  if (!guard || !TakeNanGuard(node, *guard)) return false;
  Node* choice = guard->result->producer();
  ReplaceNode(choice, choice->input(2));
  return true;
}

// What stands in place of NaN is scaled, too, where the scale is behind it.
bool MayScale(const Node& node) { return node.FloatAttribute("nan_value", 0.0f).value_or(1) == 0; }

// A factor of the result is one of all values.
bool TakeFactor(Graph& graph, Node& node) {
  constexpr int kValues = kPagedAttentionIn["v_scale"];
  Walk walk{node.output(0)};
  const Node* product = walk.Next();
  if (!product || !product->Is("Mul") || NumberOf(node.input(kValues)) != 1) return false;
  Value* factor = product->input(product->input(0) == walk.at ? 1 : 0);
  const bool reciprocal = factor->producer() && factor->producer()->Is("Reciprocal");
  if (!IsSingle(factor) || reciprocal || !MayScale(node)) return false;
  std::vector<Value*> inputs = node.inputs();
  inputs[kValues] = factor;
  Replace(graph, node, std::move(inputs), {product->output(0), walk.views});
  return true;
}

bool TakeEnding(Graph& graph, Node& node) {
  const auto ending = EndingOf(*node.output(0));
  if (!ending || (ending->scale && !MayScale(node))) return false;
  Value* end = ending->last->output(0);
  std::vector<Value*> inputs = node.inputs();
  if (ending->scale) {
    inputs.resize(std::max<size_t>(inputs.size(), kScale + 1), nullptr);
    inputs[kScale] = ending->scale;
  }
  const DataType type = end->dtype();
  Node* fused = Replace(graph, node, std::move(inputs), {end, ending->views});
  fused->SetAttribute("output_dtype", MakeAttribute(static_cast<int64_t>(type)));
  return true;
}

bool Rewrite(Graph& graph, Node* node) {
  if (!node->Is("PagedAttention", "pagefuse")) return false;
  if (TakeGuard(*node)) return true;
  // What was rounded before would be rounded twice. Log-sum-exps may be read before the result.
  const Value& result = *node->output(0);
  const bool sums = node->num_outputs() > 1 && node->output(1);
  if (result.dtype() != DataType::kFloat || node->input(kScale) || sums) return false;
  return TakeFactor(graph, *node) || TakeEnding(graph, *node);
}

bool RewriteOne(Graph& graph) {
  const std::vector<Node*> nodes = NodesOf(graph);
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* node) { return Rewrite(graph, node); });
}

// One rewrite at a time: it erases nodes behind the one that it looks at, and may make another one
// possible.
absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  bool changed = false;
  while (RewriteOne(*model.graph)) {
    context.contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> FusePagedOutput() {
  return MakePass(
      kName,
      "Fuses the guard, scaling, cast or quantisation of the result of PagedAttention into the op.",
      Run);
}

}  // namespace pagefuse
