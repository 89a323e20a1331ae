// com.microsoft.Attention written out.
#include <cmath>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/microsoft/attention.h"

namespace pagefuse::microsoft_ops {
namespace {

// A constant of the type that the op computes in.
std::string TypedFloat(const Node& node, std::string_view name, std::string_view value) {
  const DataType type = node.input(kAttentionInput)->dtype();
  if (type == DataType::kFloat) {
    return StrCat("  ", name, " = Constant <value_float = ", value, "> ()\n");
  }
  return StrCat("  ", name, "_wide = Constant <value_float = ", value, "> ()\n", "  ", name,
                " = CastLike (", name, "_wide, input)\n");
}

// The number of keys, past and new ones.
std::string KeyCount(bool has_past) {
  std::string text = "  fresh = Shape <start = 1, end = 2> (input)\n";
  if (!has_past) return text + "  keys = Identity (fresh)\n";
  return text + "  old = Shape <start = 3, end = 4> (past)\n  keys = Add (old, fresh)\n";
}

// `seen` [B, T] from lengths [B], or from ends and begins [2 B].
std::string SeenByLength(bool has_past, bool has_begins) {
  std::string text =
      StrCat(KeyCount(has_past),
             "  none = Constant <value_int = 0> ()\n  one = Constant <value_int = 1> ()\n"
             "  scalar = Constant <value_ints: ints = [0]> ()\n  count = Squeeze (keys, scalar)\n"
             "  j = Range (none, count, one)\n  column = Constant <value_ints: ints = [1]> ()\n"
             "  places = Cast <to = 7> (mask_index)\n");
  if (!has_begins) {
    return text + "  end = Unsqueeze (places, column)\n  seen = Less (j, end)\n";
  }
  return text +
         "  batch = Shape <start = 0, end = 1> (input)\n  two = Constant <value_ints: ints = [2]> ()\n"
         "  twice = Mul (batch, two)\n  zeros = Expand (none, batch)\n"
         "  padded = Concat <axis = 0> (places, zeros)\n"
         "  ends = Slice (padded, scalar, batch, scalar)\n"
         "  begins = Slice (padded, batch, twice, scalar)\n"
         "  end = Unsqueeze (ends, column)\n  begin = Unsqueeze (begins, column)\n"
         "  before = Less (j, end)\n  behind = GreaterOrEqual (j, begin)\n"
         "  seen = And (before, behind)\n";
}

// Lines that define `mask`, added to the scores; empty without one.
absl::StatusOr<std::string> MaskLines(const Node& node) {
  const Value* mask = node.input(kAttentionMask);
  const bool has_bias = node.input(kAttentionScoreBias) != nullptr;
  if (mask == nullptr) return std::string(has_bias ? "  mask = Identity (attention_bias)\n" : "");
  if (!mask->shape() || mask->shape()->rank() < 1 || mask->shape()->rank() > 3) {
    return absl::FailedPreconditionError("the rank of mask_index is not known");
  }
  const int rank = mask->shape()->rank();
  std::string text;
  if (rank == 1) {
    const auto& x = node.input(kAttentionInput)->shape();
    const bool has_begins = !x || !ProvablyEqual((*mask->shape())[0], (*x)[0]);
    text = SeenByLength(node.input(kAttentionPast) != nullptr, has_begins);
  } else {
    text = "  seen = Cast <to = 9> (mask_index)\n";
  }
  StrAppend(&text, "  lined = Constant <value_ints: ints = [", rank == 3 ? "1" : "1, 2", "]> ()\n",
            "  shown = Unsqueeze (seen, lined)\n", TypedFloat(node, "visible", "0.0"),
            TypedFloat(node, "hidden", "@mask_filter_value"));
  const char* name = has_bias ? "padding" : "mask";
  StrAppend(&text, "  ", name, " = Where (shown, visible, hidden)\n");
  if (has_bias) StrAppend(&text, "  mask = Add (padding, attention_bias)\n");
  return text;
}

// `rows` [B, S, N] as heads [B, H, S, N / H].
std::string HeadLines(std::string_view name, int64_t heads, const Dim& columns) {
  const auto number = columns.constant();
  return StrCat("  ", name, "_target = Constant <value_ints: ints = [0, 0, ", heads, ", ",
                number ? *number / heads : -1, "]> ()\n", "  ", name, "_parts = Reshape (", name,
                "_rows, ", name, "_target)\n", "  ", name, " = Transpose <perm = [0, 2, 1, 3]> (",
                name, "_parts)\n");
}

std::string SplitLines(const ProjectedColumns& columns) {
  const char* head = "  q_rows, k_rows, v_rows = Split <axis = -1";
  if (!columns.query.is_constant()) return StrCat(head, ", num_outputs = 3> (rows)\n");
  return StrCat("  sizes = Constant <value_ints: ints = [", columns.query.ToString(), ", ",
                columns.query.ToString(), ", ", columns.value.ToString(), "]> ()\n", head,
                "> (rows, sizes)\n");
}

}  // namespace

absl::StatusOr<DecompositionVariant> DecomposeAttention(const Node& node) {
  const auto has = [&](int i) { return node.input(i) != nullptr; };
  PF_ASSIGN_OR_RETURN(const int64_t heads, node.IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t causal, node.IntAttribute("unidirectional", 0));
  PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", 0.0f));
  const auto& weights = node.input(kAttentionWeights)->shape();
  const Dim all = weights && weights->rank() == 2 ? (*weights)[1] : Dim::Unknown();
  PF_ASSIGN_OR_RETURN(const ProjectedColumns columns, ProjectedColumnsOf(node, all, heads));
  PF_ASSIGN_OR_RETURN(const std::string mask, MaskLines(node));
  const bool has_present = node.num_outputs() > 1 && node.output(1) != nullptr;
  std::string text = StrCat(
      "Attention (input, weights", has(kAttentionBias) ? ", bias" : "",
      has(kAttentionMask) ? ", mask_index" : "", has(kAttentionPast) ? ", past" : "",
      has(kAttentionScoreBias) ? ", attention_bias" : "", ") => (output",
      has_present ? ", present" : "", ") {\n",
      has(kAttentionBias) ? "  product = MatMul (input, weights)\n  rows = Add (product, bias)\n"
                          : "  rows = MatMul (input, weights)\n",
      SplitLines(columns), HeadLines("q", heads, columns.query),
      HeadLines("k", heads, columns.query), HeadLines("v", heads, columns.value), mask);
  if (has(kAttentionPast)) {
    StrAppend(&text, "  key_place = Constant <value_int = 0> ()\n",
              "  value_place = Constant <value_int = 1> ()\n",
              "  past_key = Gather <axis = 0> (past, key_place)\n",
              "  past_value = Gather <axis = 0> (past, value_place)\n");
  }
  const std::string past = has(kAttentionPast) ? ", past_key, past_value" : "";
  StrAppend(&text, "  attended", has_present ? ", present_key, present_value" : "",
            " = Attention <is_causal = ", causal, scale != 0 ? ", scale = @scale" : "",
            "> (q, k, v",
            !mask.empty()  ? ", mask"
            : past.empty() ? ""
                           : ", \"\"",
            past, ")\n");
  const auto width = columns.value.constant();
  StrAppend(&text, "  back = Transpose <perm = [0, 2, 1, 3]> (attended)\n",
            "  flat = Constant <value_ints: ints = [0, 0, ", width ? *width : -1, "]> ()\n",
            "  output = Reshape (back, flat)\n");
  if (has_present) {
    StrAppend(&text, "  front = Constant <value_ints: ints = [0]> ()\n",
              "  first = Unsqueeze (present_key, front)\n",
              "  second = Unsqueeze (present_value, front)\n",
              "  present = Concat <axis = 0> (first, second)\n");
  }
  return DecompositionVariant{"written", StrCat(text, "}"), {}};
}

}  // namespace pagefuse::microsoft_ops
