// attention-mask: the mask of an Attention node becomes its attributes (is_causal,
// left_window_size), as far as the sub-graph that builds it is understood; what is left of it is
// the padding mask, or nothing.
//
//   Attention(q, k, v, Where(j <= i + past and j > i + past - 16 and attention_mask[b, j], 0,
//   -inf))
//     =>  Attention <is_causal = 1, left_window_size = 15> (q, k, v, padding [B, 1, 1, T])
#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/recognise/mask_analysis.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr int kMask = 3;
constexpr int kPastKey = 4;

class AttentionMask : public Pass {
 public:
  std::string_view name() const override { return "attention-mask"; }
  std::string_view description() const override {
    return "Turns understood masks of Attention into is_causal and left_window_size.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    SymbolicContents contents;
    PF_RETURN_IF_ERROR(InferShapes(model, &contents));
    bool changed = false;
    for (const auto& node : model.graph->nodes()) {
      if (!node->Is("Attention") || !node->input(kMask) || IsPaddingMask(node->input(kMask)))
        continue;
      absl::Status done = Rewrite(*model.graph, node.get(), contents);
      if (done.ok()) {
        changed = true;
        ++context.counts[std::string(name())];
        if (context.after_rewrite) PF_RETURN_IF_ERROR(context.after_rewrite(model, name()));
      } else if (context.explain) {
        context.misses.push_back({.rule = std::string(name()),
                                  .at = node->output(0)->name(),
                                  .condition = std::string(StdView(done.message())),
                                  .matched_nodes = 1});
      }
    }
    return changed;
  }

 private:
  // What Rewrite leaves: Unsqueeze(Cast(padding), [1, 2]).
  static bool IsPaddingMask(const Value* mask) {
    const Node* node = mask->producer();
    if (!node || !node->Is("Unsqueeze")) return false;
    const Node* cast = node->input(0)->producer();
    return cast && cast->Is("Cast") && cast->input(0)->is_input();
  }

  static Dim PastLength(const Node* node) {
    const Value* past = node->input(kPastKey);
    if (!past) return Dim(0);
    return past->shape() && past->shape()->rank() == 4 ? (*past->shape())[2] : Dim::Unknown();
  }

  static absl::Status Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
    PF_ASSIGN_OR_RETURN(MaskForm form, AnalyseMask(node->input(kMask), contents));
    const Dim past = PastLength(node);
    if (form.upper && !ProvablyEqual(*form.upper, past)) {
      return absl::InvalidArgumentError(StrCat("mask: keys up to i + ", form.upper->ToString(),
                                               " are visible, but the past has ", past.ToString()));
    }
    if (form.lower && !form.upper) {
      return absl::InvalidArgumentError("mask: a window without causality");
    }
    int64_t window = 0;
    if (form.lower) {
      auto width = (*form.upper - *form.lower + Dim(1)).constant();
      if (!width || *width < 1) {
        return absl::InvalidArgumentError("mask: the window has no constant positive width");
      }
      window = *width;
    }
    if (form.upper) SetInt(node, "is_causal", 1);
    if (window > 0) SetInt(node, "left_window_size", window - 1);
    Value* rest = nullptr;
    if (form.padding) {
      GraphBuilder builder(graph, node, "padding");
      Value* visible = builder.Add("Cast", {const_cast<Value*>(form.padding)}, "to",
                                   static_cast<int64_t>(DataType::kBool));
      rest = builder.Add("Unsqueeze", {visible, builder.Ints({1, 2})});
    }
    node->SetInput(kMask, rest);
    return absl::OkStatus();
  }

  static void SetInt(Node* node, std::string_view name, int64_t value) {
    node->SetAttribute(name, {.value = value, .doc_string = {}, .unknown_fields = {}});
  }
};

}  // namespace

std::unique_ptr<Pass> RecogniseAttentionMask() { return std::make_unique<AttentionMask>(); }

}  // namespace pagefuse
