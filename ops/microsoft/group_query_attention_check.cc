// SPDX-License-Identifier: Apache-2.0
// Shapes and values of GroupQueryAttention.
#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/microsoft/group_query_attention.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

struct Sizes {
  Dim batch, q_len, kv_len, head_size;
};

absl::StatusOr<Sizes> SizesOf(const ShapeContext& c, const GqaAttributes& a) {
  const Shape& query = *c.input_shape(kGqaQuery);
  if (query.rank() != 3) {
    return c.InputError(kGqaQuery, StrCat("expected rank 3, got ", query.ToString()));
  }
  if (c.has_input(kGqaKey) != c.has_input(kGqaValue)) {
    return c.Error("key and value come together");
  }
  const bool packed = !c.has_input(kGqaKey);
  const int64_t heads = a.q_heads + (packed ? 2 * a.kv_heads : 0);
  PF_RETURN_IF_ERROR(CheckWidth(c, kGqaQuery, query[2], heads));
  Sizes sizes{query[0], query[1], query[1], query[2].FloorDiv(Dim(heads))};
  const Shape* key = packed ? nullptr : c.input_shape(kGqaKey);
  if (key != nullptr && key->rank() == 3) sizes.kv_len = (*key)[1];
  const std::optional<int64_t> kv_len = sizes.kv_len.constant();
  if (Differ(sizes.kv_len, sizes.q_len) && kv_len != 0) {
    return c.InputError(kGqaKey, StrCat("expected the length of query, ", sizes.q_len.ToString(),
                                        ", or none, got ", sizes.kv_len.ToString()));
  }
  return sizes;
}

// Type and last dim of a cache.
absl::Status CheckCache(const ShapeContext& c, const GqaAttributes& a, const Sizes& sizes,
                        bool keys) {
  const int i = keys ? kGqaPastKey : kGqaPastValue;
  const KvScales kind = keys ? a.k_scales : a.v_scales;
  const int scale = keys ? kGqaKScale : kGqaVScale;
  if (kind != KvScales::kNone && !c.has_input(scale)) {
    return c.Error(StrCat(keys ? "k_scale" : "v_scale", " is missing"));
  }
  if (kind == KvScales::kPerTensor && c.has_input(scale) && c.input_shape(scale) != nullptr) {
    const auto dims = c.input_shape(scale)->constant();
    if (dims && ElementCount(*dims) != 1) return c.InputError(scale, "expected one scale");
  }
  if (kind == KvScales::kPerChannel) {
    const Shape* shape = c.input_shape(scale);
    const auto dims = shape != nullptr ? shape->constant() : std::nullopt;
    const std::optional<int64_t> size = sizes.head_size.constant();
    if (dims && size && ElementCount(*dims) != a.kv_heads * *size) {
      return c.InputError(
          scale, StrCat("expected [", a.kv_heads, ", 1, ", *size, "], got ", shape->ToString()));
    }
  }
  if (!c.has_input(i)) return absl::OkStatus();
  const bool four_bits = kind != KvScales::kNone && a.bits == 4;
  const DataType type = c.input_type(i);
  const bool fits = kind == KvScales::kNone
                        ? type == c.input_type(kGqaQuery) || type == DataType::kUndefined
                    : four_bits ? type == DataType::kUint8
                                : type == DataType::kInt8 || type == DataType::kFloat8E4M3FN;
  if (!fits) {
    return c.InputError(i, StrCat("type ", DataTypeName(type), " does not fit the quantisation"));
  }
  const Dim stored = four_bits ? (sizes.head_size + Dim(1)).FloorDiv(Dim(2)) : sizes.head_size;
  return ExpectShape(c, i, Shape({sizes.batch, Dim(a.kv_heads), Dim::Unknown(), stored}));
}

absl::Status CheckOptional(const ShapeContext& c, const GqaAttributes& a, const Sizes& sizes) {
  PF_RETURN_IF_ERROR(ExpectShape(c, kGqaSeqlensK, Shape({sizes.batch})));
  if (const Shape* total = c.input_shape(kGqaTotal); total != nullptr) {
    const auto dims = total->constant();
    if (total->rank() > 1 || (dims && ElementCount(*dims) != 1)) {
      return c.InputError(kGqaTotal, StrCat("expected one element, got ", total->ToString()));
    }
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, kGqaPositionIds, Shape({sizes.batch, sizes.q_len})));
  PF_RETURN_IF_ERROR(CheckScoreBias(
      c, kGqaBias, Shape({sizes.batch, Dim(a.q_heads), sizes.q_len, Dim::Unknown()})));
  return CheckHeadWeights(c, {kGqaHeadSink, kGqaQNormWeight, kGqaKNormWeight}, a.q_heads,
                          sizes.head_size);
}

absl::Status CheckRotation(const ShapeContext& c, const GqaAttributes& a, const Sizes& sizes) {
  if (!a.rotates) return absl::OkStatus();
  if (!c.has_input(kGqaCos) || !c.has_input(kGqaSin)) {
    return c.Error("do_rotary needs cos_cache and sin_cache");
  }
  const Shape* cosines = c.input_shape(kGqaCos);
  if (cosines == nullptr) return absl::OkStatus();
  if (cosines->rank() != 2) {
    return c.InputError(kGqaCos, StrCat("expected rank 2, got ", cosines->ToString()));
  }
  const std::optional<int64_t> half = (*cosines)[1].constant();
  const std::optional<int64_t> size = sizes.head_size.constant();
  if (half && size && 2 * *half > *size) {
    return c.InputError(kGqaCos, StrCat(*half, " pairs do not fit a head of ", *size));
  }
  return ExpectShape(c, kGqaSin, *cosines);
}

Dim PresentRows(ShapeContext& c, const GqaAttributes& a) {
  const Shape* past = c.input_shape(kGqaPastKey);
  if (c.has_input(kGqaPastKey) && past == nullptr) return c.FreshDim();
  if (a.windowed_cache && past != nullptr) return (*past)[2];
  const std::optional<std::vector<Dim>> total = c.input_value(kGqaTotal);
  if (!total || total->size() != 1) return c.FreshDim();
  if (past == nullptr) return (*total)[0];
  const std::optional<int64_t> rows = (*past)[2].constant();
  const std::optional<int64_t> number = (*total)[0].constant();
  if (rows && number) return Dim(std::max(*rows, *number));
  return c.FreshDim();
}

absl::Status CheckSequence(const KernelArgs& args, const GqaCall& call, int64_t b, int64_t total) {
  const GqaSequence& s = call.sequences[b];
  const bool prompt = call.kv_len > 0 && call.q_len == total;
  const int64_t least = prompt ? 1 : std::max<int64_t>(call.kv_len, 1);
  if (s.total < least || s.total > total) {
    return ValueError(args, "input 5 \"seqlens_k\"",
                      StrCat("expected ", least - 1, " to ", total - 1, " for sequence ", b,
                             ", got ", s.total - 1));
  }
  if (s.resident <= call.past_rows) return absl::OkStatus();
  return ValueError(args, "input 5 \"seqlens_k\"",
                    StrCat("sequence ", b, " has ", s.resident, " tokens before the new ones, ",
                           "the past has ", call.past_rows, " rows"));
}

absl::Status CheckPositions(const KernelArgs& args, const GqaCall& call) {
  if (!call.attributes.rotates) return absl::OkStatus();
  const int64_t rows = std::min(args.input(kGqaCos).dims[0], args.input(kGqaSin).dims[0]);
  const TensorArg& ids = args.input(kGqaPositionIds);
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t s = 0; s < call.q_len; ++s) {
      const int64_t position =
          ids.present() ? IntAt(ids, b * call.q_len + s) : call.sequences[b].position + s;
      if (position >= 0 && position < rows) continue;
      return ValueError(args, "input 7 \"cos_cache\"",
                        StrCat("position ", position, " is not in its ", rows, " rows"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferGqa(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const GqaAttributes a, GqaAttributesOf(c.node()));
  const DataType type = c.input_type(kGqaQuery);
  const auto cache_type = [&](int past, KvScales kind) {
    if (c.has_input(past)) return c.input_type(past);
    if (kind == KvScales::kNone) return type;
    return a.bits == 4 ? DataType::kUint8 : DataType::kInt8;
  };
  if (c.has_input(kGqaPastKey) != c.has_input(kGqaPastValue)) {
    return c.Error("past_key and past_value come together");
  }
  if (a.windowed_cache && !c.has_input(kGqaPastKey)) {
    return c.AttributeError("sliding_window_cache", "needs past_key and past_value");
  }
  const DataType types[] = {type, cache_type(kGqaPastKey, a.k_scales),
                            cache_type(kGqaPastValue, a.v_scales)};
  for (int i = 0; i < std::min(c.num_outputs(), 3); ++i) c.SetOutput(i, types[i], std::nullopt);
  if (c.input_shape(kGqaQuery) == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(c, a));
  const Shape row({sizes.batch, sizes.kv_len, sizes.head_size * Dim(a.kv_heads)});
  PF_RETURN_IF_ERROR(ExpectShape(c, kGqaKey, row));
  PF_RETURN_IF_ERROR(ExpectShape(c, kGqaValue, row));
  PF_RETURN_IF_ERROR(CheckCache(c, a, sizes, /*keys=*/true));
  PF_RETURN_IF_ERROR(CheckCache(c, a, sizes, /*keys=*/false));
  if (c.has_input(kGqaPastKey) && c.input_shape(kGqaPastKey) != nullptr) {
    const Shape* value = c.input_shape(kGqaPastValue);
    if (value != nullptr && Differ((*c.input_shape(kGqaPastKey))[2], (*value)[2])) {
      return c.InputError(kGqaPastValue, "expected as many rows as past_key");
    }
  }
  PF_RETURN_IF_ERROR(CheckOptional(c, a, sizes));
  PF_RETURN_IF_ERROR(CheckRotation(c, a, sizes));
  c.SetOutput(0, type, Shape({sizes.batch, sizes.q_len, sizes.head_size * Dim(a.q_heads)}));
  const Dim rows = PresentRows(c, a);
  for (int i = 1; i < std::min(c.num_outputs(), 3); ++i) {
    if (!c.has_output(i)) continue;
    const bool four_bits = a.bits == 4 && (i == 1 ? a.k_scales : a.v_scales) != KvScales::kNone;
    const Dim stored = four_bits ? (sizes.head_size + Dim(1)).FloorDiv(Dim(2)) : sizes.head_size;
    c.SetOutput(i, types[i], Shape({sizes.batch, Dim(a.kv_heads), rows, stored}));
  }
  return absl::OkStatus();
}

absl::Status ValidateGqa(const KernelArgs& args) {
  const int64_t total = IntAt(args.input(kGqaTotal), 0);
  constexpr int64_t kMaxRows = int64_t{1} << 31;
  if (total < 0 || total >= kMaxRows) {
    return ValueError(args, "input 6 \"total_sequence_length\"",
                      StrCat("expected 0 or more, got ", total));
  }
  PF_ASSIGN_OR_RETURN(const GqaCall call, GqaCallOf(args));
  const GqaAttributes& a = call.attributes;
  if (a.windowed_cache && call.present_rows < a.window) {
    return ValueError(
        args, "input 3 \"past_key\"",
        StrCat("expected at least the ", a.window, " rows of the window, got ", call.present_rows));
  }
  for (int64_t b = 0; b < call.batch; ++b) PF_RETURN_IF_ERROR(CheckSequence(args, call, b, total));
  const TensorArg& bias = args.input(kGqaBias);
  if (bias.present() && bias.dims[3] < total) {
    return ValueError(args, "input 10 \"attention_bias\"",
                      StrCat("expected ", total, " keys, got ", bias.dims[3]));
  }
  PF_RETURN_IF_ERROR(CheckScaleValues(args, kGqaKScale, "k_scale"));
  PF_RETURN_IF_ERROR(CheckScaleValues(args, kGqaVScale, "v_scale"));
  return CheckPositions(args, call);
}

}  // namespace pagefuse::microsoft_ops
