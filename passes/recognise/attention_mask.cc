// SPDX-License-Identifier: Apache-2.0
// attention-mask: the mask of an Attention node becomes its attributes (is_causal,
// left_window_size), as far as the sub-graph that builds it is understood; what is left of it is
// the padding mask, or nothing.
//
//   mask = Where (j <= i + past and j > i + past - 16 and attention_mask[b, j], 0, -inf)
//   Attention (q, k, v, mask)
//     =>  Attention <is_causal = 1, left_window_size = 15> (q, k, v, padding [B, 1, 1, T])
//
// The attributes hold for all queries and keys, and the op takes no longer mask than its keys, and
// from opset 24 on hides those behind the end of a shorter one. So the limits must provably have
// been read over all of them, and a padding mask of another length is cut or repeated, as the graph
// cut or repeated it.
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/passes/analysis/functions/number_ranges.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "attention-mask";

using ports::Attention;

// The axes of an Attention node that a mask has.
struct Lengths {
  Dim batch, queries, past, keys;  // keys: past and new ones
  int key_axis = 2;                // of K, along which new keys follow each other
};

absl::Status Unfit(std::string_view why) {
  return absl::InvalidArgumentError(StrCat("mask: ", why));
}

absl::StatusOr<Lengths> LengthsOf(const Node& node) {
  if (node.input(Attention::kKeyLengths)) return Unfit("attention has its own key lengths");
  const auto& q = node.input(Attention::kQuery)->shape();
  const auto& k = node.input(Attention::kKey)->shape();
  if (!q || !k || q->rank() != k->rank() || q->rank() < 3) return Unfit("queries have no shape");
  Lengths lengths;
  lengths.key_axis = k->rank() - 2;
  lengths.batch = (*q)[0];
  lengths.queries = (*q)[lengths.key_axis];
  lengths.past = 0;
  if (const Value* past = node.input(Attention::kPastKey)) {
    lengths.past =
        past->shape() && past->shape()->rank() == 4 ? (*past->shape())[2] : Dim::Unknown();
  }
  lengths.keys = lengths.past + (*k)[lengths.key_axis];
  return lengths;
}

// A mask that is cut out of a table is as long as what it masks, or shorter, and fits nothing then.
bool Fits(const Dim& mask, const Dim& length) {
  return ProvablyEqual(mask, length) || NumberInMin(mask, length).value_or(0) > 1;
}

absl::Status CheckLimits(const MaskForm& form, const Lengths& lengths) {
  if (!form.upper && !form.lower) return absl::OkStatus();
  if (!Fits(form.queries, lengths.queries) || !Fits(form.keys, lengths.keys)) {
    return Unfit(StrCat("expected limits over ", lengths.queries.ToString(), " queries and ",
                        lengths.keys.ToString(), " keys, got ", form.queries.ToString(), " and ",
                        form.keys.ToString()));
  }
  if (form.upper && !ProvablyEqual(*form.upper, lengths.past)) {
    return Unfit(StrCat("keys up to i + ", form.upper->ToString(),
                        " are visible, but the past has ", lengths.past.ToString()));
  }
  return absl::OkStatus();
}

// OK if what the mask adds hides keys, whatever their scores are.
absl::Status CheckHides(const Node& node, const MaskForm& form, const SymbolicContents& contents) {
  if (std::isinf(form.low)) return absl::OkStatus();
  NumberRanges ranges(contents);
  const Value* key = node.input(Attention::kKey);
  const auto size = key->shape()->back(0).constant();
  const double count = size ? static_cast<double>(*size) : 1 << 16;
  PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", 1 / std::sqrt(count)));
  PF_ASSIGN_OR_RETURN(const float softcap, node.FloatAttribute("softcap", 0));
  const NumberRange scores = ScoresOf(ranges.Of(node.input(Attention::kQuery)), ranges.Of(key),
                                      {.count = count, .scale = scale, .softcap = softcap});
  const double from = HidingNumber(scores);
  if (form.low <= from) return absl::OkStatus();
  return Unfit(StrCat("expected numbers that hide keys from scores that may be as low, up to ",
                      from, ", got ", form.low));
}

// The number of keys that a query sees at most, 0 for all.
absl::StatusOr<int64_t> WindowOf(const MaskForm& form) {
  if (!form.lower) return 0;
  if (!form.upper) return Unfit("a window without causality");
  const auto width = (*form.upper - *form.lower + Dim(1)).constant();
  if (!width || *width < 1) return Unfit("the window has no constant positive width");
  return *width;
}

// True if a padding mask that is read as it is has to be repeated along the keys, as it is now.
// Where nothing says how long the whole mask is, it stays as long as it is.
absl::StatusOr<bool> RepeatsKeys(const Value* mask, const MaskForm& form, const Lengths& lengths,
                                 const SymbolicContents& contents) {
  if (form.padding_is_indexed || ProvablyEqual(form.padding_keys, lengths.keys)) return false;
  if (Reaches(mask, 0, lengths.keys, contents)) return true;
  if (ProvablyEqual(form.padding_keys, mask->shape()->back(0))) return false;
  return Unfit(StrCat("expected ", lengths.keys.ToString(), " keys, or those of \"",
                      form.padding->name(), "\", ", form.padding_keys.ToString(), ", got ",
                      mask->shape()->back(0).ToString()));
}

// By indices the first rows and keys of `padding` are read: that these are those of the batch and
// all its keys has to be known.
absl::Status CheckIndices(const MaskForm& form, const Lengths& lengths) {
  if (!form.padding_is_indexed) return absl::OkStatus();
  const bool one = form.padding_batch.constant() == 1;
  if ((one || ProvablyEqual(form.padding_batch, lengths.batch)) &&
      ProvablyEqual(form.padding_keys, lengths.keys)) {
    return absl::OkStatus();
  }
  return Unfit(StrCat("expected \"", form.padding->name(), "\" to be read by [",
                      lengths.batch.ToString(), ", ", lengths.keys.ToString(), "] indices, got [",
                      form.padding_batch.ToString(), ", ", form.padding_keys.ToString(), "]"));
}

// Builds what is left of a mask, before its Attention.
class PaddingBuilder {
 public:
  PaddingBuilder(Graph& graph, Node* node, const MaskForm& form, const Lengths& lengths)
      : node_(node), form_(form), lengths_(lengths), builder_(graph, node, "padding") {}

  // `repeats`: to all keys.
  Value* Build(bool repeats) {
    auto* padding = const_cast<Value*>(form_.padding);
    const Shape& shape = *padding->shape();
    Value* visible = builder_.Cast(padding, DataType::kBool);
    const bool is_whole = ProvablyEqual(shape, Shape{form_.padding_batch, form_.padding_keys});
    if (form_.padding_is_indexed && !is_whole) visible = FirstOf(visible);
    visible = builder_.Add("Unsqueeze", {visible, builder_.Ints({1, 2})});
    return repeats ? builder_.Add("Expand", {visible, Keys()}) : visible;
  }

 private:
  Value* Keys() {
    Value* fresh = builder_.Size(node_->input(1), lengths_.key_axis);
    Value* past = node_->input(Attention::kPastKey);
    return past ? builder_.Add("Add", {builder_.Size(past, 2), fresh}) : fresh;
  }

  // The rows of the batch, or the first one for all, and their keys. As where it is read now, that
  // there are fewer is an error.
  Value* FirstOf(Value* visible) {
    const Shape& shape = *form_.padding->shape();
    if (!ProvablyEqual(shape[0], form_.padding_batch)) {
      const bool one = form_.padding_batch.constant() == 1;
      Value* rows = one ? builder_.Ints({0}) : Counted(builder_.Size(node_->input(0), 0));
      visible = builder_.Add("Gather", {visible, rows}, {{"axis", 0}});
    }
    if (ProvablyEqual(shape[1], form_.padding_keys)) return visible;
    return builder_.Add("Gather", {visible, Counted(Keys())}, {{"axis", 1}});
  }

  // 0, 1, ...
  Value* Counted(Value* length) {
    Value* end = builder_.Add("Squeeze", {length, builder_.Ints({0})});
    return builder_.Add("Range", {builder_.Int(0), end, builder_.Int(1)});
  }

  Node* node_;
  const MaskForm& form_;
  const Lengths& lengths_;
  GraphBuilder builder_;
};

absl::Status Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  PF_ASSIGN_OR_RETURN(MaskForm form, AnalyseMask(node->input(Attention::kMask), contents));
  if (form.padding_is_counted) {
    return Unfit(StrCat("shows as many keys as \"", form.padding->name(), "\" has ones"));
  }
  PF_ASSIGN_OR_RETURN(const Lengths lengths, LengthsOf(*node));
  PF_RETURN_IF_ERROR(CheckLimits(form, lengths));
  PF_RETURN_IF_ERROR(CheckHides(*node, form, contents));
  // The node's own causality bounds a window as well as the mask's.
  if (form.lower && IntOr(*node, "is_causal", 0) != 0) form.upper = lengths.past;
  PF_ASSIGN_OR_RETURN(const int64_t window, WindowOf(form));
  const bool hides_nothing = !form.upper && !form.lower && !form.padding;
  if (hides_nothing && !Reaches(node->input(Attention::kMask), 0, lengths.keys, contents)) {
    return Unfit(StrCat("expected ", lengths.keys.ToString(), " keys, got ",
                        node->input(Attention::kMask)->shape()->back(0).ToString()));
  }
  Value* rest = nullptr;
  if (form.padding) {
    PF_RETURN_IF_ERROR(CheckIndices(form, lengths));
    PF_ASSIGN_OR_RETURN(const bool repeats,
                        RepeatsKeys(node->input(Attention::kMask), form, lengths, contents));
    rest = PaddingBuilder(graph, node, form, lengths).Build(repeats);
  }
  node->SetInput(Attention::kMask, rest);
  if (form.upper) node->SetAttribute("is_causal", MakeAttribute(int64_t{1}));
  if (window > 0) {
    const int64_t left = IntOr(*node, "left_window_size", -1);
    node->SetAttribute("left_window_size",
                       MakeAttribute(left < 0 ? window - 1 : std::min(left, window - 1)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  bool changed = false;
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is("Attention") || !node->input(Attention::kMask) ||
        PaddingInputOf(node->input(Attention::kMask), contents))
      continue;
    absl::Status done = Rewrite(*model.graph, node.get(), contents);
    if (done.ok()) {
      changed = true;
      PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    } else if (context.explain) {
      context.misses.push_back({.rule = std::string(kName),
                                .at = node->output(0)->name(),
                                .condition = std::string(StdView(done.message())),
                                .matched_nodes = 1});
    }
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseAttentionMask() {
  return MakePass(
      kName,
      "Replaces the mask of Attention by is_causal, left_window_size and a padding mask where "
      "the subgraph that builds it is understood.",
      Run);
}

}  // namespace pagefuse
