// SPDX-License-Identifier: Apache-2.0
// Shapes and values of PagedAttention.
#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/attention_checks.h"
#include "pagefuse/ops/microsoft/paged_attention.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// What is symbolic of a call.
struct Sizes {
  Dim tokens, head_size, v_size;
  bool packed = false, latent = false;
};

absl::StatusOr<Sizes> SizesOf(const ShapeContext& c, const GqaAttributes& a,
                              const MsPagedLayout& layout) {
  const Shape& query = *c.input_shape(kMspQuery);
  if (query.rank() != 2) {
    return c.InputError(kMspQuery, StrCat("expected rank 2, got ", query.ToString()));
  }
  Sizes sizes;
  sizes.packed = !c.has_input(kMspKey);
  sizes.latent = !sizes.packed && !c.has_input(kMspValue);
  const int64_t heads = a.q_heads + (sizes.packed ? 2 * a.kv_heads : 0);
  PF_RETURN_IF_ERROR(CheckWidth(c, kMspQuery, query[1], heads));
  sizes.tokens = query[0];
  sizes.head_size = query[1].FloorDiv(Dim(heads));
  sizes.v_size = layout.v_size > 0 ? Dim(layout.v_size) : sizes.head_size;
  return sizes;
}

absl::Status CheckLayout(const ShapeContext& c, const GqaAttributes& a, const MsPagedLayout& layout,
                         const Sizes& sizes) {
  if (layout.latent && !sizes.latent) {
    return c.AttributeError("kv_cache_layout", "LATENT takes a key and no value");
  }
  if (sizes.packed && c.has_input(kMspValue)) return c.Error("value without key");
  if (sizes.latent == c.has_input(kMspValueCache)) {
    return c.Error(sizes.latent ? "value_cache without value" : "value_cache is missing");
  }
  const std::optional<int64_t> size = sizes.head_size.constant();
  const std::optional<int64_t> v_size = sizes.v_size.constant();
  const bool differ = size && v_size && *size != *v_size;
  if (layout.v_size < 0 || (differ && *v_size > *size)) {
    return c.AttributeError("v_head_size", StrCat("expected 0 to ", sizes.head_size.ToString(),
                                                  ", got ", layout.v_size));
  }
  if (!differ) return absl::OkStatus();
  if (!sizes.latent) return c.AttributeError("v_head_size", "differs only where values are latent");
  if (a.scale == 0) return c.AttributeError("scale", "is required where v_head_size is not D");
  return absl::OkStatus();
}

absl::Status CheckCache(const ShapeContext& c, const GqaAttributes& a, const Sizes& sizes,
                        bool keys) {
  const int i = keys ? kMspKeyCache : kMspValueCache;
  if (!c.has_input(i)) return absl::OkStatus();
  const KvScales kind = keys ? a.k_scales : a.v_scales;
  const int scale = keys ? kMspKScale : kMspVScale;
  if ((kind != KvScales::kNone) != c.has_input(scale)) {
    return c.Error(StrCat(keys ? "k_scale" : "v_scale", " and the quantisation come together"));
  }
  const bool four_bits = kind != KvScales::kNone && a.bits == 4;
  const DataType type = c.input_type(i);
  const bool fits = kind == KvScales::kNone
                        ? IsFloatingPoint(type) && type != DataType::kFloat8E4M3FN
                    : four_bits ? type == DataType::kUint8
                                : type == DataType::kInt8 || type == DataType::kFloat8E4M3FN;
  if (!fits && type != DataType::kUndefined) {
    return c.InputError(i, StrCat("type ", DataTypeName(type), " does not fit the quantisation"));
  }
  const Shape* scales = c.input_shape(scale);
  const auto dims = scales != nullptr ? scales->constant() : std::nullopt;
  const std::optional<int64_t> size = sizes.head_size.constant();
  const int64_t count = kind == KvScales::kPerChannel && size ? a.kv_heads * *size : 1;
  if (dims && size && ElementCount(*dims) != count) {
    return c.InputError(scale, StrCat("expected ", count, " scales, got ", scales->ToString()));
  }
  const Dim stored = four_bits ? (sizes.head_size + Dim(1)).FloorDiv(Dim(2)) : sizes.head_size;
  const Shape* cache = c.input_shape(i);
  if (cache != nullptr && cache->rank() == 4 && (*cache)[1].constant() == 0) {
    return c.InputError(i, "expected blocks of at least one token");
  }
  return ExpectShape(c, i, Shape({Dim::Unknown(), Dim::Unknown(), Dim(a.kv_heads), stored}));
}

absl::Status CheckTables(const ShapeContext& c, const Sizes& sizes) {
  const Shape* past = c.input_shape(kMspPast);
  if (past == nullptr) return absl::OkStatus();
  PF_RETURN_IF_ERROR(ExpectShape(c, kMspPast, Shape({Dim::Unknown()})));
  const Dim batch = (*past)[0];
  PF_RETURN_IF_ERROR(ExpectShape(c, kMspCumulative, Shape({batch + Dim(1)})));
  PF_RETURN_IF_ERROR(ExpectShape(c, kMspBlockTable, Shape({batch, Dim::Unknown()})));
  return ExpectShape(c, kMspSlots, Shape({sizes.tokens}));
}

absl::Status CheckWeights(const ShapeContext& c, const GqaAttributes& a,
                          const MsPagedLayout& layout, const Sizes& sizes) {
  PF_RETURN_IF_ERROR(CheckHeadWeights(c, {kMspHeadSink, kMspQNormWeight, kMspKNormWeight},
                                      a.q_heads, sizes.head_size));
  if (!a.rotates) return absl::OkStatus();
  if (!c.has_input(kMspCos) || !c.has_input(kMspSin)) {
    return c.Error("do_rotary needs cos_cache and sin_cache");
  }
  const Shape* cosines = c.input_shape(kMspCos);
  if (cosines == nullptr) return absl::OkStatus();
  if (cosines->rank() != 2) {
    return c.InputError(kMspCos, StrCat("expected rank 2, got ", cosines->ToString()));
  }
  const std::optional<int64_t> half = (*cosines)[1].constant();
  const std::optional<int64_t> size = sizes.head_size.constant();
  if (layout.rotary_offset < 0 ||
      (half && size &&
       (layout.rotary_offset > *size || 2 * *half > *size - layout.rotary_offset))) {
    return c.AttributeError("rotary_offset",
                            StrCat("rotated channels from ", layout.rotary_offset,
                                   " on do not fit a head of ", sizes.head_size.ToString()));
  }
  return ExpectShape(c, kMspSin, *cosines);
}

absl::Status CheckSequences(const KernelArgs& args, const MsPagedCall& call) {
  int64_t before = 0;
  for (int64_t b = 0; b <= call.batch; ++b) {
    const int64_t start = call.cumulative[b];
    const bool ends = b < call.batch || start == call.tokens;
    if (start < before || (b == 0 && start != 0) || start > call.tokens || !ends) {
      return ValueError(
          args, "input 5 \"cumulative_sequence_length\"",
          StrCat("expected ", call.tokens, " tokens in ascending order, got ", start, " at ", b));
    }
    before = start;
  }
  for (int64_t b = 0; b < call.batch; ++b) {
    const int64_t capacity = call.table_columns * call.block_size;
    if (call.past[b] >= 0 && call.past[b] + call.queries(b) <= capacity) continue;
    return ValueError(args, "input 6 \"past_seqlens\"",
                      StrCat("sequence ", b, " has ", call.past[b], " tokens and ", call.queries(b),
                             " new ones, block_table has room for ", capacity));
  }
  return absl::OkStatus();
}

absl::Status CheckBlocks(const KernelArgs& args, const MsPagedCall& call) {
  for (int64_t b = 0; b < call.batch; ++b) {
    const int64_t total = call.past[b] + call.queries(b);
    for (int64_t m = 0; m * call.block_size < total; ++m) {
      const int64_t block = call.table[b * call.table_columns + m];
      if (block >= -1 && block < call.num_blocks) continue;
      return absl::OutOfRangeError(StrCat(args.node->Description(),
                                          ": input 7 \"block_table\": ", "block ", block,
                                          " of sequence ", b, " is not among ", call.num_blocks));
    }
    for (int64_t i = 0; i < call.queries(b); ++i) {
      const int64_t slot = call.WriteSlot(b, i);
      const bool may_skip = call.slots != nullptr;
      if (slot >= (may_skip ? -1 : 0) && slot < call.num_blocks * call.block_size) continue;
      return absl::OutOfRangeError(StrCat(
          args.node->Description(),
          may_skip ? ": input 10 \"slot_mapping\": " : ": input 7 \"block_table\": ", "token ", i,
          " of sequence ", b, " has slot ", slot));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const KernelArgs& args, const MsPagedCall& call) {
  if (!call.attributes.rotates) return absl::OkStatus();
  const int64_t rows = args.input(kMspCos).dims[0];
  for (int64_t b = 0; b < call.batch; ++b) {
    if (call.queries(b) == 0 || call.past[b] + call.queries(b) <= rows) continue;
    return ValueError(
        args, "input 8 \"cos_cache\"",
        StrCat("position ", call.past[b] + call.queries(b) - 1, " is not in its ", rows, " rows"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferMsPaged(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const GqaAttributes a, GqaAttributesOf(c.node()));
  if (a.window == 0) {
    return c.AttributeError("local_window_size", "expected -1, or 1 or more, got 0");
  }
  PF_ASSIGN_OR_RETURN(const MsPagedLayout layout, MsPagedLayoutOf(c.node()));
  c.SetOutput(0, c.input_type(kMspQuery), std::nullopt);
  for (int i = 1; i < std::min(c.num_outputs(), 3); ++i) {
    if (!c.has_output(i)) continue;
    const int cache = i == 1 ? kMspKeyCache : kMspValueCache;
    if (!c.has_input(cache)) return c.Error("value_cache_out without value_cache");
    const Shape* shape = c.input_shape(cache);
    c.SetOutput(i, c.input_type(cache), CopyOf(shape));
  }
  if (c.input_shape(kMspQuery) == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(c, a, layout));
  PF_RETURN_IF_ERROR(CheckLayout(c, a, layout, sizes));
  const Shape row({sizes.tokens, sizes.head_size * Dim(a.kv_heads)});
  PF_RETURN_IF_ERROR(ExpectShape(c, kMspKey, row));
  PF_RETURN_IF_ERROR(ExpectShape(c, kMspValue, row));
  PF_RETURN_IF_ERROR(CheckCache(c, a, sizes, /*keys=*/true));
  PF_RETURN_IF_ERROR(CheckCache(c, a, sizes, /*keys=*/false));
  if (c.has_input(kMspValueCache) && c.input_shape(kMspKeyCache) != nullptr) {
    const Shape& keys = *c.input_shape(kMspKeyCache);
    PF_RETURN_IF_ERROR(
        ExpectShape(c, kMspValueCache, Shape({keys[0], keys[1], keys[2], Dim::Unknown()})));
  }
  PF_RETURN_IF_ERROR(CheckTables(c, sizes));
  PF_RETURN_IF_ERROR(CheckWeights(c, a, layout, sizes));
  c.SetOutput(0, c.input_type(kMspQuery), Shape({sizes.tokens, sizes.v_size * Dim(a.q_heads)}));
  return absl::OkStatus();
}

absl::Status ValidateMsPaged(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const MsPagedCall call, MsPagedCallOf(args));
  PF_RETURN_IF_ERROR(CheckSequences(args, call));
  PF_RETURN_IF_ERROR(CheckBlocks(args, call));
  PF_RETURN_IF_ERROR(CheckScaleValues(args, kMspKScale, "k_scale"));
  PF_RETURN_IF_ERROR(CheckScaleValues(args, kMspVScale, "v_scale"));
  return CheckPositions(args, call);
}

}  // namespace pagefuse::microsoft_ops
