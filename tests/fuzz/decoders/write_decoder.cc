// SPDX-License-Identifier: Apache-2.0
// The decoder of a plan, from embedding to logits.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_replace.h"
#include "decoder_case.h"
#include "decoder_text.h"
#include "mixing.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

constexpr const char* kScale = "temperature";
constexpr const char* kTokenFloat = "weights";

std::string Embed(DecoderText& text, const std::string& table) {
  if (text.Is("embedding", "one_hot")) {
    const std::string hot = text.Add(
        "OneHot", {kIds, text.graph.Int(DecoderText::kVocabulary), text.graph.Floats({2}, {0, 1})},
        "axis = -1");
    return text.Add("MatMul", {hot, table});
  }
  if (text.Is("embedding", "flat")) {
    const std::string rows =
        text.Add("Gather", {table, text.Add("Reshape", {kIds, text.Ints({-1})})});
    const std::string shape =
        text.Add("Concat", {text.Batch(), text.Length(), text.Ints({text.hidden})}, "axis = 0");
    return text.Add("Reshape", {rows, shape});
  }
  const std::string rows = text.Add("Gather", {table, kIds});
  if (!text.Is("embedding", "scaled")) return rows;
  const double factor = std::sqrt(static_cast<double>(text.hidden));
  return text.Add("Mul", {rows, text.graph.Float(factor)});
}

std::string ReadTypes(DecoderText& text, const std::string& x) {
  const std::string types = text.Types();
  if (text.Is("extra_input", "types")) {
    const std::string table = text.graph.Weights({2, text.hidden}, 1);
    return text.Add("Add", {x, text.Add("Gather", {table, types})});
  }
  const std::string column = text.Add("Unsqueeze", {types, text.Ints({-1})});
  if (text.Is("extra_input", "types_where")) {
    const std::string first = text.Add("Equal", {column, text.graph.Int(0)});
    return text.Add("Where", {first, x, text.Add("Neg", {x})});
  }
  const std::string factor =
      text.Add("Add", {text.Add("Cast", {column}, "to = 1"), text.graph.Float(0.5)});
  return text.Add("Mul", {x, factor});
}

std::string ReadExtraInput(DecoderText& text, const std::string& x) {
  if (text.Is("extra_input", "none")) return x;
  if (text.Is("extra_input", "unread")) {
    text.Types();
    return x;
  }
  if (text.Is("extra_input", "scale")) {
    return text.Add("Mul", {x, text.graph.Input("float", kScale)});
  }
  if (text.Is("extra_input", "token_float")) {
    const std::string type = StrCat("float[", text.BatchDim(), ", ", text.LengthDim(), "]");
    const std::string weights = text.graph.Input(type, kTokenFloat);
    return text.Add("Mul", {x, text.Add("Unsqueeze", {weights, text.Ints({-1})})});
  }
  return ReadTypes(text, x);
}

std::string Mlp(DecoderText& text, std::string x) {
  constexpr int64_t kInner = 12;
  // Without a norm, products of two halves grow from layer to layer until rounding decides.
  const bool grows = text.Is("mlp", "gated") && text.Is("norm", "none");
  if (grows) x = text.Add("Mul", {x, text.graph.Float(0.125)});
  std::string inner = text.Add("MatMul", {x, text.Matrix(text.hidden, kInner)});
  if (text.Is("mlp", "gated")) {
    const std::string up = text.Add("MatMul", {x, text.Matrix(text.hidden, kInner)});
    const std::string gate = text.Add("Mul", {inner, text.Add("Sigmoid", {inner})});
    inner = text.Add("Mul", {gate, up});
  } else {
    inner = text.Add("Relu", {inner});
  }
  return text.Add("MatMul", {inner, text.Matrix(kInner, text.hidden)});
}

std::string Normed(DecoderText& text, const std::string& x) {
  return text.Is("norm", "none") ? x : WriteNorm(text, x, text.hidden);
}

std::string Mixed(DecoderText& text, const std::string& x, const char* place) {
  return WriteMix(MixOps(), text.plan.Get(place), text, x);
}

std::string Layer(DecoderText& text, std::string x, int64_t layer) {
  x = text.Add("Add", {x, WriteAttention(text, Normed(text, x), layer)});
  if (!text.Is("mlp", "none")) x = text.Add("Add", {x, Mlp(text, Normed(text, x))});
  return layer == 0 ? Mixed(text, x, "mix_between") : x;
}

// Where positions are rotated already, or choose among few rows, what chooses rows of a table is told
// from token types by its name alone.
bool NamesDecide(const DecoderText& text) {
  if (text.Is("position_use", "learned_small")) return true;
  return text.Is("attention", "gqa_rotary") && text.plan.Get("position_use").find("learned") == 0;
}

void NameInputs(DecoderText& text) {
  if (text.Is("names", "misleading") && !NamesDecide(text)) {
    text.graph.RenameInput(kIds, kPositions);
    text.graph.RenameInput(kMask, kIds);
    text.graph.RenameInput(kPositions, kTypes);
    text.graph.RenameInput(kTypes, kMask);
  } else if (text.Is("names", "neutral")) {
    int count = 0;
    for (const std::string& name : text.graph.input_names()) {
      text.graph.RenameInput(name, StrCat("arg", count++));
    }
  }
}

std::string RoleOf(const std::string& name) {
  if (name == kIds) return "ids";
  if (name == kMask) return "mask";
  if (name == kPositions) return "positions";
  if (name == kTypes) return "types";
  if (name == kMask4) return "mask4";
  if (name == kScale) return "scale";
  return name == kTokenFloat ? "token_float" : "past";
}

// The output that a past is in the next step, empty for what is no past.
std::string PresentOf(const std::string& name) {
  if (RoleOf(name) != "past") return "";
  return absl::StrReplaceAll(name, {{"past_key_values", "present"}});
}

int64_t Opset(const Plan& plan) {
  const bool newer = plan.Get("attention").find("op") == 0 || plan.Is("norm", "rms_op") ||
                     plan.Get("position_use").find("rotary_op") == 0;
  return std::max<int64_t>(plan.Number("opset"), newer ? 23 : 0);
}

std::string Comments(const Plan& plan, const TextGraph& graph,
                     const std::vector<std::string>& roles,
                     const std::vector<std::string>& presents) {
  std::string comments = StrCat("# plan ", plan.ToString(), "\n");
  const std::vector<std::string> names = graph.input_names();
  for (size_t i = 0; i < names.size(); ++i) {
    StrAppend(&comments, "# feed ", names[i], " ", roles[i], "\n");
    if (presents[i].empty()) continue;
    StrAppend(&comments, "# present ", names[i], " ", presents[i], "\n");
  }
  StrAppend(&comments, "# logits ", plan.Is("output_name", "logits") ? "logits" : "scores", "\n");
  const bool mixes = plan.Has(Meaning::kMixes);
  if (!mixes) comments += "# padding\n";
  if (plan.Is("positions", "input")) comments += "# any positions\n";
  if (!mixes && !plan.Has(Meaning::kSizes)) comments += "# pageable\n";
  return comments;
}

}  // namespace

std::string WriteDecoder(const Plan& plan) {
  DecoderText text(plan);
  const std::string table = text.graph.Weights({DecoderText::kVocabulary, text.hidden}, 1);
  std::string x = AddPositions(text, Embed(text, table));
  x = Mixed(text, ReadExtraInput(text, x), "mix_first");
  for (int64_t layer = 0; layer < text.layers; ++layer) x = Layer(text, x, layer);
  WriteLogits(text, Mixed(text, x, "mix_last"), table);
  Random random(plan.seed());
  if (plan.Is("order", "shuffled")) text.graph.ShuffleInputs(random);
  std::vector<std::string> roles, presents;
  for (const std::string& name : text.graph.input_names()) {
    roles.push_back(RoleOf(name));
    presents.push_back(PresentOf(name));
  }
  NameInputs(text);
  return Comments(plan, text.graph, roles, presents) + text.graph.Text(Opset(plan));
}

}  // namespace pagefuse::fuzz
