// SPDX-License-Identifier: Apache-2.0
// com.microsoft.MultiHeadAttention written out.
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_lines.h"
#include "pagefuse/ops/microsoft/multi_head_attention.h"

namespace pagefuse::microsoft_ops {
namespace {

const Shape* ShapeAt(const Node& node, int i) {
  const Value* value = node.input(i);
  return value && value->shape() ? &*value->shape() : nullptr;
}

int RankAt(const Node& node, int i) {
  const Shape* shape = ShapeAt(node, i);
  return shape ? shape->rank() : 0;
}

// A call, as its shapes tell it.
struct Call {
  MhaForm form;
  int64_t heads = 0;
  Dim queries = {}, fresh = {};       // lengths
  int64_t qk_size = -1, v_size = -1;  // of a head; -1: not known
};

int64_t Known(const Dim& dim, int64_t parts = 1) {
  const auto number = dim.constant();
  return number ? *number / parts : -1;
}

void ReadKeySizes(const Node& node, Call& call) {
  const Shape* key = ShapeAt(node, kMhaKey);
  const Shape* value = ShapeAt(node, kMhaValue);
  switch (call.form) {
    case MhaForm::kSeparate:
      call.fresh = (*key)[1];
      call.v_size = Known((*value)[2], static_cast<int>(call.heads));
      return;
    case MhaForm::kHeads:
      call.fresh = (*key)[2];
      call.v_size = Known((*value)[3]);
      return;
    case MhaForm::kPackedKv:
      call.fresh = (*key)[1];
      break;
    case MhaForm::kPackedQkv:
      call.fresh = call.queries;
      break;
  }
  call.v_size = call.qk_size;
}

absl::StatusOr<Call> CallOf(const Node& node) {
  const auto form =
      MhaFormOf(RankAt(node, kMhaQuery), RankAt(node, kMhaKey), RankAt(node, kMhaValue));
  if (!form) return absl::FailedPreconditionError("the ranks of its inputs are not known");
  Call call{.form = *form};
  PF_ASSIGN_OR_RETURN(call.heads, node.IntAttribute("num_heads", 0));
  const Shape& query = *ShapeAt(node, kMhaQuery);
  call.queries = query[1];
  call.qk_size = query.rank() == 5 ? Known(query[4]) : Known(query[2], call.heads);
  ReadKeySizes(node, call);
  if (node.input(kMhaBias) && (call.qk_size < 0 || call.v_size < 0)) {
    return absl::FailedPreconditionError("its head sizes are not known, which part the bias");
  }
  return call;
}

// Defines the names [B, H, L, size] from parts of `from` [B, L, H, parts, size].
std::string UnpackLines(std::string_view from, const std::vector<std::string>& names) {
  const auto parts = absl::StrJoin(
      names, ", ", [](std::string* out, const std::string& name) { out->append(name + "_part"); });
  std::string text = StrCat("  ", parts, " = Split <axis = 3, num_outputs = ", names.size(), "> (",
                            from, ")\n  part_axis = Constant <value_ints: ints = [3]> ()\n");
  for (const std::string& name : names) {
    StrAppend(&text, "  ", name, "_tokens = Squeeze (", name, "_part, part_axis)\n", "  ", name,
              " = Transpose <perm = [0, 2, 1, 3]> (", name, "_tokens)\n");
  }
  return text;
}

std::string RowLines(std::string_view name, std::string_view port, int64_t heads, int64_t size) {
  return StrCat("  ", name, "_rows = Identity (", port, ")\n", HeadLines(name, heads, size));
}

// Defines q, k and v [B, H, L, size], without the bias.
std::string PartLines(const Call& call) {
  if (call.form == MhaForm::kPackedQkv) return UnpackLines("query", {"q", "k", "v"});
  const std::string q = RowLines("q", "query", call.heads, call.qk_size);
  switch (call.form) {
    case MhaForm::kHeads:
      return q + "  k = Identity (key)\n  v = Identity (value)\n";
    case MhaForm::kPackedKv:
      return q + UnpackLines("key", {"k", "v"});
    default:
      return StrCat(q, RowLines("k", "key", call.heads, call.qk_size),
                    RowLines("v", "value", call.heads, call.v_size));
  }
}

// Defines the names with their part of the bias added, `name`_all.
std::string BiasLines(const Call& call) {
  const int64_t qk = call.heads * call.qk_size, v = call.heads * call.v_size;
  std::string text =
      StrCat("  bias_sizes = Constant <value_ints: ints = [", qk, ", ", qk, ", ", v, "]> ()\n",
             "  q_bias, k_bias, v_bias = Split <axis = 0> (bias, bias_sizes)\n",
             "  by_head = Constant <value_ints: ints = [", call.heads, ", 1, -1]> ()\n");
  for (const char* name : {"q", "k", "v"}) {
    StrAppend(&text, "  ", name, "_heads = Reshape (", name, "_bias, by_head)\n", "  ", name,
              "_all = Add (", name, ", ", name, "_heads)\n");
  }
  return text;
}

// Defines `keys` [1].
std::string KeyLines(const Node& node, const Call& call) {
  const bool by_head = call.form == MhaForm::kHeads;
  const std::string fresh =
      StrCat("  fresh = Shape <start = ", by_head ? 2 : 1, ", end = ", by_head ? 3 : 2, "> (",
             call.form == MhaForm::kPackedQkv ? "query" : "key", ")\n");
  if (!node.input(kMhaPastKey)) return fresh + "  keys = Identity (fresh)\n";
  return fresh + "  old = Shape <start = 2, end = 3> (past_key)\n  keys = Add (old, fresh)\n";
}

// Defines `band`, added to the scores: queries are the last of all keys, and see none behind them.
std::string BandLines(const Node& node, const Call& call) {
  return StrCat(KeyLines(node, call),
                "  own = Shape <start = 1, end = 2> (query)\n  first = Sub (keys, own)\n"
                "  zero = Constant <value_int = 0> ()\n  step = Constant <value_int = 1> ()\n"
                "  front_axis = Constant <value_ints: ints = [0]> ()\n"
                "  all_keys = Squeeze (keys, front_axis)\n  all_own = Squeeze (own, front_axis)\n"
                "  key_place = Range (zero, all_keys, step)\n"
                "  row = Range (zero, all_own, step)\n  query_place = Add (row, first)\n"
                "  line_axis = Constant <value_ints: ints = [1]> ()\n"
                "  query_column = Unsqueeze (query_place, line_axis)\n"
                "  ahead = Greater (key_place, query_column)\n",
                TypedFloat(*node.input(kMhaQuery), "query", "nothing", "0.0"),
                "  never = Log (nothing)\n  band = Where (ahead, never, nothing)\n");
}

// Names of the ports that a call has, with commas.
std::string NamesOf(const std::vector<Value*>& values, const std::vector<std::string>& names) {
  std::vector<std::string> there;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]) there.push_back(names[i]);
  }
  return absl::StrJoin(there, ", ");
}

}  // namespace

absl::StatusOr<std::string> DecomposeMha(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(node));
  PF_ASSIGN_OR_RETURN(const int64_t causal, node.IntAttribute("unidirectional", 0));
  PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", 0.0f));
  PF_ASSIGN_OR_RETURN(std::string mask,
                      MaskLines({.seen = node.input(kMhaKeyPadding),
                                 .seen_name = "key_padding_mask",
                                 .batched = node.input(kMhaQuery),
                                 .batched_name = "query",
                                 .keys = KeyLines(node, call),
                                 .has_bias = node.input(kMhaAttentionBias) != nullptr}));
  // Attention's is_causal puts the first query behind the past, wherever the new keys end.
  const bool band = causal != 0 && !ProvablyEqual(call.queries, call.fresh);
  const bool has_mask = !mask.empty(), has_past = node.input(kMhaPastKey) != nullptr;
  const bool has_bias = node.input(kMhaBias) != nullptr;
  std::string text = StrCat(
      "MultiHeadAttention (",
      NamesOf(node.inputs(), {"query", "key", "value", "bias", "key_padding_mask", "attention_bias",
                              "past_key", "past_value"}),
      ") => (", NamesOf(node.outputs(), {"output", "present_key", "present_value"}), ") {\n",
      PartLines(call), has_bias ? BiasLines(call) : "", mask, band ? BandLines(node, call) : "");
  if (band && has_mask) StrAppend(&text, "  score_mask = Add (mask, band)\n");
  const std::string added = band && has_mask ? "score_mask" : band ? "band" : "mask";
  StrAppend(&text, "  attended, present_key, present_value = Attention <is_causal = ",
            causal != 0 && !band, scale != 0 ? ", scale = @scale" : "",
            has_bias ? "> (q_all, k_all, v_all" : "> (q, k, v");
  if (has_mask || band) StrAppend(&text, ", ", added);
  if (has_past) StrAppend(&text, has_mask || band ? "" : ", \"\"", ", past_key, past_value");
  StrAppend(&text, ")\n", OutputLines(call.v_size < 0 ? -1 : call.heads * call.v_size));
  return StrCat(text, "}");
}

}  // namespace pagefuse::microsoft_ops
