// SPDX-License-Identifier: Apache-2.0
// Attention of random decoders, written out in several ways or as the op.
#include <cmath>
#include <utility>

#include "decoder_text.h"
#include "mixing.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

std::string Scale(const DecoderText& text) {
  return StrCat("scale = ", 1 / std::sqrt(static_cast<double>(text.head_size)));
}

// [B, S, H * D] as [B, H, S, D]
std::string SplitHeads(DecoderText& text, const std::string& rows, int64_t heads, int64_t size) {
  std::string view;
  if (text.Is("heads_view", "zeros")) {
    view = text.Ints({0, 0, heads, size});
  } else if (text.Is("heads_view", "infer")) {
    view = text.Add("Concat", {text.Batch(), text.Ints({-1, heads, size})}, "axis = 0");
  } else {
    view = text.Add("Concat", {text.Batch(), text.Length(), text.Ints({heads, size})}, "axis = 0");
  }
  return text.Add("Transpose", {text.Add("Reshape", {rows, view})}, "perm = [0, 2, 1, 3]");
}

std::string JoinHeads(DecoderText& text, const std::string& heads, int64_t count, int64_t size) {
  const std::string rows = text.Add("Transpose", {heads}, "perm = [0, 2, 1, 3]");
  const int64_t width = count * size;
  if (text.Is("heads_view", "sizes")) {
    const std::string view =
        text.Add("Concat", {text.Batch(), text.Length(), text.Ints({-1})}, "axis = 0");
    return text.Add("Reshape", {rows, view});
  }
  return text.Add("Reshape", {rows, text.Ints({0, 0, width})});
}

std::string MixHeads(DecoderText& text, const std::string& heads, const std::string& place) {
  if (!text.Is("mix_heads_at", place)) return heads;
  return WriteMix(HeadMixOps(), text.plan.Get("mix_heads"), text, heads);
}

// [B, K, T, D] as [B, H, T, D]
std::string Repeat(DecoderText& text, const std::string& heads, int64_t size) {
  const int64_t times = text.heads / text.kv_heads;
  if (times == 1) return heads;
  // In another order: heads 0, 1, 0, 1 of the keys for heads 0 to 3.
  if (text.Is("repeat", "tile_heads")) {
    return text.Add("Tile", {heads, text.Ints({1, times, 1, 1})});
  }
  if (text.Is("repeat", "gather")) {
    std::vector<int64_t> sources;
    for (int64_t h = 0; h < text.heads; ++h) sources.push_back(h / times);
    return text.Add("Gather", {heads, text.Ints(sources)}, "axis = 1");
  }
  const std::string apart = text.Add("Unsqueeze", {heads, text.Ints({2})});
  const std::string repeated =
      text.Is("repeat", "tile")
          ? text.Add("Tile", {apart, text.Ints({1, 1, times, 1, 1})})
          : text.Add("Expand", {apart, text.Add("Concat",
                                                {text.Batch(), text.Ints({text.kv_heads, times}),
                                                 text.Total(), text.Ints({size})},
                                                "axis = 0")});
  const std::string view =
      text.Add("Concat", {text.Batch(), text.Ints({text.heads}), text.Total(), text.Ints({size})},
               "axis = 0");
  return text.Add("Reshape", {repeated, view});
}

struct Heads {
  std::string query, key, value;
};

// The first columns of the last axis, and the others.
std::pair<std::string, std::string> Cut(DecoderText& text, const std::string& x, int64_t first,
                                        int64_t rest) {
  const auto parts = text.graph.AddMany("Split", 2, {x, text.Ints({first, rest})}, "axis = -1");
  return {parts[0], parts[1]};
}

// Keys and values that are expanded from one latent row a token, beside a rotated part of the keys
// that all heads share.
Heads ProjectLatent(DecoderText& text, const std::string& x) {
  const int64_t size = text.head_size, part = size / 2, rank = text.hidden / 2;
  const auto project = [&](const std::string& rows, int64_t from, int64_t heads, int64_t width) {
    return SplitHeads(text, text.Add("MatMul", {rows, text.Matrix(from, heads * width)}), heads,
                      width);
  };
  const auto [plain, turning] =
      Cut(text, project(x, text.hidden, text.heads, size), part, size - part);
  std::string latent = text.Add("MatMul", {x, text.Matrix(text.hidden, rank)});
  if (text.Is("qk_norm", "yes")) latent = WriteNorm(text, latent, rank);
  const int64_t value = text.value_size;
  const auto [keys, values] =
      Cut(text, project(latent, rank, text.heads, part + value), part, value);
  const std::string shared = Rotate(text, project(x, text.hidden, 1, size - part), size - part);
  const std::string to_heads = text.Add(
      "Concat", {text.Batch(), text.Ints({text.heads}), text.Length(), text.Ints({size - part})},
      "axis = 0");
  const std::string repeated = text.Add("Expand", {shared, to_heads});
  return {text.Add("Concat", {plain, Rotate(text, turning, size - part)}, "axis = -1"),
          text.Add("Concat", {keys, repeated}, "axis = -1"), values};
}

Heads Project(DecoderText& text, const std::string& x) {
  if (text.Is("kv", "latent")) return ProjectLatent(text, x);
  std::vector<std::string> rows;
  const int64_t widths[] = {text.heads * text.head_size, text.kv_heads * text.head_size,
                            text.kv_heads * text.value_size};
  if (text.Is("qkv", "fused")) {
    const std::string all =
        text.Add("MatMul", {x, text.Matrix(text.hidden, widths[0] + widths[1] + widths[2])});
    rows = text.graph.AddMany("Split", 3, {all, text.Ints({widths[0], widths[1], widths[2]})},
                              "axis = -1");
  } else {
    for (const int64_t width : widths) {
      rows.push_back(text.Add("MatMul", {x, text.Matrix(text.hidden, width)}));
    }
  }
  Heads heads{SplitHeads(text, rows[0], text.heads, text.head_size),
              SplitHeads(text, rows[1], text.kv_heads, text.head_size),
              SplitHeads(text, rows[2], text.kv_heads, text.value_size)};
  if (text.Is("qk_norm", "yes")) {
    heads.query = WriteNorm(text, heads.query, text.head_size);
    heads.key = WriteNorm(text, heads.key, text.head_size);
  }
  heads.query = MixHeads(text, Rotate(text, heads.query, text.head_size), "query");
  heads.key = MixHeads(text, Rotate(text, heads.key, text.head_size), "key");
  heads.value = MixHeads(text, heads.value, "value");
  return heads;
}

std::string PresentType(const DecoderText& text, int64_t layer, int64_t size) {
  if (text.Is("output_dims", "unknown")) return "float[]";
  return StrCat("float[", text.BatchDim(), ", ", text.kv_heads, ", \"", text.PastDim(layer), " + ",
                text.LengthDim(), "\", ", size, "]");
}

void OutputPresents(DecoderText& text, const std::string& key, const std::string& value,
                    int64_t layer) {
  text.graph.Output(PresentType(text, layer, text.head_size), key,
                    StrCat("present_", layer, "_key"));
  text.graph.Output(PresentType(text, layer, text.value_size), value,
                    StrCat("present_", layer, "_value"));
}

std::string Scores(DecoderText& text, const std::string& query, const std::string& key) {
  const double scale = 1 / std::sqrt(static_cast<double>(text.head_size));
  if (text.Is("attention", "einsum")) {
    const std::string raw = text.Add("Einsum", {query, key}, "equation = \"bhsd,bhtd->bhst\"");
    return text.Add("Mul", {raw, text.graph.Float(scale)});
  }
  const auto scaled = [&](const std::string& value, double by) {
    return text.Add("Mul", {value, text.graph.Float(by)});
  };
  const std::string turned = text.Add("Transpose", {key}, "perm = [0, 1, 3, 2]");
  if (text.Is("attention", "root_on_both")) {
    return text.Add("MatMul", {scaled(query, std::sqrt(scale)), scaled(turned, std::sqrt(scale))});
  }
  if (text.Is("attention", "on_query")) return text.Add("MatMul", {scaled(query, scale), turned});
  if (text.Is("attention", "on_key")) return text.Add("MatMul", {query, scaled(turned, scale)});
  const std::string raw = text.Add("MatMul", {query, turned});
  if (text.Is("attention", "divided")) {
    return text.Add("Div", {raw, text.graph.Float(1 / scale)});
  }
  return scaled(raw, scale);
}

std::string Softmax(DecoderText& text, const std::string& scores, int64_t layer) {
  const bool last = layer + 1 == text.layers;
  if (text.Is("attention", "exp_log") || (last && text.Is("last_attention", "exp_log"))) {
    return text.Add("Exp", {text.Add("LogSoftmax", {scores}, "axis = -1")});
  }
  const std::string p = text.Add("Softmax", {scores}, "axis = -1");
  if (!text.Is("guard", "yes")) return p;
  return text.Add("Where", {text.Add("IsNaN", {p}), text.graph.Float(0), p});
}

// A column of scores of their own, which takes its share and has no value.
std::string WithSinks(DecoderText& text, const std::string& scores, int64_t layer) {
  if (!text.Is("sinks", "column")) return Softmax(text, scores, layer);
  const std::string rows = text.Add(
      "Concat", {text.Batch(), text.Ints({text.heads}), text.Length(), text.Ints({1})}, "axis = 0");
  const std::string sinks =
      text.Add("Expand", {text.graph.Weights({1, text.heads, 1, 1}, 1), rows});
  const std::string all = text.Add("Concat", {scores, sinks}, "axis = -1");
  return text.Add("Slice",
                  {Softmax(text, all, layer), text.Ints({0}), text.Ints({-1}), text.Ints({3})});
}

// A number of each key and head, computed of its values [B, K, T, D], as [B, H, 1, T]: added to scores,
// or chosen where keys are seen.
void AddKeyBias(DecoderText& text, const std::string& values, ScoreMask& mask) {
  if (text.Is("key_bias", "none")) return;
  const std::string steps =
      text.Add("MatMul", {values, text.graph.Weights({text.value_size, 1}, 0.5)});
  const std::string bias = text.Add(text.Is("key_bias", "exp") ? "Exp" : "Softplus", {steps});
  const std::string by_key = text.Add("Transpose", {Repeat(text, bias, 1)}, "perm = [0, 1, 3, 2]");
  const bool chosen = text.Is("key_bias", "chosen") && !mask.visible.empty();
  mask.additive.push_back(chosen ? text.Add("Where", {mask.visible, by_key, LowNumber(text)})
                                 : by_key);
  if (chosen) mask.visible.clear();
}

std::string WrittenOut(DecoderText& text, Heads heads, int64_t layer) {
  if (text.has_past) {
    heads.key = text.Add("Concat", {text.PastKey(layer), heads.key}, "axis = 2");
    heads.value = text.Add("Concat", {text.PastValue(layer), heads.value}, "axis = 2");
    OutputPresents(text, heads.key, heads.value, layer);
  }
  std::string scores = Scores(text, heads.query, Repeat(text, heads.key, text.head_size));
  if (text.Is("softcap", "yes")) {
    const std::string cap = text.graph.Float(4);
    scores = text.Add("Mul", {text.Add("Tanh", {text.Add("Div", {scores, cap})}), cap});
  }
  ScoreMask mask = WriteMask(text, layer);
  AddKeyBias(text, heads.value, mask);
  for (const std::string& additive : mask.additive) scores = text.Add("Add", {scores, additive});
  if (!mask.visible.empty()) scores = text.Add("Where", {mask.visible, scores, LowNumber(text)});
  const std::string values = Repeat(text, heads.value, text.value_size);
  const std::string attended = text.Add("MatMul", {WithSinks(text, scores, layer), values});
  if (!text.Is("value_mean", "yes")) return attended;
  const std::string mean = text.Add("ReduceMean", {values, text.Ints({2})}, "keepdims = 1");
  return text.Add("Add", {attended, mean});
}

// The mask input of the op: bool, or the sum of what is added to scores.
std::string OpMask(DecoderText& text, const ScoreMask& mask) {
  std::vector<std::string> added = mask.additive;
  if (!mask.visible.empty()) {
    if (added.empty()) return mask.visible;
    added.push_back(text.Add("Where", {mask.visible, text.graph.Float(0), LowNumber(text)}));
  }
  if (added.empty()) return "";
  std::string sum = added[0];
  for (size_t i = 1; i < added.size(); ++i) sum = text.Add("Add", {sum, added[i]});
  return sum;
}

std::string ByOp(DecoderText& text, Heads heads, int64_t layer) {
  ScoreMask mask = WriteMask(text, layer);
  // Where there is a past, the op alone has the values of all keys.
  if (!text.has_past) AddKeyBias(text, heads.value, mask);
  const bool rows = text.Is("attention", "op3");
  std::string attributes = Scale(text);
  if (mask.causal_attribute) attributes += ", is_causal = 1";
  if (text.Is("softcap", "yes")) attributes += ", softcap = 4.0";
  if (rows) {
    attributes += StrCat(", q_num_heads = ", text.heads, ", kv_num_heads = ", text.kv_heads);
    heads = {JoinHeads(text, heads.query, text.heads, text.head_size),
             JoinHeads(text, heads.key, text.kv_heads, text.head_size),
             JoinHeads(text, heads.value, text.kv_heads, text.value_size)};
  }
  std::vector<std::string> inputs = {heads.query, heads.key, heads.value};
  const std::string all = OpMask(text, mask);
  if (!all.empty() || text.has_past) inputs.push_back(all);
  if (text.has_past) {
    inputs.push_back(text.PastKey(layer));
    inputs.push_back(text.PastValue(layer));
  }
  const auto outputs = text.graph.AddMany("Attention", text.has_past ? 3 : 1, inputs, attributes);
  if (text.has_past) OutputPresents(text, outputs[1], outputs[2], layer);
  return rows ? SplitHeads(text, outputs[0], text.heads, text.value_size) : outputs[0];
}

// The op of ONNX Runtime's model builder. It is causal.
std::string ByGroupedOp(DecoderText& text, const Heads& heads, int64_t layer) {
  std::string attributes =
      StrCat(Scale(text), ", num_heads = ", text.heads, ", kv_num_heads = ", text.kv_heads);
  if (text.Is("softcap", "yes")) attributes += ", softcap = 4.0";
  if (!text.Is("window", "none")) attributes += ", local_window_size = 3";
  const std::string count =
      text.Add("ReduceSum", {text.MaskNumbers(), text.Ints({1})}, "keepdims = 0");
  const std::string last = text.Add("Sub", {count, text.graph.Int(1)});
  const std::string total = text.SizeScalar(text.Mask(), 1);
  std::vector<std::string> inputs = {JoinHeads(text, heads.query, text.heads, text.head_size),
                                     JoinHeads(text, heads.key, text.kv_heads, text.head_size),
                                     JoinHeads(text, heads.value, text.kv_heads, text.head_size),
                                     text.has_past ? text.PastKey(layer) : "",
                                     text.has_past ? text.PastValue(layer) : "",
                                     text.Add("Cast", {last}, "to = 6"),
                                     text.Add("Cast", {total}, "to = 6")};
  if (text.Is("attention", "gqa_rotary")) {
    attributes += ", do_rotary = 1";
    for (const bool cosine : {true, false}) {
      inputs.push_back(AngleTable(text, cosine, text.head_size / 2, false));
    }
  }
  const auto outputs =
      text.graph.AddMany("com.microsoft.GroupQueryAttention", 3, inputs, attributes);
  if (text.has_past) OutputPresents(text, outputs[1], outputs[2], layer);
  return SplitHeads(text, outputs[0], text.heads, text.head_size);
}

std::string Attend(DecoderText& text, const Heads& heads, int64_t layer) {
  if (text.plan.Get("attention").find("gqa") == 0) return ByGroupedOp(text, heads, layer);
  if (text.plan.Get("attention").find("op") == 0) return ByOp(text, heads, layer);
  return WrittenOut(text, heads, layer);
}

}  // namespace

std::string WriteNorm(DecoderText& text, const std::string& x, int64_t width) {
  const std::string weights =
      text.graph.Floats({width}, std::vector<double>(static_cast<size_t>(width), 1.25));
  if (text.Is("norm", "rms_op")) {
    return text.Add("RMSNormalization", {x, weights}, "axis = -1, epsilon = 1e-5");
  }
  if (text.Is("norm", "layer_norm")) {
    const std::string bias = text.graph.Weights({width}, 0.2);
    return text.Add("LayerNormalization", {x, weights, bias}, "axis = -1, epsilon = 1e-5");
  }
  const std::string squares = text.Add("Pow", {x, text.graph.Float(2)});
  const std::string mean = text.Add("ReduceMean", {squares, text.Ints({-1})}, "keepdims = 1");
  const std::string root = text.Add("Sqrt", {text.Add("Add", {mean, text.graph.Float(1e-5)})});
  const std::string inverse = text.Add("Reciprocal", {root});
  return text.Add("Mul", {text.Add("Mul", {x, inverse}), weights});
}

std::string WriteAttention(DecoderText& text, const std::string& x, int64_t layer) {
  const Heads heads = Project(text, x);
  const std::string attended = MixHeads(text, Attend(text, heads, layer), "attended");
  const std::string rows = JoinHeads(text, attended, text.heads, text.value_size);
  return text.Add("MatMul", {rows, text.Matrix(text.heads * text.value_size, text.hidden)});
}

}  // namespace pagefuse::fuzz
