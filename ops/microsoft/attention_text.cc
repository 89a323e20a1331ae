// SPDX-License-Identifier: Apache-2.0
// com.microsoft.Attention written out.
#include <string>

#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention.h"
#include "pagefuse/ops/microsoft/attention_lines.h"

namespace pagefuse::microsoft_ops {
namespace {

// The number of keys, past and new ones.
std::string KeyCount(bool has_past) {
  std::string text = "  fresh = Shape <start = 1, end = 2> (input)\n";
  if (!has_past) return text + "  keys = Identity (fresh)\n";
  return text + "  old = Shape <start = 3, end = 4> (past)\n  keys = Add (old, fresh)\n";
}

// `has_keys`: the number of keys is defined already.
ScoreMask MaskOf(const Node& node, bool has_keys) {
  return {.seen = node.input(kAttentionMask),
          .seen_name = "mask_index",
          .batched = node.input(kAttentionInput),
          .batched_name = "input",
          .keys = has_keys ? "" : KeyCount(node.input(kAttentionPast) != nullptr),
          .has_bias = node.input(kAttentionScoreBias) != nullptr};
}

int64_t HeadSize(const Dim& columns, int64_t heads) {
  const auto number = columns.constant();
  return number ? *number / heads : -1;
}

std::string SplitLines(const ProjectedColumns& columns) {
  const char* head = "  q_rows, k_rows, v_rows = Split <axis = -1";
  if (!columns.query.is_constant()) return StrCat(head, ", num_outputs = 3> (rows)\n");
  return StrCat("  sizes = Constant <value_ints: ints = [", columns.query.ToString(), ", ",
                columns.query.ToString(), ", ", columns.value.ToString(), "]> ()\n", head,
                "> (rows, sizes)\n");
}

// Defines `q_turned` and `k_turned`: `q` and `k` rotated by the places behind the past.
std::string RotationLines(const Node& node, int64_t rotated) {
  const bool has_past = node.input(kAttentionPast) != nullptr;
  std::string text =
      StrCat(KeyCount(has_past), "  first_axis = Constant <value_ints: ints = [0]> ()\n",
             has_past ? "  first_place = Squeeze (old, first_axis)\n"
                      : "  first_place = Constant <value_int = 0> ()\n",
             "  next_place = Squeeze (keys, first_axis)\n  step = Constant <value_int = 1> ()\n"
             "  own_places = Range (first_place, next_place, step)\n"
             "  sequences = Shape <start = 0, end = 1> (input)\n"
             "  grid = Concat <axis = 0> (sequences, fresh)\n"
             "  place_grid = Expand (own_places, grid)\n"
             "  last_axis = Constant <value_ints: ints = [-1]> ()\n"
             "  place_columns = Unsqueeze (place_grid, last_axis)\n"
             "  place_floats = Cast <to = 1> (place_columns)\n"
             "  frequencies = Constant <value_floats: floats = [");
  std::string_view comma;
  for (const float frequency : RotaryFrequencies(rotated)) {
    StrAppend(&text, comma, absl::StrFormat("%.9g", frequency));
    comma = ", ";
  }
  StrAppend(&text,
            "]> ()\n  angles = Mul (place_floats, frequencies)\n"
            "  cosines = Cos (angles)\n  sines = Sin (angles)\n"
            "  cos_typed = CastLike (cosines, input)\n  sin_typed = CastLike (sines, input)\n");
  for (const char* name : {"q", "k"}) {
    StrAppend(&text, "  ", name, "_turned = RotaryEmbedding <rotary_embedding_dim = ", rotated,
              "> (", name, ", cos_typed, sin_typed)\n");
  }
  return text;
}

// "" without do_rotary.
absl::StatusOr<std::string> RotationOf(const Node& node, const ProjectedColumns& columns,
                                       int64_t heads) {
  PF_ASSIGN_OR_RETURN(const Dim rotated, RotatedChannels(node, columns.query.FloorDiv(Dim(heads))));
  if (!rotated.constant()) {
    return absl::FailedPreconditionError("the number of rotated channels is not known");
  }
  return *rotated.constant() == 0 ? std::string() : RotationLines(node, *rotated.constant());
}

}  // namespace

absl::StatusOr<std::string> DecomposeAttention(const Node& node) {
  const auto has = [&](int i) { return node.input(i) != nullptr; };
  PF_ASSIGN_OR_RETURN(const int64_t heads, node.IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t causal, node.IntAttribute("unidirectional", 0));
  PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", 0.0f));
  const auto& weights = node.input(kAttentionWeights)->shape();
  const Dim all = weights && weights->rank() == 2 ? (*weights)[1] : Dim::Unknown();
  PF_ASSIGN_OR_RETURN(const ProjectedColumns columns, ProjectedColumnsOf(node, all, heads));
  PF_ASSIGN_OR_RETURN(const std::string rotation, RotationOf(node, columns, heads));
  PF_ASSIGN_OR_RETURN(const std::string mask, MaskLines(MaskOf(node, !rotation.empty())));
  const bool has_present = node.num_outputs() > 1 && node.output(1) != nullptr;
  std::string text = StrCat(
      "Attention (input, weights", has(kAttentionBias) ? ", bias" : "",
      has(kAttentionMask) ? ", mask_index" : "", has(kAttentionPast) ? ", past" : "",
      has(kAttentionScoreBias) ? ", attention_bias" : "", ") => (output",
      has_present ? ", present" : "", ") {\n",
      has(kAttentionBias) ? "  product = MatMul (input, weights)\n  rows = Add (product, bias)\n"
                          : "  rows = MatMul (input, weights)\n",
      SplitLines(columns), HeadLines("q", heads, HeadSize(columns.query, heads)),
      HeadLines("k", heads, HeadSize(columns.query, heads)),
      HeadLines("v", heads, HeadSize(columns.value, heads)), rotation, mask);
  if (has(kAttentionPast)) {
    StrAppend(&text, "  key_place = Constant <value_int = 0> ()\n",
              "  value_place = Constant <value_int = 1> ()\n",
              "  past_key = Gather <axis = 0> (past, key_place)\n",
              "  past_value = Gather <axis = 0> (past, value_place)\n");
  }
  const std::string past = has(kAttentionPast) ? ", past_key, past_value" : "";
  StrAppend(&text, "  attended", has_present ? ", present_key, present_value" : "",
            " = Attention <is_causal = ", causal, scale != 0 ? ", scale = @scale" : "",
            rotation.empty() ? "> (q, k, v" : "> (q_turned, k_turned, v",
            !mask.empty()  ? ", mask"
            : past.empty() ? ""
                           : ", \"\"",
            past, ")\n");
  StrAppend(&text, OutputLines(columns.value.constant().value_or(-1)));
  if (has_present) {
    StrAppend(&text, "  front = Constant <value_ints: ints = [0]> ()\n",
              "  first = Unsqueeze (present_key, front)\n",
              "  second = Unsqueeze (present_value, front)\n",
              "  present = Concat <axis = 0> (first, second)\n");
  }
  return StrCat(text, "}");
}

}  // namespace pagefuse::microsoft_ops
