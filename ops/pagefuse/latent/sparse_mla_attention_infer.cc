// Shape inference of SparseMlaAttention, and its checks of types and shapes.
#include <optional>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/dim_checks.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse {
namespace {

absl::Status Missing(const ShapeContext& c, int input, std::string_view needed_by) {
  return c.InputError(input, StrCat("is missing: ", needed_by, " needs it"));
}

absl::Status Unexpected(const ShapeContext& c, int input, std::string_view why) {
  return c.InputError(input, StrCat("is not expected ", why));
}

// Listed rows or rows of sequences, and nothing of the other.
absl::Status CheckPresent(const ShapeContext& c) {
  if (!c.has_input(kSmIndices)) {
    if (!c.has_input(kSmBlockTable)) {
      return Missing(c, kSmIndices, "a call without \"block_table\"");
    }
    for (int input : {kSmSeqLens, kSmQueryStartLoc}) {
      if (!c.has_input(input)) return Missing(c, input, "\"block_table\"");
    }
    for (int input : {kSmTopkLens, kSmExtraCache, kSmExtraIndices, kSmExtraTopkLens}) {
      if (c.has_input(input)) return Unexpected(c, input, "without \"indices\"");
    }
    return absl::OkStatus();
  }
  for (int input : {kSmBlockTable, kSmSeqLens, kSmQueryStartLoc}) {
    if (c.has_input(input)) return Unexpected(c, input, "with \"indices\"");
  }
  if (c.has_input(kSmExtraCache) && !c.has_input(kSmExtraIndices)) {
    return Missing(c, kSmExtraIndices, "\"extra_kv_cache\"");
  }
  if (c.has_input(kSmExtraIndices) && !c.has_input(kSmExtraCache)) {
    return Missing(c, kSmExtraCache, "\"extra_indices\"");
  }
  if (c.has_input(kSmExtraTopkLens) && !c.has_input(kSmExtraIndices)) {
    return Missing(c, kSmExtraIndices, "\"extra_topk_lens\"");
  }
  return absl::OkStatus();
}

absl::Status CheckCacheType(const ShapeContext& c, const SparseMlaAttributes& a, int input) {
  const DataType type = c.input_type(input);
  if (type == DataType::kUndefined) return absl::OkStatus();
  const bool plain = a.format == LatentFormat::kPlain;
  if (plain != (type == DataType::kUint8)) return absl::OkStatus();
  return c.InputError(
      input, StrCat("expected ", plain ? "bfloat16, float16 or float" : "uint8", " for format \"",
                    LatentFormatName(a.format), "\", got ", DataTypeName(type)));
}

absl::Status CheckCacheShape(const ShapeContext& c, const SparseMlaAttributes& a, int input) {
  const Shape* shape = c.input_shape(input);
  if (shape == nullptr) return absl::OkStatus();
  const Dims dims(c);
  if (a.format == LatentFormat::kFp8Ue8m0) {
    PF_RETURN_IF_ERROR(dims.Rank(input, 2));
    const int64_t block_size = input == kSmCache ? a.block_size : a.extra_block_size;
    const std::optional<int64_t> bytes = dims.Of(input, 1).constant();
    const int64_t token = a.grouped().TokenBytes();
    // As a quotient, since the product may overflow.
    if (!bytes || *bytes / token >= block_size) return absl::OkStatus();
    return c.InputError(input, StrCat("expected blocks of at least ", token, " bytes for each of ",
                                      block_size, " tokens, got ", shape->ToString()));
  }
  if (shape->rank() < 2) {
    return c.InputError(input, StrCat("expected at least 2 dims, got ", shape->ToString()));
  }
  const int last = shape->rank() - 1;
  if (a.format == LatentFormat::kPlain) {
    return dims.Equal(input, last, dims.Of(kSmQuery, 2), "\"q\"");
  }
  return dims.Equal(input, last, Dim(a.grouped().TokenBytes()), "format \"fp8_ds_mla\"");
}

absl::Status CheckQuery(const ShapeContext& c, const SparseMlaAttributes& a) {
  const Dims dims(c);
  PF_RETURN_IF_ERROR(dims.Rank(kSmQuery, 3));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(kSmQuery, 2));
  if (a.format != LatentFormat::kPlain) {
    PF_RETURN_IF_ERROR(dims.Equal(kSmQuery, 2, Dim(a.grouped().elements()),
                                  StrCat("format \"", LatentFormatName(a.format), "\"")));
  }
  const std::optional<int64_t> size = dims.Of(kSmQuery, 2).constant();
  if (!size || a.head_dim_v <= *size) return absl::OkStatus();
  return c.AttributeError("head_dim_v", StrCat("expected at most the ", *size,
                                               " elements of a row of \"q\", got ", a.head_dim_v));
}

absl::Status CheckLists(const ShapeContext& c) {
  const Dims dims(c);
  const Dim tokens = dims.Of(kSmQuery, 0);
  for (int input : {kSmIndices, kSmExtraIndices}) {
    if (!c.has_input(input)) continue;
    PF_RETURN_IF_ERROR(dims.Rank(input, 2));
    PF_RETURN_IF_ERROR(dims.Equal(input, 0, tokens, "\"q\""));
  }
  for (int input : {kSmTopkLens, kSmExtraTopkLens}) {
    if (!c.has_input(input)) continue;
    PF_RETURN_IF_ERROR(dims.Rank(input, 1));
    PF_RETURN_IF_ERROR(dims.Equal(input, 0, tokens, "\"q\""));
  }
  if (!c.has_input(kSmSink)) return absl::OkStatus();
  PF_RETURN_IF_ERROR(dims.Rank(kSmSink, 1));
  return dims.Equal(kSmSink, 0, dims.Of(kSmQuery, 1), "\"q\"");
}

absl::Status CheckBatch(const ShapeContext& c) {
  if (!c.has_input(kSmBlockTable)) return absl::OkStatus();
  const Dims dims(c);
  PF_RETURN_IF_ERROR(dims.Rank(kSmBlockTable, 2));
  PF_RETURN_IF_ERROR(dims.Rank(kSmSeqLens, 1));
  PF_RETURN_IF_ERROR(dims.Rank(kSmQueryStartLoc, 1));
  const Dim batch = dims.Of(kSmSeqLens, 0);
  PF_RETURN_IF_ERROR(
      dims.Equal(kSmQueryStartLoc, 0, batch + Dim(1), "\"seq_lens\" (one more than sequences)"));
  PF_RETURN_IF_ERROR(dims.Equal(kSmBlockTable, 0, batch, "\"seq_lens\""));
  // A block has at least one token.
  const Shape* cache = c.input_shape(kSmCache);
  for (int axis = 1; cache != nullptr && axis + 1 < cache->rank(); ++axis) {
    PF_RETURN_IF_ERROR(dims.AtLeastOne(kSmCache, axis));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferSparseMla(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const SparseMlaAttributes a, ParseSparseMla(c.node()));
  PF_RETURN_IF_ERROR(CheckPresent(c));
  PF_RETURN_IF_ERROR(CheckQuery(c, a));
  for (int input : {kSmCache, kSmExtraCache}) {
    if (!c.has_input(input)) continue;
    PF_RETURN_IF_ERROR(CheckCacheType(c, a, input));
    PF_RETURN_IF_ERROR(CheckCacheShape(c, a, input));
  }
  PF_RETURN_IF_ERROR(CheckLists(c));
  PF_RETURN_IF_ERROR(CheckBatch(c));
  std::optional<Shape> out, lse;
  if (const Shape* q = c.input_shape(kSmQuery)) {
    out = Shape{(*q)[0], (*q)[1], Dim(a.head_dim_v)};
    lse = Shape{(*q)[0], (*q)[1]};
  }
  c.SetOutput(0, c.input_type(kSmQuery), out);
  if (c.has_output(1)) c.SetOutput(1, DataType::kFloat, lse);
  return absl::OkStatus();
}

}  // namespace pagefuse
