// SPDX-License-Identifier: Apache-2.0
// Attention (opset 23 to 25): scaled dot-product attention with grouped heads, masks, windows and a
// cache.
#include "pagefuse/ops/onnx/attention.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// One of Q, K, V, symbolically.
struct Port {
  Dim batch, heads, length, size;
};

absl::StatusOr<Port> PortOf(const ShapeContext& context, int i, std::string_view heads_attribute) {
  const Shape& shape = *context.input_shape(i);
  if (shape.rank() == 4) return Port{shape[0], shape[1], shape[2], shape[3]};
  if (shape.rank() != 3) {
    return context.InputError(i, StrCat("expected rank 3 or 4, got shape ", shape.ToString()));
  }
  PF_ASSIGN_OR_RETURN(const int64_t heads, context.node().IntAttribute(heads_attribute, 0));
  if (heads <= 0) {
    return context.AttributeError(heads_attribute, "is required and positive for inputs of rank 3");
  }
  const std::optional<int64_t> width = shape[2].constant();
  if (width && *width % heads != 0) {
    return context.InputError(i,
                              StrCat("width ", *width, " is not a multiple of ", heads, " heads"));
  }
  return Port{shape[0], Dim(heads), shape[1], shape[2].FloorDiv(Dim(heads))};
}

absl::Status CheckAttributes(const ShapeContext& context) {
  const Node& node = context.node();
  PF_ASSIGN_OR_RETURN(const int64_t mode, node.IntAttribute("qk_matmul_output_mode", 0));
  if (mode < 0 || mode > 3) {
    return context.AttributeError("qk_matmul_output_mode", StrCat("expected 0 to 3, got ", mode));
  }
  for (const char* window : {"left_window_size", "right_window_size"}) {
    PF_ASSIGN_OR_RETURN(const int64_t size, node.IntAttribute(window, -1));
    if (size < -1) return context.AttributeError(window, StrCat("expected -1 or more, got ", size));
  }
  if (context.has_input(4) != context.has_input(5)) {
    return context.Error("past_key and past_value come together");
  }
  if (context.has_input(4) && context.has_input(6)) {
    return context.Error("nonpad_kv_seqlen and past_key exclude each other");
  }
  if (context.has_input(6) && context.opset() < 24) {
    return context.Error("nonpad_kv_seqlen needs opset 24");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const ShapeContext& context, const Port& q, const Port& k, const Port& v) {
  if (Differ(q.batch, k.batch)) return context.InputError(1, "batch differs from Q");
  if (Differ(q.batch, v.batch)) return context.InputError(2, "batch differs from Q");
  if (Differ(q.size, k.size)) return context.InputError(1, "head size differs from Q");
  if (Differ(k.length, v.length)) return context.InputError(2, "length differs from K");
  if (Differ(k.heads, v.heads)) return context.InputError(2, "number of heads differs from K");
  const std::optional<int64_t> q_heads = q.heads.constant();
  const std::optional<int64_t> kv_heads = k.heads.constant();
  if (q_heads && kv_heads && (*kv_heads == 0 || *q_heads % *kv_heads != 0)) {
    return context.Error(
        StrCat(*q_heads, " query heads are not a multiple of ", *kv_heads, " key heads"));
  }
  return absl::OkStatus();
}

// Input `i`, a past of `port`: [B, H, P, D]. Returns P.
absl::StatusOr<Dim> PastLength(const ShapeContext& context, int i, const Port& port) {
  const Shape* past = context.input_shape(i);
  if (past == nullptr) return Dim::Unknown();
  if (past->rank() != 4 || Differ((*past)[0], port.batch) || Differ((*past)[1], port.heads) ||
      Differ((*past)[3], port.size)) {
    return context.InputError(
        i, StrCat("expected shape [", port.batch.ToString(), ", ", port.heads.ToString(),
                  ", past, ", port.size.ToString(), "], got ", past->ToString()));
  }
  return (*past)[2];
}

absl::Status CheckMask(const ShapeContext& context, const Shape& scores) {
  const Shape* mask = context.input_shape(3);
  if (mask == nullptr) return absl::OkStatus();
  const auto error = [&] {
    return context.InputError(
        3, StrCat("shape ", mask->ToString(), " does not broadcast to ", scores.ToString()));
  };
  if (mask->rank() < 1 || mask->rank() > 4) return error();
  const std::optional<int64_t> width = mask->back(0).constant();
  const std::optional<int64_t> keys = scores[3].constant();
  const bool may_be_short = context.opset() >= 24 || width == 1;  // keys past its end are masked
  if (width && keys && (*width > *keys || (*width < *keys && !may_be_short))) return error();
  for (int d = 1; d < mask->rank(); ++d) {
    if (mask->back(d) != Dim(1) && Differ(mask->back(d), scores.back(d))) return error();
  }
  return absl::OkStatus();
}

void SetOutputY(ShapeContext& context, const Port& q, const Port& v) {
  const bool packed = context.input_shape(0)->rank() == 3;
  context.SetOutput(0, context.input_type(0),
                    packed ? Shape({q.batch, q.length, q.heads * v.size})
                           : Shape({q.batch, q.heads, q.length, v.size}));
}

absl::Status InferAttention(ShapeContext& context) {
  PF_RETURN_IF_ERROR(CheckAttributes(context));
  const DataType types[] = {context.input_type(0), context.input_type(1), context.input_type(2),
                            context.input_type(0)};
  for (int i = 0; i < std::min(context.num_outputs(), 4); ++i) {
    context.SetOutput(i, types[i], std::nullopt);
  }
  for (int i = 0; i < 3; ++i) {
    if (context.input_shape(i) == nullptr) return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const Port q, PortOf(context, 0, "q_num_heads"));
  PF_ASSIGN_OR_RETURN(const Port k, PortOf(context, 1, "kv_num_heads"));
  PF_ASSIGN_OR_RETURN(const Port v, PortOf(context, 2, "kv_num_heads"));
  PF_RETURN_IF_ERROR(CheckHeads(context, q, k, v));
  Dim past(0);
  if (context.has_input(4)) {
    PF_ASSIGN_OR_RETURN(past, PastLength(context, 4, k));
    PF_ASSIGN_OR_RETURN(const Dim past_values, PastLength(context, 5, v));
    if (Differ(past, past_values)) return context.InputError(5, "length differs from past_key");
  }
  const Shape* lengths = context.input_shape(6);
  if (lengths != nullptr && (lengths->rank() != 1 || Differ((*lengths)[0], q.batch))) {
    return context.InputError(
        6, StrCat("expected one length a sequence, got shape ", lengths->ToString()));
  }
  const Dim total = past + k.length;
  const Shape scores({q.batch, q.heads, q.length, total});
  PF_RETURN_IF_ERROR(CheckMask(context, scores));
  SetOutputY(context, q, v);
  const Shape present[] = {Shape({k.batch, k.heads, total, k.size}),
                           Shape({v.batch, v.heads, total, v.size}), scores};
  for (int i = 1; i < context.num_outputs(); ++i) context.SetOutput(i, types[i], present[i - 1]);
  return absl::OkStatus();
}

absl::Status ValidateLengths(const KernelArgs& args) {
  const TensorArg& lengths = args.input(6);
  if (!lengths.present()) return absl::OkStatus();
  const TensorArg& k = args.input(1);
  const int64_t rows = k.dims[k.dims.size() == 4 ? 2 : 1];
  for (int64_t b = 0; b < lengths.size(); ++b) {
    const int64_t length = lengths.as<int64_t>()[b];
    if (length >= 0 && length <= rows) continue;
    return ValueError(args, 6, "nonpad_kv_seqlen",
                      StrCat("expected 0 to ", rows, ", got ", length, " for sequence ", b));
  }
  return absl::OkStatus();
}

}  // namespace

OpDef AttentionDef() {
  using Masks = decltype(Join(Numbers(), TypeList<bool>()));
  return OpDef("", "Attention", 23)
      .Doc("softmax(softcap(scale * Q K^T) + mask) V. A query that sees no key gives 0.")
      .Input("Q", "T1", "[B, H, S, D] or [B, S, H * D]")
      .Input("K", "T1", "[B, Hkv, L, D] or [B, L, Hkv * D]")
      .Input("V", "T2", "[B, Hkv, L, Dv] or [B, L, Hkv * Dv]")
      .Input("attn_mask", "U", "broadcasts to [B, H, S, P + L]; true or 0: visible",
             PortKind::kOptional)
      .Input("past_key", "T1", "[B, Hkv, P, D]", PortKind::kOptional)
      .Input("past_value", "T2", "[B, Hkv, P, Dv]", PortKind::kOptional)
      .Input("nonpad_kv_seqlen", "int64", "[B] (opset 24)", PortKind::kOptional)
      .Output("Y", "T1", "[B, H, S, Dv] or [B, S, H * Dv]")
      .Output("present_key", "T1", "[B, Hkv, P + L, D]", PortKind::kOptional)
      .Output("present_value", "T2", "[B, Hkv, P + L, Dv]", PortKind::kOptional)
      .Output("qk_matmul_output", "T1", "[B, H, S, P + L]", PortKind::kOptional)
      .FlagAttr("is_causal", int64_t{0}, "1: a query sees no later key")
      .Attr("kv_num_heads", int64_t{0}, "Hkv, for inputs of rank 3")
      .Attr("q_num_heads", int64_t{0}, "H, for inputs of rank 3")
      .Attr("qk_matmul_output_mode", int64_t{0},
            "stage of qk_matmul_output: 0 product, 1 after softcap, 2 after mask, 3 after softmax")
      .Attr("scale", {}, "1 / sqrt(D) if absent")
      .Attr("softcap", 0.0f, "limit of the scores, 0: none")
      .Attr("softmax_precision", int64_t{0},
            "type that the softmax needs at least; ours is no coarser")
      .Attr("left_window_size", int64_t{-1}, "earlier keys that a query sees, -1: all (opset 25)")
      .Attr("right_window_size", int64_t{-1}, "later keys that a query sees, -1: all (opset 25)")
      .Types("T1", TypesOf(Floats()))
      .Types("T2", TypesOf(Floats()))
      .Types("U", TypesOf(Masks()))
      .InferShapes(InferAttention)
      .Validate(ValidateLengths)
      .AddKernel({.name = "reference", .run = AttentionReference})
      .AddKernel({.name = "hwy",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .supports = SupportsAttentionHwy,
                  .run = AttentionHwy});
}

}  // namespace pagefuse::onnx_ops
