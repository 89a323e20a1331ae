// rms-norm: x / sqrt(mean(x^2) + epsilon) * weight in any of the exporters' spellings becomes
// RMSNormalization-23.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/constants.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

struct Spelling {
  std::string name;
  std::string lines;
};

std::vector<Spelling> Squares() {
  return {{"pow", "two = Constant <value_float: float = 2.0> ()  square = Pow (x, two)"},
          {"mul", "square = Mul (x, x)"}};
}

// From mean square plus epsilon to `normed`.
std::vector<Spelling> Inverses() {
  return {
      {"sqrt-reciprocal-mul",
       "root = Sqrt (shifted)  inverse = Reciprocal (root)  normed = Mul (x, inverse)"},
      {"sqrt-one-over-mul",
       "root = Sqrt (shifted)  one = Constant <value_float: float = 1.0> ()  inverse = Div (one, "
       "root)  "
       "normed = Mul (x, inverse)"},
      {"sqrt-div", "root = Sqrt (shifted)  normed = Div (x, root)"},
      {"pow-minus-half",
       "minus_half = Constant <value_float: float = -0.5> ()  inverse = Pow (shifted, minus_half)  "
       "normed = Mul (x, inverse)"}};
}

Rule WithSpellings(Rule rule, bool weighted) {
  for (const Spelling& square : Squares()) {
    for (const Spelling& inverse : Inverses()) {
      const std::string text =
          StrCat(weighted ? "(x, weight) => (y) { " : "(x) => (normed) { ", square.lines,
                 "  axes = Constant <value_ints: ints = [-1]> ()  mean = ReduceMean <keepdims = 1> "
                 "(square, axes)",
                 "  epsilon = Constant <value_float: float = @epsilon> ()  shifted = Add (mean, "
                 "epsilon)  ",
                 inverse.lines, weighted ? "  y = Mul (normed, weight) }" : " }");
      rule.MatchText(text, square.name + " " + inverse.name);
    }
  }
  return rule;
}

Condition IsChannelVector() {
  return {"weight is [D]", [](const Match& match) -> absl::Status {
            const Value* x = match.value("x");
            const Value* weight = match.value("weight");
            if (!x->shape() || !weight->shape() || weight->shape()->rank() != 1 ||
                !ProvablyEqual((*weight->shape())[0], x->shape()->back(0))) {
              return absl::FailedPreconditionError("\"weight\" is not a vector of the last dim");
            }
            return absl::OkStatus();
          }};
}

Condition HasKnownChannels() {
  return {"D is known", [](const Match& match) -> absl::Status {
            const Value* x = match.value("x");
            if (!x->shape() || x->shape()->rank() == 0 || !x->shape()->back(0).is_constant()) {
              return absl::FailedPreconditionError("the last dim of \"x\" is not a number");
            }
            // The unit weight is written out.
            constexpr int64_t kMaxChannels = int64_t{1} << 20;
            if (*x->shape()->back(0).constant() > kMaxChannels) {
              return absl::FailedPreconditionError("the last dim of \"x\" is over 1048576");
            }
            return absl::OkStatus();
          }};
}

absl::StatusOr<std::vector<Value*>> UnweightedNorm(const Match& match, Graph& graph, Node* anchor) {
  Value* x = match.value("x");
  const int64_t channels = *x->shape()->back(0).constant();
  Value* ones =
      graph.AddInitializer(graph.UniqueName("unit_weight"),
                           Tensor::Of<float>({channels}, std::vector<float>(channels, 1.0f)));
  GraphBuilder builder(graph, anchor, "rms_norm");
  Node* norm = builder.AddNode("", "RMSNormalization", {x, ones}, 1);
  norm->SetAttribute("axis", {.value = int64_t{-1}, .doc_string = {}, .unknown_fields = {}});
  norm->SetAttribute("epsilon", match.attributes.find("epsilon")->second);
  return std::vector<Value*>{norm->output(0)};
}

Condition IsUnit() {
  return {"the norm has no weight of its own", [](const Match& match) -> absl::Status {
            const Tensor* unit = match.constant("unit");
            if (unit && IsFilledWith(*unit, 1)) return absl::OkStatus();
            return absl::FailedPreconditionError("the norm has a weight already");
          }};
}

// The channels stay the last axis.
Condition KeepsChannels() {
  return {"the last axis stays the last", [](const Match& match) -> absl::Status {
            const auto& perm = std::get<std::vector<int64_t>>(match.attributes.at("perm").value);
            const auto rank = static_cast<int64_t>(perm.size());
            const int64_t axis = std::get<int64_t>(match.attributes.at("axis").value);
            if (rank > 1 && perm.back() == rank - 1 && (axis == -1 || axis == rank - 1)) {
              return absl::OkStatus();
            }
            return absl::FailedPreconditionError("the transposed axes are those of the norm");
          }};
}

}  // namespace

std::unique_ptr<Pass> RecogniseRmsNorm() {
  std::vector<Rule> rules;
  rules.push_back(
      WithSpellings(Rule("rms-norm", "RMSNorm with a weight"), /*weighted=*/true)
          .Where(IsChannelVector())
          .ReplaceWith("(x, weight) => (y) { y = RMSNormalization <axis = -1, epsilon: float = "
                       "@epsilon> (x, weight) }"));
  rules.push_back(
      WithSpellings(Rule("rms-norm-unweighted", "RMSNorm without a weight"), /*weighted=*/false)
          .Where(HasKnownChannels())
          .ReplaceWith(UnweightedNorm));
  rules.push_back(
      Rule("simplified-layer-norm", "ONNX Runtime's name for RMSNorm")
          .MatchText("(x, weight) => (y) { y = SimplifiedLayerNormalization <axis: int = @axis, "
                     "epsilon: float = @epsilon, stash_type: int = @stash_type> (x, weight) }")
          .Where(IsChannelVector())
          .ReplaceWith("(x, weight) => (y) { y = RMSNormalization <axis: int = @axis, epsilon: "
                       "float = @epsilon, stash_type: int = @stash_type> (x, weight) }"));
  // Heads are transposed before they are normed, as most exporters have it.
  rules.push_back(
      Rule("rms-norm-behind-transpose", "RMSNorm, then a Transpose")
          .MatchText("(x, weight) => (y) { normed = RMSNormalization <axis: int = @axis, epsilon: "
                     "float = @epsilon> (x, weight)  y = Transpose <perm: ints = @perm> (normed) }")
          .Where(KeepsChannels())
          .ReplaceWith("(x, weight) => (y) { turned = Transpose <perm: ints = @perm> (x)  y = "
                       "RMSNormalization <axis: int = @axis, epsilon: float = @epsilon> (turned, "
                       "weight) }"));
  rules.push_back(
      Rule("rms-norm-weight", "RMSNorm without a weight, then the weight")
          .MatchText("(x, unit, weight) => (y) { normed = RMSNormalization <axis: int = @axis, "
                     "epsilon: float = @epsilon> (x, unit)  y = Mul (normed, weight) }")
          .Where(IsChannelVector())
          .Where(IsUnit())
          .ReplaceWith("(x, unit, weight) => (y) { y = RMSNormalization <axis: int = @axis, "
                       "epsilon: float = @epsilon> (x, weight) }"));
  return MakeRulePass("rms-norm", "Recognises RMSNorm.", std::move(rules));
}

}  // namespace pagefuse
