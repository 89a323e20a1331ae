// SPDX-License-Identifier: Apache-2.0
// Masks of attention in random decoders: causal, windows, padding, in every form that broadcasts.
#include <limits>

#include "decoder_text.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

constexpr int64_t kWindow = 3;

// A condition on query and key, true where the key is visible.
struct Condition {
  std::string value;
  int rank = 2;  // [S, T], or [B, 1, S, T] with sizes 1 where nothing depends on the axis
};

bool IsOp(const DecoderText& text) { return text.plan.Get("attention").find("op") == 0; }
bool IsGiven(const DecoderText& text) { return text.Is("causal", "input4"); }

// [S, 1]
std::string QueryColumn(DecoderText& text) {
  return text.Add("Unsqueeze", {text.RowIndices(), text.Ints({1})});
}

std::string Ones(DecoderText& text) {
  const std::string shape = text.Add("Concat", {text.Length(), text.Total()}, "axis = 0");
  return text.Add("ConstantOfShape", {shape}, "value = float[1] {1}");
}

Condition FromTable(DecoderText& text) {
  std::vector<int64_t> lower;
  for (int64_t i = 0; i < DecoderText::kLongest; ++i) {
    for (int64_t j = 0; j < DecoderText::kLongest; ++j) lower.push_back(j <= i ? 1 : 0);
  }
  const std::string table =
      text.graph.Integers("bool", {DecoderText::kLongest, DecoderText::kLongest}, lower);
  const std::string starts = text.Add("Concat", {text.PastLength(), text.Ints({0})}, "axis = 0");
  const std::string ends = text.Add("Concat", {text.Total(), text.Total()}, "axis = 0");
  return {text.Add("Slice", {table, starts, ends, text.Ints({0, 1})})};
}

Condition Causal(DecoderText& text) {
  if (text.Is("causal", "trilu")) {
    const std::string lower =
        text.Add("Trilu", {Ones(text), text.Scalar(text.PastLength())}, "upper = 0");
    return {text.Add("Cast", {lower}, "to = 9")};
  }
  if (text.Is("causal", "table")) return FromTable(text);
  if (text.Is("causal", "not_greater")) {
    return {text.Add("Not", {text.Add("Greater", {text.KeyIndices(), QueryColumn(text)})})};
  }
  if (text.Is("causal", "positions") && !text.Is("positions", "input")) {
    // [S, 1], or [B, S, 1] with an axis of heads before the last two.
    const std::string column = text.Add("Unsqueeze", {text.Places(), text.Ints({-1})});
    const std::string flat = text.Add("Reshape", {column, text.Ints({-1, 1})});
    const bool rows =
        text.plan.Get("positions").find("cumsum") == 0 || text.Is("position_shape", "batch");
    if (!rows) return {text.Add("LessOrEqual", {text.KeyIndices(), flat})};
    const std::string places = text.Add("Unsqueeze", {column, text.Ints({1})});
    return {text.Add("LessOrEqual", {text.KeyIndices(), places}), 4};
  }
  if (text.Is("causal", "strict")) {
    return {text.Add("Less", {text.KeyIndices(), QueryColumn(text)})};
  }
  if (text.Is("causal", "ahead")) {
    const std::string next = text.Add("Add", {QueryColumn(text), text.graph.Int(1)});
    return {text.Add("LessOrEqual", {text.KeyIndices(), next})};
  }
  return {text.Add("LessOrEqual", {text.KeyIndices(), QueryColumn(text)})};
}

// More that is visible beside what is causal.
Condition WithMoreVisible(DecoderText& text, const Condition& causal) {
  if (text.Is("causal", "prefix")) {
    const std::string prefix = text.Add("Less", {text.KeyIndices(), text.graph.Int(2)});
    return {text.Add("Or", {causal.value, prefix}), causal.rank};
  }
  if (!text.Is("padding", "types") || text.has_past) return causal;
  // Tokens of type 1 see each other, as the parts of an image do.
  const std::string first = text.Add("Equal", {text.Types(), text.graph.Int(1)});
  const std::string both = text.Add("And", {text.Add("Unsqueeze", {first, text.Ints({1, 3})}),
                                            text.Add("Unsqueeze", {first, text.Ints({1, 2})})});
  return {text.Add("Or", {causal.value, both}), 4};
}

Condition Window(DecoderText& text) {
  if (text.Is("window", "greater_or_equal")) {
    const std::string from = text.Add("Sub", {QueryColumn(text), text.graph.Int(kWindow - 1)});
    return {text.Add("GreaterOrEqual", {text.KeyIndices(), from})};
  }
  if (text.Is("window", "distance")) {
    const std::string distance = text.Add("Sub", {QueryColumn(text), text.KeyIndices()});
    return {text.Add("Less", {distance, text.graph.Int(kWindow)})};
  }
  if (text.Is("window", "chunks")) {
    const auto chunk = [&](const std::string& index) {
      return text.Add("Div", {index, text.graph.Int(kWindow)});
    };
    return {text.Add("Equal", {chunk(text.KeyIndices()), chunk(QueryColumn(text))})};
  }
  const std::string first = text.Add("Sub", {QueryColumn(text), text.graph.Int(kWindow)});
  return {text.Add("Greater", {text.KeyIndices(), first})};
}

std::string MaskBool(DecoderText& text) {
  if (text.Is("mask_type", "bool")) return text.Mask();
  return text.Add("Cast", {text.Mask()}, "to = 9");
}

// mask[b, j] by indices of both, as exporters write out a read by tensors.
Condition GatheredPadding(DecoderText& text) {
  const std::string shape =
      text.Add("Concat", {text.Batch(), text.Ints({1}), text.Length(), text.Total()}, "axis = 0");
  const std::string batch = text.CountRange(text.Ints({0}), text.Batch());
  const auto spread = [&](const std::string& index, const std::vector<int64_t>& view) {
    const std::string expanded =
        text.Add("Expand", {text.Add("Reshape", {index, text.Ints(view)}), shape});
    return text.Add("Unsqueeze", {expanded, text.Ints({-1})});
  };
  const std::string places =
      text.Add("Concat", {spread(batch, {-1, 1, 1, 1}), spread(text.KeyIndices(), {1, 1, 1, -1})},
               "axis = -1");
  return {text.Add("GatherND", {MaskBool(text), places}), 4};
}

// Tokens 0 are no keys.
Condition PaddingOfIds(DecoderText& text) {
  std::string ids = text.Add("Cast", {kIds}, "to = 7");
  if (text.has_past) {
    const std::string shape = text.Add("Concat", {text.Batch(), text.PastLength()}, "axis = 0");
    const std::string ones = text.Add("ConstantOfShape", {shape}, "value = int64[1] {1}");
    ids = text.Add("Concat", {ones, ids}, "axis = 1");
  }
  const std::string kept = text.Add("Greater", {ids, text.graph.Int(0)});
  return {text.Add("Unsqueeze", {kept, text.Ints({1, 2})}), 4};
}

std::vector<Condition> Padding(DecoderText& text) {
  std::vector<Condition> padding;
  if (text.Is("padding", "ids")) padding.push_back(PaddingOfIds(text));
  if (text.Is("padding", "keys") || text.Is("padding", "both")) {
    padding.push_back({text.Add("Unsqueeze", {MaskBool(text), text.Ints({1, 2})}), 4});
  }
  if (text.Is("padding", "keys_gather")) padding.push_back(GatheredPadding(text));
  if (text.Is("padding", "rows") || text.Is("padding", "both")) {
    const std::string rows = text.Add("Cast", {text.MaskOfNew()}, "to = 9");
    padding.push_back({text.Add("Unsqueeze", {rows, text.Ints({1, 3})}), 4});
  }
  return padding;
}

std::string InForm(DecoderText& text, const Condition& condition) {
  const auto expanded = [&](int64_t heads) {
    const std::string shape = text.Add(
        "Concat", {text.Batch(), text.Ints({heads}), text.Length(), text.Total()}, "axis = 0");
    return text.Add("Expand", {condition.value, shape});
  };
  if (text.Is("mask_shape", "batch")) return expanded(1);
  if (text.Is("mask_shape", "heads")) return expanded(text.heads);
  if (condition.rank == 2 && text.Is("mask_shape", "rank3")) {
    return text.Add("Unsqueeze", {condition.value, text.Ints({0})});
  }
  if (condition.rank == 2 && text.Is("mask_shape", "rank4")) {
    return text.Add("Unsqueeze", {condition.value, text.Ints({0, 1})});
  }
  return condition.value;
}

std::string Additive(DecoderText& text, const std::string& visible) {
  if (!text.Is("mask_form", "arithmetic")) {
    return text.Add("Where", {visible, text.graph.Float(0), LowNumber(text)});
  }
  const std::string hidden =
      text.Add("Sub", {text.graph.Float(1), text.Add("Cast", {visible}, "to = 1")});
  return text.Add("Mul", {hidden, LowNumber(text)});
}

// Numbers with one column for all keys: softmax does not see them.
std::string RowBias(DecoderText& text) {
  const std::string column = text.Add("Cast", {QueryColumn(text)}, "to = 1");
  const std::string bias = text.Add("Mul", {column, text.graph.Float(0.25)});
  return text.Is("row_bias", "rank2") ? bias : text.Add("Unsqueeze", {bias, text.Ints({0, 1})});
}

// slope[h] * (j - i), [H, S, T]
std::string Alibi(DecoderText& text) {
  std::vector<double> slopes;
  for (int64_t h = 0; h < text.heads; ++h) slopes.push_back(0.5 / static_cast<double>(1 + h));
  const std::string distance = text.Add("Sub", {text.KeyIndices(), QueryColumn(text)});
  return text.Add("Mul", {text.Add("Cast", {distance}, "to = 1"),
                          text.graph.Floats({text.heads, 1, 1}, slopes)});
}

std::vector<Condition> Conditions(DecoderText& text, int64_t layer, bool* causal_attribute) {
  std::vector<Condition> conditions;
  *causal_attribute = IsOp(text) && text.Is("causal", "attribute");
  if (!*causal_attribute && !text.Is("causal", "none") && !IsGiven(text)) {
    conditions.push_back(WithMoreVisible(text, Causal(text)));
  }
  if (!text.Is("window", "none") && !(text.Is("window", "alternate") && layer % 2 == 1)) {
    conditions.push_back(Window(text));
  }
  for (Condition& condition : Padding(text)) conditions.push_back(condition);
  return conditions;
}

}  // namespace

std::string LowNumber(DecoderText& text) {
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  if (text.Is("mask_low", "inf")) {
    // Nothing times infinity is no number.
    const bool multiplied = text.Is("mask_form", "arithmetic");
    return text.graph.Float(multiplied ? kLowest : -std::numeric_limits<double>::infinity());
  }
  if (text.Is("mask_low", "lowest")) return text.graph.Float(kLowest);
  return text.graph.Float(text.Is("mask_low", "1e9") ? -1e9 : -1e4);
}

ScoreMask WriteMask(DecoderText& text, int64_t layer) {
  ScoreMask mask;
  std::vector<Condition> conditions = Conditions(text, layer, &mask.causal_attribute);
  if (text.Is("row_bias", "rank2") || text.Is("row_bias", "rank4")) {
    mask.additive.push_back(RowBias(text));
  }
  if (IsGiven(text)) mask.additive.push_back(text.Mask4());
  if (text.Is("position_use", "alibi")) mask.additive.push_back(Alibi(text));
  if (conditions.empty()) return mask;
  if (text.Is("mask_form", "two_adds")) {
    for (const Condition& condition : conditions) {
      mask.additive.push_back(Additive(text, InForm(text, condition)));
    }
    return mask;
  }
  Condition all = conditions[0];
  for (size_t i = 1; i < conditions.size(); ++i) {
    all.value = text.Add("And", {all.value, conditions[i].value});
    all.rank = std::max(all.rank, conditions[i].rank);
  }
  const std::string visible = InForm(text, all);
  const bool as_bool = text.Is("mask_form", "where_scores") ||
                       (IsOp(text) && !text.Is("attention", "op4_float") && mask.additive.empty());
  if (as_bool) {
    mask.visible = visible;
  } else {
    mask.additive.push_back(Additive(text, visible));
  }
  return mask;
}

}  // namespace pagefuse::fuzz
