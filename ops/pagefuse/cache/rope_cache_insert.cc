// RopeCacheInsert: per-head RMS norm of query and key (optional), RoPE, and the insert of key and
// value into the paged cache, in one pass over the step's tokens. By definition the composition of
// RMSNormalization, RotaryEmbedding and PagedCacheInsert, computed in float and rounded once.
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/numeric/dispatch.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert_body.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Rotary dimension and offset, checked against the head size where that is known.
struct RotaryAttributes {
  int64_t offset = 0;
  int64_t dim = 0;  // 0: all of D
};

absl::StatusOr<RotaryAttributes> ReadRotary(const ShapeContext& c, const Shape* query) {
  RotaryAttributes rotary;
  PF_ASSIGN_OR_RETURN(rotary.dim, c.node().IntAttribute("rotary_embedding_dim", 0));
  PF_ASSIGN_OR_RETURN(rotary.offset, c.node().IntAttribute("rotary_offset", 0));
  if (rotary.offset < 0) {
    return c.AttributeError("rotary_offset",
                            absl::StrCat("expected at least 0, got ", rotary.offset));
  }
  const auto size = query == nullptr ? std::nullopt : (*query)[2].constant();
  if (rotary.dim == 0 && size) rotary.dim = *size;
  if (rotary.dim < 0 || rotary.dim % 2 != 0) {
    return c.AttributeError("rotary_embedding_dim",
                            absl::StrCat("expected an even number of channels, got ", rotary.dim));
  }
  if (size && (rotary.dim > *size || rotary.offset > *size - rotary.dim)) {
    return c.AttributeError(
        "rotary_embedding_dim",
        absl::StrCat("expected rotary_embedding_dim + rotary_offset of at most ", *size, ", got ",
                     rotary.dim, " + ", rotary.offset));
  }
  return rotary;
}

absl::Status CheckTables(const ShapeContext& c, int64_t rotary_dim) {
  const Shape* query = c.input_shape(kRopeQuery);
  const Shape* positions = c.input_shape(kRopePositions);
  if (positions != nullptr &&
      (positions->rank() != 1 || (query != nullptr && Differ((*positions)[0], (*query)[0])))) {
    return c.InputError(
        kRopePositions,
        absl::StrCat("expected one for each token of \"query\", got ", positions->ToString()));
  }
  for (const int input : {kRopeCos, kRopeSin}) {
    const Shape* table = c.input_shape(input);
    if (table == nullptr) continue;
    const bool fits =
        table->rank() == 2 && (rotary_dim == 0 || !Differ((*table)[1], Dim(rotary_dim / 2)));
    if (!fits) {
      return c.InputError(
          input, absl::StrCat("expected [rows, ", rotary_dim / 2, "], got ", table->ToString()));
    }
    if (c.has_input(kRopePositions) || query == nullptr) continue;
    if (!Differ((*table)[0], (*query)[0])) continue;
    return c.InputError(
        input, absl::StrCat("expected a row for each token of \"query\" ", query->ToString(),
                            " where positions are omitted, got ", table->ToString()));
  }
  const Shape* cos = c.input_shape(kRopeCos);
  const Shape* sin = c.input_shape(kRopeSin);
  if (cos == nullptr || sin == nullptr) return absl::OkStatus();
  if (!Differ((*cos)[0], (*sin)[0]) && !Differ((*cos)[1], (*sin)[1])) return absl::OkStatus();
  return c.InputError(kRopeSin, absl::StrCat("expected the shape of \"cos\" ", cos->ToString(),
                                             ", got ", sin->ToString()));
}

absl::Status CheckNorms(const ShapeContext& c) {
  const int weights[] = {kRopeQueryNorm, kRopeKeyNorm};
  for (int i = 0; i < 2; ++i) {
    if (!c.has_input(weights[i]) && c.has_input(weights[1 - i])) {
      return c.InputError(weights[i], "is required with the norm weight of the other side");
    }
    const Shape* weight = c.input_shape(weights[i]);
    const Shape* query = c.input_shape(kRopeQuery);
    if (weight == nullptr) continue;
    const bool fits =
        weight->rank() == 1 && (query == nullptr || !Differ((*weight)[0], (*query)[2]));
    if (fits) continue;
    return c.InputError(weights[i],
                        absl::StrCat("expected [", query == nullptr ? "D" : (*query)[2].ToString(),
                                     "], got ", weight->ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckQuery(const ShapeContext& c) {
  const Shape* query = c.input_shape(kRopeQuery);
  const Shape* key = c.input_shape(kRopePorts.key);
  const Shape* slots = c.input_shape(kRopePorts.slot_mapping);
  if (query == nullptr) return absl::OkStatus();
  if (query->rank() != 3) {
    return c.InputError(kRopeQuery, absl::StrCat("expected rank 3, got ", query->ToString()));
  }
  if (key != nullptr && key->rank() == 3 && Differ((*key)[2], (*query)[2])) {
    return c.InputError(kRopePorts.key, absl::StrCat("expected the head size of \"query\" ",
                                                     query->ToString(), ", got ", key->ToString()));
  }
  if (slots != nullptr && slots->rank() == 1 && Differ((*slots)[0], (*query)[0])) {
    return c.InputError(kRopePorts.slot_mapping,
                        absl::StrCat("expected a slot for each token of \"query\" ",
                                     query->ToString(), ", got ", slots->ToString()));
  }
  return absl::OkStatus();
}

absl::Status InferShapes(ShapeContext& c) {
  PF_RETURN_IF_ERROR(CheckQuery(c));
  PF_ASSIGN_OR_RETURN(const RotaryAttributes rotary, ReadRotary(c, c.input_shape(kRopeQuery)));
  PF_RETURN_IF_ERROR(CheckTables(c, rotary.dim));
  PF_RETURN_IF_ERROR(CheckNorms(c));
  PF_RETURN_IF_ERROR(InferCacheInsert(c, kRopePorts));
  const Shape* query = c.input_shape(kRopeQuery);
  c.SetOutput(0, c.input_type(kRopeQuery),
              query == nullptr ? std::nullopt : std::optional<Shape>(*query));
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidateCacheInsert(args, kRopePorts));
  if (!args.input(kRopePositions).present()) return absl::OkStatus();
  return CheckIndices(args, kRopePositions, args.input(kRopeCos).dim(0), "positions");
}

absl::StatusOr<std::vector<float>> FloatsOf(const TensorArg& tensor) {
  std::vector<float> values(tensor.present() ? tensor.size() : 0);
  if (tensor.present()) {
    PF_RETURN_IF_ERROR(DecodeToFloat(tensor.dtype, tensor.data, tensor.size(), values.data()));
  }
  return values;
}

template <auto compute>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const RopeCall call, MakeRopeCall(args));
  compute(call);
  return absl::OkStatus();
}

// x[0, n) of one head: norm (unless the weight is empty), then rotation, in place.
void NormAndRotate(const RopeCall& call, int64_t token, const std::vector<float>& weight,
                   std::vector<float>& x) {
  if (!weight.empty()) {
    NormRow(weight.data(), call.epsilon, static_cast<int64_t>(x.size()), x.data());
  }
  const int64_t pairs = call.layout.pairs;
  std::vector<float> cos(pairs);
  std::vector<float> sin(pairs);
  const int64_t row = call.table_row(token) * pairs * BitWidth(call.cos.dtype) / 8;
  // The tables are of a float type: never an error.
  DecodeToFloat(call.cos.dtype, call.cos.as<const uint8_t>() + row, pairs, cos.data())
      .IgnoreError();
  DecodeToFloat(call.sin.dtype, call.sin.as<const uint8_t>() + row, pairs, sin.data())
      .IgnoreError();
  RotateRow(call.layout, cos.data(), sin.data(), x.data());
}

}  // namespace

int64_t RopeCall::table_row(int64_t token) const {
  return positions.present() ? IndexAt(positions, token) : token;
}

absl::StatusOr<RopeCall> MakeRopeCall(const KernelArgs& args) {
  RopeCall call;
  call.query = args.input(kRopeQuery);
  call.query_out = args.output(0);
  call.positions = args.input(kRopePositions);
  call.cos = args.input(kRopeCos);
  call.sin = args.input(kRopeSin);
  call.layout.pairs = call.cos.dim(1);
  PF_ASSIGN_OR_RETURN(call.layout.offset, args.node->IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  call.layout.interleaved = interleaved == 1;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", kRopeEpsilon));
  PF_ASSIGN_OR_RETURN(call.q_norm, FloatsOf(args.input(kRopeQueryNorm)));
  PF_ASSIGN_OR_RETURN(call.k_norm, FloatsOf(args.input(kRopeKeyNorm)));
  PF_ASSIGN_OR_RETURN(call.sides, MakeCacheSides(args, kRopePorts));
  call.slots.assign(call.tokens(), -1);
  for (const SlotWrite& write : SlotWrites(args.input(kRopePorts.slot_mapping))) {
    call.slots[write.token] = write.slot;
  }
  return call;
}

void RopeCacheInsertPlain(const RopeCall& call) {
  const int64_t heads = call.query.dim(1);
  const int64_t size = call.query.dim(2);
  const int64_t row_bytes = size * BitWidth(call.query.dtype) / 8;
  std::vector<float> x(size);
  std::vector<SlotWrite> writes;
  for (int64_t t = 0; t < call.tokens(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = (t * heads + head) * row_bytes;
      DecodeToFloat(call.query.dtype, call.query.as<const uint8_t>() + at, size, x.data())
          .IgnoreError();
      NormAndRotate(call, t, call.q_norm, x);
      EncodeFromFloat(call.query.dtype, x.data(), size, call.query_out.as<uint8_t>() + at)
          .IgnoreError();
    }
    if (call.slots[t] < 0) continue;
    writes.push_back({t, call.slots[t]});
    const CacheSide& key = call.sides.key;
    for (int64_t head = 0; head < key.heads; ++head) {
      DecodeToFloat(key.source_type, key.SourceRow(t, head), size, x.data()).IgnoreError();
      NormAndRotate(call, t, call.k_norm, x);
      EncodeRow(key.format, key.Params(head), x.data(), size, key.rows.AtSlot(call.slots[t], head));
    }
  }
  InsertRows({&call.sides.value}, writes);
}

OpDef RopeCacheInsertDef() {
  using enum DataType;
  const auto required = PortKind::kRequired;
  const auto optional = PortKind::kOptional;
  const auto metadata = PortRole::kMetadata;
  return OpDef("pagefuse", "RopeCacheInsert", 1)
      .Doc(
          "Norms (optional) and rotates query and key, and writes key and value into their slots "
          "of a "
          "paged cache. Everything between inputs and results is float, rounded once.")
      .Input("query", "T", "[T, Hq, D]")
      .Input("key", "T", "[T', Hk, D]")
      .Input("value", "T", "[T', Hk, Dv]")
      .Input("key_cache", "C", "[NB, BS, Hk, D]")
      .Input("value_cache", "C", "[NB, BS, Hk, Dv]")
      .Input("slot_mapping", "I", "[T]", required, metadata)
      .Input("positions", "P", "[T]", optional, metadata)
      .Input("cos", "R", "[P, R/2], or [T, R/2] without positions", required, metadata)
      .Input("sin", "R", "as cos", required, metadata)
      .Input("q_norm_weight", "W", "[D]", optional)
      .Input("k_norm_weight", "W", "[D]", optional)
      .Input("k_scale", "float", "[], [1] or [Hk]", optional)
      .Input("v_scale", "float", "[], [1] or [Hk]", optional)
      .Input("k_scale_cache", "float", "[NB, BS, Hk]", optional)
      .Input("v_scale_cache", "float", "[NB, BS, Hk]", optional)
      .Output("query_out", "T", "[T, Hq, D]")
      .Output("key_cache_out", "C", "[NB, BS, Hk, D]")
      .Output("value_cache_out", "C", "[NB, BS, Hk, Dv]")
      .Output("k_scale_cache_out", "float", "[NB, BS, Hk]", optional)
      .Output("v_scale_cache_out", "float", "[NB, BS, Hk]", optional)
      .FlagAttr("interleaved", int64_t{0}, "0: channel i pairs with i + R/2; 1: 2i with 2i + 1")
      .Attr("rotary_embedding_dim", int64_t{0}, "R, the rotated channels; 0: all of D")
      .Attr("rotary_offset", int64_t{0}, "first rotated channel")
      .Attr("epsilon", kRopeEpsilon, "of the norms")
      .Attr("kv_quant_mode", std::string("none"),
            "none, fp8_per_tensor, int8_per_token_head, fp8_per_token_head")
      .Attr("int8_rounding", std::string("half_even"), "half_even or toward_zero")
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("C", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Types("I", {kInt64, kInt32})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kFloat16, kBfloat16})
      .Types("W", {kFloat, kFloat16, kBfloat16})
      .InferShapes(InferShapes)
      .Validate(Validate)
      .Decomposition(RopeCacheInsertBody)
      .Variants(RopeCacheInsertVariants)
      .InPlace(0, kRopeQuery)
      .Alias(1, kRopePorts.key_cache)
      .Alias(2, kRopePorts.value_cache)
      .Alias(3, kRopePorts.k_scale_cache)
      .Alias(4, kRopePorts.v_scale_cache)
      .AddKernel({.name = "reference", .run = Run<RopeCacheInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<RopeCacheInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
