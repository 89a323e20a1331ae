// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/mask_lengths.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;

bool Mentions(const Value& value, const std::string& symbol) {
  return value.shape() && value.shape()->Substitute({{symbol, Dim(0)}}) != *value.shape();
}

// The past and the new keys of [B, H, S, D]; unknown where one of them is.
Dim KeysOf(const Node& attention) {
  Dim keys(0);
  for (const int port : {Attention::kKey, Attention::kPastKey}) {
    const Value* rows = attention.input(port);
    if (!rows) continue;
    keys =
        rows->shape() && rows->shape()->rank() == 4 ? keys + (*rows->shape())[2] : Dim::Unknown();
  }
  return keys;
}

// The padding mask of an Attention whose mask is understood, but over a length that is none of its own.
Value* MaskOfOwnLength(const Graph& graph, const Node& node, const SymbolicContents& contents) {
  const Value* mask = node.Is("Attention") ? node.input(Attention::kMask) : nullptr;
  if (!mask || PaddingInputOf(mask, contents)) return nullptr;
  const auto form = AnalyseMask(mask, contents);
  if (!form.ok() || !form->padding || !form->padding->is_input()) return nullptr;
  const auto symbol = form->padding->shape()->back(0).symbol();
  const bool alone = symbol && std::ranges::none_of(graph.inputs(), [&](const Value* input) {
                       return input != form->padding && Mentions(*input, *symbol);
                     });
  return alone && KeysOf(node).known() ? const_cast<Value*>(form->padding) : nullptr;
}

}  // namespace

absl::StatusOr<bool> NameMaskLengths(Model& model, const SymbolicContents& contents) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    Value* padding = MaskOfOwnLength(graph, *node, contents);
    if (!padding) continue;
    padding->set_shape(Shape{(*padding->shape())[0], KeysOf(*node)});
    changed = true;
  }
  if (!changed) return false;
  ForgetShapes(graph);
  PassContext context;
  PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
  PF_RETURN_IF_ERROR(RecogniseAttentionMask()->Run(model, context).status());
  return true;
}

}  // namespace pagefuse
