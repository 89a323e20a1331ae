// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/attention.h"

#include <cmath>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// What is symbolic of a call.
struct Sizes {
  Dim batch, length, past;
  Dim query, value;  // columns
  Dim total() const { return past + length; }
};

absl::Status CheckSupported(const ShapeContext& c) {
  constexpr char kShared[] = "past_present_share_buffer";
  PF_ASSIGN_OR_RETURN(const int64_t shared, c.node().IntAttribute(kShared, 0));
  if (shared != 0) return c.AttributeError(kShared, StrCat("expected 0, got ", shared));
  if (!c.has_input(kAttentionPastLength)) return absl::OkStatus();
  return c.InputError(kAttentionPastLength, "expected none: past and present are two tensors");
}

// [B, 1, S, T], or [B, 1, max, max] of all places, of which the queries' are read.
absl::Status CheckMaskByHead(const ShapeContext& c, const Shape& mask, const Sizes& s) {
  const bool batch_fits = mask[0] == Dim(1) || !Differ(mask[0], s.batch);
  const bool direct = !Differ(mask[2], s.length) && !Differ(mask[3], s.total());
  const auto most = mask[2].constant(), total = s.total().constant();
  const bool of_places = !Differ(mask[2], mask[3]) && !(most && total && *most < *total);
  if (batch_fits && !Differ(mask[1], Dim(1)) && (direct || of_places)) return absl::OkStatus();
  return c.InputError(kAttentionMask,
                      StrCat("expected ", Shape({s.batch, Dim(1), s.length, s.total()}).ToString(),
                             ", or [B, 1, max, max] of at least ", s.total().ToString(),
                             " places, got ", mask.ToString()));
}

absl::Status CheckMask(const ShapeContext& c, const Sizes& s) {
  const Shape* mask = c.input_shape(kAttentionMask);
  if (mask == nullptr) return absl::OkStatus();
  if (mask->rank() == 1) {
    const bool fits = !Differ((*mask)[0], s.batch) || !Differ((*mask)[0], s.batch * Dim(2));
    if (fits) return absl::OkStatus();
    return c.InputError(kAttentionMask, StrCat("expected [B] or [2 B], B = ", s.batch.ToString(),
                                               ", got ", mask->ToString()));
  }
  if (mask->rank() == 2) return ExpectShape(c, kAttentionMask, Shape({s.batch, s.total()}));
  if (mask->rank() == 3) {
    return ExpectShape(c, kAttentionMask, Shape({s.batch, s.length, s.total()}));
  }
  if (mask->rank() == 4) return CheckMaskByHead(c, *mask, s);
  return c.InputError(kAttentionMask,
                      StrCat("expected [B], [2 B], [B, T], [B, S, T], [B, 1, S, T] or "
                             "[B, 1, max, max], got ",
                             mask->ToString()));
}

// Reads the past's length; the present's shape follows from it.
absl::Status CheckPast(const ShapeContext& c, int64_t heads, Sizes& s) {
  const bool has_present = c.num_outputs() > 1 && c.has_output(1);
  if ((c.has_input(kAttentionPast) || has_present) && Differ(s.query, s.value)) {
    return c.Error(StrCat("expected keys and values of one size in a cache, got ",
                          s.query.ToString(), " and ", s.value.ToString(), " columns"));
  }
  if (!c.has_input(kAttentionPast)) return absl::OkStatus();
  const Shape* past = c.input_shape(kAttentionPast);
  s.past = past != nullptr && past->rank() == 5 ? (*past)[3] : Dim::Unknown();
  return ExpectShape(c, kAttentionPast,
                     Shape({Dim(2), s.batch, Dim(heads), s.past, s.query.FloorDiv(Dim(heads))}));
}

absl::Status Infer(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckSupported(c));
  PF_ASSIGN_OR_RETURN(const int64_t heads, HeadsOf(c));
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (c.has_output(i)) c.SetOutput(i, c.input_type(kAttentionInput), std::nullopt);
  }
  const Shape* x = c.input_shape(kAttentionInput);
  const Shape* weights = c.input_shape(kAttentionWeights);
  if (x == nullptr || weights == nullptr) return absl::OkStatus();
  if (x->rank() != 3) {
    return c.InputError(kAttentionInput, StrCat("expected [B, S, K], got ", x->ToString()));
  }
  if (weights->rank() != 2) {
    return c.InputError(kAttentionWeights, StrCat("expected [K, N], got ", weights->ToString()));
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, kAttentionWeights, Shape({(*x)[2], Dim::Unknown()})));
  PF_RETURN_IF_ERROR(ExpectShape(c, kAttentionBias, Shape({(*weights)[1]})));
  PF_ASSIGN_OR_RETURN(const ProjectedColumns columns,
                      ProjectedColumnsOf(c.node(), (*weights)[1], heads));
  Sizes s{(*x)[0], (*x)[1], Dim(0), columns.query, columns.value};
  PF_RETURN_IF_ERROR(RotatedChannels(c.node(), s.query.FloorDiv(Dim(heads))).status());
  PF_RETURN_IF_ERROR(CheckPast(c, heads, s));
  PF_RETURN_IF_ERROR(CheckMask(c, s));
  PF_RETURN_IF_ERROR(
      CheckScoreBias(c, kAttentionScoreBias, Shape({s.batch, Dim(heads), s.length, s.total()})));
  const DataType type = c.input_type(kAttentionInput);
  c.SetOutput(0, type, Shape({s.batch, s.length, s.value}));
  if (c.num_outputs() > 1 && c.has_output(1)) {
    c.SetOutput(1, type,
                Shape({Dim(2), s.batch, Dim(heads), s.total(), s.query.FloorDiv(Dim(heads))}));
  }
  return absl::OkStatus();
}

// Lengths, and where keys begin: within the keys.
absl::Status Validate(const KernelArgs& args) {
  const TensorArg& mask = args.input(kAttentionMask);
  if (!mask.present() || mask.dims.size() != 1) return absl::OkStatus();
  const TensorArg& past = args.input(kAttentionPast);
  const int64_t total = args.input(kAttentionInput).dims[1] + (past.present() ? past.dims[3] : 0);
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t place = mask.as<int32_t>()[i];
    if (place >= 0 && place <= total) continue;
    return ValueError(args, "input 3 \"mask_index\"",
                      StrCat("expected 0 to ", total, " keys, got ", place, " at ", i));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Dim> RotatedChannels(const Node& node, const Dim& head_size) {
  PF_ASSIGN_OR_RETURN(const int64_t rotates, node.IntAttribute("do_rotary", 0));
  if (rotates == 0) return Dim(0);
  PF_ASSIGN_OR_RETURN(const int64_t told, node.IntAttribute("rotary_embedding_dim", 0));
  const Dim rotated = told == 0 ? head_size : Dim(told);
  const auto number = rotated.constant(), size = head_size.constant();
  if (!number || (*number > 0 && *number % 2 == 0 && (!size || *number <= *size))) return rotated;
  return AttributeError(node, "rotary_embedding_dim",
                        StrCat("expected an even number up to the ", head_size.ToString(),
                               " channels of a head, got ", *number));
}

std::vector<float> RotaryFrequencies(int64_t rotated) {
  constexpr double kBase = 10000;
  std::vector<float> frequencies;
  for (int64_t pair = 0; 2 * pair < rotated; ++pair) {
    const double part = 2 * static_cast<double>(pair) / static_cast<double>(rotated);
    frequencies.push_back(static_cast<float>(std::pow(kBase, -part)));
  }
  return frequencies;
}

absl::StatusOr<ProjectedColumns> ProjectedColumnsOf(const Node& node, const Dim& all,
                                                    int64_t heads) {
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, node.IntsAttribute("qkv_hidden_sizes", {}));
  ProjectedColumns columns{all.FloorDiv(Dim(3)), all.FloorDiv(Dim(3))};
  if (!sizes.empty()) {
    const bool fits = sizes.size() == 3 && sizes[0] > 0 && sizes[2] > 0 && sizes[0] == sizes[1] &&
                      sizes[0] <= kMaxElements && sizes[2] <= kMaxElements;
    if (!fits) {
      return AttributeError(node, "qkv_hidden_sizes",
                            "expected three positive sizes, the first two equal");
    }
    columns = {Dim(sizes[0]), Dim(sizes[2])};
  }
  if (Differ(columns.query * Dim(2) + columns.value, all)) {
    return NodeError(node,
                     StrCat("input 1 \"weights\": expected ",
                            sizes.empty() ? "a multiple of 3"
                                          : (columns.query * Dim(2) + columns.value).ToString(),
                            " columns, got ", all.ToString()));
  }
  for (const Dim& part : {columns.query, columns.value}) {
    const auto number = part.constant();
    if (!number || *number % heads == 0) continue;
    return NodeError(node,
                     StrCat("expected ", heads, " heads of one size, got ", *number, " columns"));
  }
  return columns;
}

OpDef AttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  return OpDef("com.microsoft", "Attention", /*since=*/1)
      .Doc(
          "softmax(scale * Q K^T + bias) V of queries, keys and values that are projected from one "
          "input. A mask adds mask_filter_value to the scores of keys that are not seen.")
      .Input("input", "T", "[B, S, K]")
      .Input("weights", "T", "[K, 2 Nq + Nv], of query, key and value beside each other")
      .Input("bias", "T", "[2 Nq + Nv]", kOptional)
      .Input("mask_index", "int32",
             "[B]: keys of each sequence; [2 B]: where they end, then where they begin; [B, T], "
             "[B, S, T] or [B, 1, S, T]: 1 where seen; [B, 1, max, max]: likewise of all places, "
             "rows P to T are read",
             kOptional)
      .Input("past", "T", "[2, B, H, P, D]: keys, then values", kOptional)
      .Input("attention_bias", "T", "[B or 1, H or 1, S, T]", kOptional)
      .Input("past_sequence_length", "int32", "not supported", kOptional)
      .Output("output", "T", "[B, S, Nv]")
      .Output("present", "T", "[2, B, H, T, D], T = P + S", kOptional)
      .RequiredAttr("num_heads", "H")
      .FlagAttr("unidirectional", int64_t{0}, "1: a query sees no later key")
      .Attr("scale", 0.0f, "factor of the scores, 0: 1 / sqrt(D)")
      .Attr("mask_filter_value", -10000.0f, "added to the scores of keys that are not seen")
      .Attr("qkv_hidden_sizes", std::vector<int64_t>(), "Nq, Nq, Nv; thirds if left out")
      .Attr("do_rotary", int64_t{0},
            "1: pairs R / 2 apart of queries and keys are rotated by their place, angle "
            "place / 10000^(2 i / R) for pair i")
      .Attr("rotary_embedding_dim", int64_t{0}, "R, 0: D")
      .Attr("past_present_share_buffer", int64_t{0}, "only 0")
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(DecomposeAttention);
}

}  // namespace pagefuse::microsoft_ops
