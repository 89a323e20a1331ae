// Shape inference of PagedAttention, and its checks of types and shapes.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_join.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/dim_checks.h"

namespace pagefuse {
namespace {

absl::Status CheckQueryType(const ShapeContext& c, const PagedAttentionAttributes& a) {
  const DataType type = c.input_type(kPaQuery);
  if (type == DataType::kUndefined) return absl::OkStatus();
  if (type == DataType::kUint8 && !a.query_is_f8_twin) {
    return c.InputError(kPaQuery,
                        "a uint8 query needs attribute \"query_type\" = \"float8e4m3fn\"");
  }
  const bool is_f8 = a.ComputeType(type) == DataType::kFloat8E4M3FN;
  if (a.query_is_f8_twin && !is_f8) {
    return c.InputError(kPaQuery, StrCat("expected the type of attribute \"query_type\", "
                                         "float8e4m3fn or uint8, got ",
                                         DataTypeName(type)));
  }
  if (!is_f8) return absl::OkStatus();
  if (a.mode != KvQuantMode::kFp8PerTensor) {
    return c.InputError(kPaQuery,
                        StrCat("a float8e4m3fn query needs kv_quant_mode \"fp8_per_tensor\", "
                               "got \"",
                               KvQuantModeName(a.mode), "\""));
  }
  if (a.output_dtype == DataType::kUndefined) {
    return c.AttributeError("output_dtype", "is missing: a float8e4m3fn query needs it");
  }
  return absl::OkStatus();
}

absl::Status CheckCacheType(const ShapeContext& c, const PagedAttentionAttributes& a, int input) {
  const DataType type = c.input_type(input);
  if (type == DataType::kUndefined) return absl::OkStatus();
  const absl::StatusOr<CacheFormat> format = CacheFormat::Make(a.mode, type);
  return format.ok() ? absl::OkStatus() : c.InputError(input, StdView(format.status().message()));
}

absl::Status CheckOutputType(const ShapeContext& c, const PagedAttentionAttributes& a) {
  const bool is_f8 =
      a.output_dtype == DataType::kFloat8E4M3FN || a.output_dtype == DataType::kUint8;
  const bool scaled = c.has_input(kPaOutputScale);
  if (is_f8 && !scaled) {
    return c.InputError(kPaOutputScale, StrCat("is missing: output_dtype ",
                                               DataTypeName(a.output_dtype), " needs it"));
  }
  if (scaled && !is_f8 && a.output_dtype != DataType::kUndefined) {
    return c.AttributeError("output_dtype",
                            StrCat("expected float8e4m3fn or uint8 with \"output_scale\", got ",
                                   DataTypeName(a.output_dtype)));
  }
  return absl::OkStatus();
}

absl::Status CheckPresent(const ShapeContext& c, const PagedAttentionAttributes& a) {
  const auto need = [&](int input, std::string_view by) {
    if (c.has_input(input)) return absl::OkStatus();
    return c.InputError(input, StrCat("is missing: ", by, " needs it"));
  };
  const std::string mode = StrCat("kv_quant_mode \"", KvQuantModeName(a.mode), "\"");
  if (a.mode == KvQuantMode::kFp8PerTensor) {
    PF_RETURN_IF_ERROR(need(kPaKScale, mode));
    PF_RETURN_IF_ERROR(need(kPaVScale, mode));
  }
  if (a.has_row_scales()) {
    PF_RETURN_IF_ERROR(need(kPaKScaleCache, mode));
    PF_RETURN_IF_ERROR(need(kPaVScaleCache, mode));
  }
  if (a.mode == KvQuantMode::kInt4PerTokenHead) PF_RETURN_IF_ERROR(need(kPaRhtSigns, mode));
  if (a.ComputeType(c.input_type(kPaQuery)) == DataType::kFloat8E4M3FN) {
    PF_RETURN_IF_ERROR(need(kPaQScale, "a float8e4m3fn query"));
  }
  return absl::OkStatus();
}

absl::Status CheckQueryAndCaches(const ShapeContext& c, const Dims& dims, bool int4) {
  PF_RETURN_IF_ERROR(dims.Rank(kPaQuery, 3));
  PF_RETURN_IF_ERROR(dims.Rank(kPaKeyCache, 4));
  PF_RETURN_IF_ERROR(dims.Rank(kPaValueCache, 4));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(kPaQuery, 2));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(kPaKeyCache, 1));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(kPaKeyCache, 2));
  for (int axis = 0; axis < 4; ++axis) {
    PF_RETURN_IF_ERROR(
        dims.Equal(kPaValueCache, axis, dims.Of(kPaKeyCache, axis), "\"key_cache\""));
  }
  const std::optional<int64_t> heads = dims.Of(kPaQuery, 1).constant();
  const std::optional<int64_t> kv_heads = dims.Of(kPaKeyCache, 2).constant();
  if (heads && kv_heads && *heads % *kv_heads != 0) {
    return c.InputError(kPaQuery, StrCat("expected a multiple of the ", *kv_heads,
                                         " heads of \"key_cache\", got ", *heads, " heads"));
  }
  Dim row = dims.Of(kPaQuery, 2);
  if (!int4) return dims.Equal(kPaKeyCache, 3, row, "\"query\"");
  if (!row.is_constant()) return absl::OkStatus();
  const int64_t size = *row.constant();
  if (size < 2 || (size & (size - 1)) != 0) {
    return c.InputError(kPaQuery, StrCat("expected a head size that is a power of two for "
                                         "kv_quant_mode \"int4_per_token_head\", got ",
                                         size));
  }
  return dims.Equal(kPaKeyCache, 3, Dim(size / 2), "\"query\" (two elements a byte)");
}

absl::Status CheckBatch(const ShapeContext& c, const Dims& dims) {
  PF_RETURN_IF_ERROR(CheckPagedBatch(c, kPagedAttentionBatch));
  const Dim batch = dims.Of(kPaSeqLens, 0);
  if (c.has_input(kPaMmPrefixRange)) {
    PF_RETURN_IF_ERROR(dims.Rank(kPaMmPrefixRange, 3));
    PF_RETURN_IF_ERROR(dims.Equal(kPaMmPrefixRange, 0, batch, "\"seq_lens\""));
    PF_RETURN_IF_ERROR(dims.Equal(kPaMmPrefixRange, 2, Dim(2), "a pair of positions"));
  }
  if (c.has_input(kPaCausalFlags)) {
    PF_RETURN_IF_ERROR(dims.Rank(kPaCausalFlags, 1));
    PF_RETURN_IF_ERROR(dims.Equal(kPaCausalFlags, 0, batch, "\"seq_lens\""));
  }
  return absl::OkStatus();
}

absl::Status CheckExtras(const ShapeContext& c, const Dims& dims) {
  for (int input : {kPaKScale, kPaVScale, kPaQScale, kPaOutputScale}) {
    if (c.has_input(input)) PF_RETURN_IF_ERROR(dims.Scalar(input));
  }
  for (int input : {kPaKScaleCache, kPaVScaleCache}) {
    if (!c.has_input(input)) continue;
    PF_RETURN_IF_ERROR(dims.Rank(input, 3));
    for (int axis = 0; axis < 3; ++axis) {
      PF_RETURN_IF_ERROR(dims.Equal(input, axis, dims.Of(kPaKeyCache, axis), "\"key_cache\""));
    }
  }
  for (int input : {kPaHeadSink, kPaAlibiSlopes}) {
    if (!c.has_input(input)) continue;
    PF_RETURN_IF_ERROR(dims.Rank(input, 1));
    PF_RETURN_IF_ERROR(dims.Equal(input, 0, dims.Of(kPaQuery, 1), "\"query\""));
  }
  if (c.has_input(kPaQqBias)) {
    PF_RETURN_IF_ERROR(dims.Rank(kPaQqBias, 2));
    PF_RETURN_IF_ERROR(dims.Equal(kPaQqBias, 1, dims.Of(kPaQqBias, 0), "its first dim"));
  }
  if (c.has_input(kPaRhtSigns)) {
    PF_RETURN_IF_ERROR(dims.Rank(kPaRhtSigns, 1));
    PF_RETURN_IF_ERROR(dims.Equal(kPaRhtSigns, 0, dims.Of(kPaQuery, 2), "\"query\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPagedBatch(const ShapeContext& c, const PagedBatchPorts& ports) {
  const Dims dims(c);
  PF_RETURN_IF_ERROR(dims.Rank(ports.seq_lens, 1));
  PF_RETURN_IF_ERROR(dims.Rank(ports.block_table, 2));
  const Dim batch = dims.Of(ports.seq_lens, 0);
  if (ports.query_start_loc >= 0 && c.has_input(ports.query_start_loc)) {
    PF_RETURN_IF_ERROR(dims.Rank(ports.query_start_loc, 1));
    PF_RETURN_IF_ERROR(dims.Equal(ports.query_start_loc, 0, batch + Dim(1),
                                  "\"seq_lens\" (one more than sequences)"));
  }
  return dims.Equal(ports.block_table, 0, batch, "\"seq_lens\"");
}

absl::Status InferPagedAttention(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes a, ParsePagedAttention(c.node()));
  PF_RETURN_IF_ERROR(CheckQueryType(c, a));
  PF_RETURN_IF_ERROR(CheckCacheType(c, a, kPaKeyCache));
  PF_RETURN_IF_ERROR(CheckCacheType(c, a, kPaValueCache));
  PF_RETURN_IF_ERROR(CheckOutputType(c, a));
  PF_RETURN_IF_ERROR(CheckPresent(c, a));
  const Dims dims(c);
  PF_RETURN_IF_ERROR(CheckQueryAndCaches(c, dims, a.mode == KvQuantMode::kInt4PerTokenHead));
  PF_RETURN_IF_ERROR(CheckBatch(c, dims));
  PF_RETURN_IF_ERROR(CheckExtras(c, dims));

  std::optional<Shape> output, lse;
  if (const Shape* query = c.input_shape(kPaQuery)) {
    output = *query;
    lse = Shape{(*query)[1], (*query)[0]};
  }
  const DataType query_type = c.input_type(kPaQuery);
  if (query_type != DataType::kUndefined || a.output_dtype != DataType::kUndefined) {
    c.SetOutput(0, a.OutputType(query_type, c.has_input(kPaOutputScale)), output);
  } else {
    c.SetOutput(0, DataType::kUndefined, output);
  }
  c.SetOutput(1, DataType::kFloat, lse);
  return absl::OkStatus();
}

}  // namespace pagefuse
