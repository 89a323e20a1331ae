// Shape inference of the cache inserts: every check that needs no contents.
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// The inputs of one side by number, and what messages call them.
struct Side {
  int source, cache, scale, scale_cache;
  const char* source_name;
};

// Checks the cache of one side against its source: [NB, BS, Hk, D] against [T', Hk, D].
absl::Status CheckCache(const ShapeContext& c, const Side& side, const CacheFormat& format) {
  PF_RETURN_IF_ERROR(CheckRank(c, side.source, 3));
  PF_RETURN_IF_ERROR(CheckRank(c, side.cache, 4));
  const Shape* source = c.input_shape(side.source);
  const Shape* cache = c.input_shape(side.cache);
  if (source == nullptr || cache == nullptr) return absl::OkStatus();
  Dim stored = (*source)[2];
  if (format.needs_signs() && stored.is_constant()) {
    const int64_t size = *stored.constant();
    if (size < 2 || !std::has_single_bit(static_cast<uint64_t>(size))) {
      return c.InputError(
          side.source,
          absl::StrCat("expected a head size that is a power of two, got ", source->ToString()));
    }
    stored = Dim(format.StoredElements(size));
  } else if (format.needs_signs()) {
    stored = Dim::Unknown();
  }
  if (!Differ((*cache)[2], (*source)[1]) && !Differ((*cache)[3], stored)) return absl::OkStatus();
  return c.InputError(side.cache,
                      absl::StrCat("expected [NB, BS, ", (*source)[1].ToString(), ", ",
                                   stored.ToString(), "] for \"", side.source_name, "\" ",
                                   source->ToString(), ", got ", cache->ToString()));
}

// A scale for the tensor: [] or [1], or one for each head.
absl::Status CheckTensorScale(const ShapeContext& c, const Side& side) {
  const Shape* scale = c.input_shape(side.scale);
  const Shape* source = c.input_shape(side.source);
  if (scale == nullptr || scale->rank() == 0) return absl::OkStatus();
  if (scale->rank() == 1) {
    const Dim& count = (*scale)[0];
    if (!Differ(count, Dim(1)) || source == nullptr || !Differ(count, (*source)[1])) {
      return absl::OkStatus();
    }
  }
  return c.InputError(side.scale, absl::StrCat("expected [], [1] or one for each head of \"",
                                               side.source_name, "\", got ", scale->ToString()));
}

// A float scale for each row: [NB, BS, Hk].
absl::Status CheckScaleCache(const ShapeContext& c, const Side& side) {
  PF_RETURN_IF_ERROR(CheckRank(c, side.scale_cache, 3));
  const Shape* scales = c.input_shape(side.scale_cache);
  const Shape* cache = c.input_shape(side.cache);
  if (scales == nullptr || cache == nullptr) return absl::OkStatus();
  for (int i = 0; i < 3; ++i) {
    if (!Differ((*scales)[i], (*cache)[i])) continue;
    const Shape expected = {(*cache)[0], (*cache)[1], (*cache)[2]};
    return c.InputError(side.scale_cache,
                        absl::StrCat("expected ", expected.ToString(), " for the cache ",
                                     cache->ToString(), ", got ", scales->ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckPresence(const ShapeContext& c, int input, bool needed, KvQuantMode mode) {
  if (!needed || c.has_input(input)) return absl::OkStatus();
  return c.InputError(input, absl::StrCat("is required by kv_quant_mode \"",
                                          std::string(KvQuantModeName(mode)), "\""));
}

// Scale caches come back exactly where they are written: an update that no output shows would be
// lost.
absl::Status CheckScaleOutputs(const ShapeContext& c, int first, const CacheFormat& format) {
  const char* names[] = {"k_scale_cache_out", "v_scale_cache_out"};
  for (int i = 0; i < 2; ++i) {
    if (c.has_output(first + 2 + i) == format.has_row_scales()) continue;
    return c.Error(absl::StrCat("output ", first + 2 + i, " \"", names[i],
                                "\": ", format.has_row_scales() ? "is required" : "does not exist",
                                " with kv_quant_mode \"", std::string(KvQuantModeName(format.mode)),
                                "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckSide(const ShapeContext& c, const Side& side, const CacheFormat& format) {
  PF_RETURN_IF_ERROR(CheckCache(c, side, format));
  PF_RETURN_IF_ERROR(CheckPresence(c, side.scale, format.has_tensor_scale(), format.mode));
  PF_RETURN_IF_ERROR(CheckTensorScale(c, side));
  PF_RETURN_IF_ERROR(CheckPresence(c, side.scale_cache, format.has_row_scales(), format.mode));
  return CheckScaleCache(c, side);
}

// What holds between the ports of keys, values and slots.
absl::Status CheckTogether(const ShapeContext& c, const CacheInsertPorts& ports) {
  PF_RETURN_IF_ERROR(CheckRank(c, ports.slot_mapping, 1));
  const Shape* slots = c.input_shape(ports.slot_mapping);
  for (const int source : {ports.key, ports.value}) {
    const Shape* shape = c.input_shape(source);
    if (slots == nullptr || shape == nullptr) continue;
    const auto tokens = (*slots)[0].constant();
    const auto rows = (*shape)[0].constant();
    if (!tokens || !rows || *tokens <= *rows) continue;
    return c.InputError(ports.slot_mapping,
                        absl::StrCat("expected at most ", *rows, " slots for \"",
                                     source == ports.key ? "key" : "value", "\" ",
                                     shape->ToString(), ", got ", slots->ToString()));
  }
  const Shape* key_cache = c.input_shape(ports.key_cache);
  const Shape* value_cache = c.input_shape(ports.value_cache);
  for (int i = 0; key_cache != nullptr && value_cache != nullptr && i < 3; ++i) {
    if (!Differ((*key_cache)[i], (*value_cache)[i])) continue;
    return c.InputError(ports.value_cache,
                        absl::StrCat("expected blocks and heads as \"key_cache\" ",
                                     key_cache->ToString(), ", got ", value_cache->ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckSigns(const ShapeContext& c, const CacheInsertPorts& ports,
                        const CacheFormat& format) {
  if (!format.needs_signs()) return absl::OkStatus();
  if (ports.rht_signs < 0) {
    return c.AttributeError("kv_quant_mode", "int4_per_token_head is not a mode of this op");
  }
  PF_RETURN_IF_ERROR(CheckPresence(c, ports.rht_signs, true, format.mode));
  PF_RETURN_IF_ERROR(CheckRank(c, ports.rht_signs, 1));
  const Shape* signs = c.input_shape(ports.rht_signs);
  for (const int source : {ports.key, ports.value}) {
    if (IsFloat8(c.input_type(source)) || c.input_type(source) == DataType::kUint8) {
      return c.InputError(source,
                          "expected type float, float16 or bfloat16 for mode "
                          "\"int4_per_token_head\"");
    }
    const Shape* shape = c.input_shape(source);
    if (signs == nullptr || shape == nullptr || !Differ((*signs)[0], (*shape)[2])) continue;
    return c.InputError(ports.rht_signs,
                        absl::StrCat("expected [", (*shape)[2].ToString(), "] for \"",
                                     source == ports.key ? "key" : "value", "\" ",
                                     shape->ToString(), ", got ", signs->ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CacheFormat> FormatOf(const ShapeContext& c, int cache, KvQuantMode mode) {
  if (c.input_type(cache) == DataType::kUndefined) return CacheFormat{.mode = mode};
  absl::StatusOr<CacheFormat> format = CacheFormat::Make(mode, c.input_type(cache));
  if (!format.ok()) return c.InputError(cache, std::string(format.status().message()));
  return format;
}

}  // namespace

absl::Status InferCacheInsert(ShapeContext& c, const CacheInsertPorts& ports) {
  PF_ASSIGN_OR_RETURN(const CacheInsertMode mode, ReadCacheInsertMode(c.node()));
  const Side key = {ports.key, ports.key_cache, ports.k_scale, ports.k_scale_cache, "key"};
  const Side value = {ports.value, ports.value_cache, ports.v_scale, ports.v_scale_cache, "value"};
  PF_ASSIGN_OR_RETURN(const CacheFormat key_format, FormatOf(c, key.cache, mode.mode));
  PF_ASSIGN_OR_RETURN(const CacheFormat value_format, FormatOf(c, value.cache, mode.mode));
  PF_RETURN_IF_ERROR(CheckSide(c, key, key_format));
  PF_RETURN_IF_ERROR(CheckSide(c, value, value_format));
  PF_RETURN_IF_ERROR(CheckTogether(c, ports));
  PF_RETURN_IF_ERROR(CheckSigns(c, ports, key_format));
  PF_RETURN_IF_ERROR(CheckScaleOutputs(c, ports.first_output, key_format));
  SetSameOutput(c, ports.first_output, ports.key_cache);
  SetSameOutput(c, ports.first_output + 1, ports.value_cache);
  if (key_format.has_row_scales()) {
    SetSameOutput(c, ports.first_output + 2, ports.k_scale_cache);
    SetSameOutput(c, ports.first_output + 3, ports.v_scale_cache);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
