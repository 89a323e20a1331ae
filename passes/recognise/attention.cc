// attention: scaled dot-product attention written out becomes Attention-23, with its mask as it is.
//
//   Softmax(scale * q k^T [soft cap] + mask) v, with the exporters' placements of the scale and
//   their guard against all-masked rows
#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

struct Part {
  std::string name;
  std::string lines;
};

// From q and k to `scaled`. The scale may stand on both operands as its root, on one of them, or
// after the product.
std::vector<Part> Scores() {
  const std::string transpose = "kt = Transpose <perm = [0, 1, 3, 2]> (k)  ";
  const std::string constant = "factor = Constant <value_float: float = @factor> ()  ";
  return {
      {"root-on-both", transpose + constant +
                           "second = Constant <value_float: float = @second> ()  "
                           "qs = Mul (q, factor)  ks = Mul (kt, second)  scaled = MatMul (qs, ks)"},
      {"after-product", transpose + constant + "raw = MatMul (q, kt)  scaled = Mul (raw, factor)"},
      {"divided-after", transpose + "divisor = Constant <value_float: float = @divisor> ()  "
                                    "raw = MatMul (q, kt)  scaled = Div (raw, divisor)"},
      {"on-query", transpose + constant + "qs = Mul (q, factor)  scaled = MatMul (qs, kt)"},
      {"on-key", transpose + constant + "ks = Mul (kt, factor)  scaled = MatMul (q, ks)"}};
}

std::vector<Part> Caps() {
  return {{"", "capped = Identity (scaled)"},
          {"softcap",
           "cap = Constant <value_float: float = @softcap> ()  divided = Div (scaled, cap)  "
           "bounded = Tanh (divided)  capped = Mul (bounded, cap)"}};
}

// How hidden keys are taken out of the scores.
enum class Masking { kAdded, kVisible, kHidden, kNone };

std::string MaskLines(Masking masking) {
  const std::string low = "low = Constant <value_float: float = @low> ()  ";
  switch (masking) {
    case Masking::kAdded:
      return "masked = Add (capped, mask)";
    case Masking::kVisible:
      return low + "masked = Where (mask, capped, low)";
    case Masking::kHidden:
      return low + "masked = Where (mask, low, capped)";
    case Masking::kNone:
      break;
  }
  return "masked = Identity (capped)";
}

std::vector<Part> Softmaxes() {
  return {{"", "p = Softmax <axis = -1> (masked)"},
          {"guarded",
           "soft = Softmax <axis = -1> (masked)  broken = IsNaN (soft)  "
           "zero = Constant <value_float: float = 0.0> ()  p = Where (broken, zero, soft)"}};
}

// The Attention op scales q k^T by `scale`; whatever was not scaled in the spelling counts as 1.
absl::Status DeriveScale(Match& match) {
  auto number = [&](std::string_view name, float otherwise) {
    auto it = match.attributes.find(name);
    const float* value =
        it == match.attributes.end() ? nullptr : std::get_if<float>(&it->second.value);
    return value ? *value : otherwise;
  };
  const float scale = number("factor", 1) * number("second", 1) / number("divisor", 1);
  match.attributes["scale"] = {.value = scale, .doc_string = {}, .unknown_fields = {}};
  if (!match.attributes.contains("softcap")) {
    match.attributes["softcap"] = {.value = 0.0f, .doc_string = {}, .unknown_fields = {}};
  }
  return absl::OkStatus();
}

Condition HasHeads() {
  return {"q, k, v are [B, H, S, D]", [](const Match& match) -> absl::Status {
            for (std::string_view name : {"q", "k", "v"}) {
              const Value* value = match.value(name);
              if (!value->shape() || value->shape()->rank() != 4) {
                return absl::FailedPreconditionError(StrCat("\"", name, "\" is not [B, H, S, D]"));
              }
            }
            return absl::OkStatus();
          }};
}

// What is chosen for hidden keys has no part in the softmax.
absl::Status Hides(const Match& match) {
  const auto it = match.attributes.find("low");
  const float* low = it == match.attributes.end() ? nullptr : std::get_if<float>(&it->second.value);
  if (low == nullptr || *low <= -1e30f) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("a score of ", *low, " hides no key"));
}

Rule AttentionRule(const std::string& name, Masking masking) {
  const bool masked = masking != Masking::kNone;
  const bool hidden = masking == Masking::kHidden;
  Rule rule(name, masked ? "attention under a mask" : "attention without a mask");
  const std::string head = masked ? "(q, k, v, mask) => (y) { " : "(q, k, v) => (y) { ";
  for (const Part& score : Scores()) {
    for (const Part& cap : Caps()) {
      for (const Part& softmax : Softmaxes()) {
        rule.MatchText(StrCat(head, score.lines, "  ", cap.lines, "  ", MaskLines(masking), "  ",
                              softmax.lines, "  y = MatMul (p, v) }"),
                       StrCat(score.name, " ", cap.name, " ", softmax.name));
      }
    }
  }
  return rule.Where(HasHeads())
      .Where("hidden scores are low", Hides)
      .Derive(DeriveScale)
      .ReplaceWith(
          StrCat(head, hidden ? "visible = Not (mask)  " : "",
                 "y = Attention <scale: float = @scale, softcap: float = @softcap> (q, k, v",
                 hidden   ? ", visible"
                 : masked ? ", mask"
                          : "",
                 ") }"));
}

}  // namespace

std::unique_ptr<Pass> RecogniseAttention() {
  std::vector<Rule> rules;
  rules.push_back(AttentionRule("attention", Masking::kAdded));
  rules.push_back(AttentionRule("attention-visible", Masking::kVisible));
  rules.push_back(AttentionRule("attention-hidden", Masking::kHidden));
  rules.push_back(AttentionRule("attention-unmasked", Masking::kNone));
  return MakeRulePass("attention", "Recognises scaled dot-product attention.", std::move(rules));
}

}  // namespace pagefuse
