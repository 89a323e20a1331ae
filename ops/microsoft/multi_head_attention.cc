// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/multi_head_attention.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// What is symbolic of a call.
struct Sizes {
  Dim batch, q_len, new_len, past_len, qk_size, v_size;
  Dim total() const { return new_len + past_len; }
};

int RankOf(const ShapeContext& c, int i) { return c.has_input(i) ? c.input_shape(i)->rank() : 0; }

absl::StatusOr<Sizes> SizesOf(const ShapeContext& c, MhaForm form, int64_t heads) {
  const Shape& query = *c.input_shape(kMhaQuery);
  Sizes s{query[0], query[1], query[1], Dim(0), Dim(), Dim()};
  if (form == MhaForm::kPackedQkv) {
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMhaQuery, Shape({s.batch, s.q_len, Dim(heads), Dim(3), Dim::Unknown()})));
    s.qk_size = s.v_size = query[4];
  } else {
    PF_RETURN_IF_ERROR(CheckWidth(c, kMhaQuery, query[2], heads));
    s.qk_size = s.v_size = query[2].FloorDiv(Dim(heads));
  }
  const Shape* key = c.input_shape(kMhaKey);
  const Shape* value = c.input_shape(kMhaValue);
  if (form == MhaForm::kSeparate) {
    PF_RETURN_IF_ERROR(CheckWidth(c, kMhaValue, value->back(0), heads));
    s.new_len = (*key)[1];
    s.v_size = value->back(0).FloorDiv(Dim(heads));
    PF_RETURN_IF_ERROR(ExpectShape(c, kMhaKey, Shape({s.batch, s.new_len, query[2]})));
    PF_RETURN_IF_ERROR(ExpectShape(c, kMhaValue, Shape({s.batch, s.new_len, value->back(0)})));
  } else if (form == MhaForm::kHeads) {
    s.new_len = (*key)[2];
    s.v_size = value->back(0);
    PF_RETURN_IF_ERROR(ExpectShape(c, kMhaKey, Shape({s.batch, Dim(heads), s.new_len, s.qk_size})));
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMhaValue, Shape({s.batch, Dim(heads), s.new_len, s.v_size})));
  } else if (form == MhaForm::kPackedKv) {
    s.new_len = (*key)[1];
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMhaKey, Shape({s.batch, s.new_len, Dim(heads), Dim(2), s.qk_size})));
  }
  if (c.has_input(kMhaPastKey) && c.input_shape(kMhaPastKey) != nullptr) {
    const Shape& past = *c.input_shape(kMhaPastKey);
    s.past_len = past.rank() == 4 ? past[2] : Dim::Unknown();
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMhaPastKey, Shape({s.batch, Dim(heads), s.past_len, s.qk_size})));
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMhaPastValue, Shape({s.batch, Dim(heads), s.past_len, s.v_size})));
  }
  return s;
}

absl::Status CheckMasks(const ShapeContext& c, const Sizes& s, int64_t heads) {
  const Shape* padding = c.input_shape(kMhaKeyPadding);
  if (padding != nullptr) {
    const Shape expected[] = {Shape({s.batch}), Shape({s.batch, s.total()}),
                              Shape({s.batch, s.q_len, s.total()})};
    if (padding->rank() < 1 || padding->rank() > 3) {
      return c.InputError(kMhaKeyPadding,
                          StrCat("expected rank 1 to 3, got ", padding->ToString()));
    }
    PF_RETURN_IF_ERROR(ExpectShape(c, kMhaKeyPadding, expected[padding->rank() - 1]));
  }
  return CheckScoreBias(c, kMhaAttentionBias, Shape({s.batch, Dim(heads), s.q_len, s.total()}));
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, HeadsOf(c));
  if (c.has_input(kMhaPastKey) != c.has_input(kMhaPastValue)) {
    return c.Error("past_key and past_value come together");
  }
  for (int i = 0; i < std::min(c.num_outputs(), 3); ++i) {
    if (c.has_output(i)) c.SetOutput(i, c.input_type(kMhaQuery), std::nullopt);
  }
  for (const int i : {kMhaQuery, kMhaKey, kMhaValue}) {
    if (c.has_input(i) && c.input_shape(i) == nullptr) return absl::OkStatus();
  }
  const std::optional<MhaForm> form =
      MhaFormOf(RankOf(c, kMhaQuery), RankOf(c, kMhaKey), RankOf(c, kMhaValue));
  if (!form) return c.Error("the ranks of query, key and value do not go together");
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, *form, heads));
  const Dim h(heads);
  PF_RETURN_IF_ERROR(ExpectShape(c, kMhaBias, Shape({(s.qk_size + s.qk_size + s.v_size) * h})));
  PF_RETURN_IF_ERROR(CheckMasks(c, s, heads));
  c.SetOutput(0, c.input_type(kMhaQuery), Shape({s.batch, s.q_len, s.v_size * h}));
  const Dim size[] = {s.qk_size, s.v_size};
  for (int i = 1; i < std::min(c.num_outputs(), 3); ++i) {
    if (!c.has_output(i)) continue;
    c.SetOutput(i, c.input_type(kMhaQuery), Shape({s.batch, h, s.total(), size[i - 1]}));
  }
  return absl::OkStatus();
}

// Past and new ones.
int64_t KeyCount(const KernelArgs& args) {
  const TensorArg& key = args.input(kMhaKey);
  const TensorArg& past = args.input(kMhaPastKey);
  const int64_t old = past.present() ? past.dims[2] : 0;
  if (!key.present()) return args.input(kMhaQuery).dims[1] + old;
  return key.dims[key.dims.size() == 4 ? 2 : 1] + old;
}

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& padding = args.input(kMhaKeyPadding);
  if (!padding.present() || padding.dims.size() != 1) return absl::OkStatus();
  const int64_t total = KeyCount(args);
  for (int64_t b = 0; b < padding.size(); ++b) {
    const int64_t length = padding.as<int32_t>()[b];
    if (length >= 0 && length <= total) continue;
    return ValueError(args, "input 4 \"key_padding_mask\"",
                      StrCat("expected 0 to ", total, " keys, got ", length, " for sequence ", b));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<MhaForm> MhaFormOf(int query_rank, int key_rank, int value_rank) {
  if (query_rank == 5 && key_rank == 0 && value_rank == 0) return MhaForm::kPackedQkv;
  if (query_rank != 3) return std::nullopt;
  if (key_rank == 3 && value_rank == 3) return MhaForm::kSeparate;
  if (key_rank == 4 && value_rank == 4) return MhaForm::kHeads;
  if (key_rank == 5 && value_rank == 0) return MhaForm::kPackedKv;
  return std::nullopt;
}

OpDef MultiHeadAttentionDef() {
  using enum DataType;
  constexpr PortKind kOptional = PortKind::kOptional;
  return OpDef("com.microsoft", "MultiHeadAttention", /*since=*/1)
      .Doc("softmax(scale * Q K^T + bias) V with as many key heads as query heads.")
      .Input("query", "T", "[B, S, H * D]; [B, S, H, 3, D] with key and value in it")
      .Input("key", "T", "[B, L, H * D], [B, H, L, D], or [B, L, H, 2, D] with the value in it",
             kOptional)
      .Input("value", "T", "[B, L, H * Dv] or [B, H, L, Dv]", kOptional)
      .Input("bias", "T", "[H * (2 D + Dv)], added to query, key and value", kOptional)
      .Input("key_padding_mask", "int32",
             "[B]: keys of each sequence; [B, T] or [B, S, T]: 1 where seen", kOptional)
      .Input("attention_bias", "T", "[B or 1, H or 1, S, T]", kOptional)
      .Input("past_key", "T", "[B, H, P, D]", kOptional)
      .Input("past_value", "T", "[B, H, P, Dv]", kOptional)
      .Output("output", "T", "[B, S, H * Dv]")
      .Output("present_key", "T", "[B, H, T, D], T = P + L", kOptional)
      .Output("present_value", "T", "[B, H, T, Dv]", kOptional)
      .RequiredAttr("num_heads", "H")
      .Attr("scale", 0.0f, "factor of the scores, 0: 1 / sqrt(D)")
      .Attr("mask_filter_value", -10000.0f, "added to the scores of keys that are not seen")
      .FlagAttr("unidirectional", int64_t{0}, "1: a query sees no later key")
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(DecomposeMha);
}

}  // namespace pagefuse::microsoft_ops
