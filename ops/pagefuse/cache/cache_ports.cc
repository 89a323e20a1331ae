// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"

#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

absl::Status CheckType(const ShapeContext& c, int cache, const CacheFormat& format) {
  const DataType type = c.input_type(cache);
  if (type == DataType::kUndefined) return absl::OkStatus();
  const absl::Status fits = format.StoredAs(type).status();
  return fits.ok() ? fits : c.InputError(cache, StdView(fits.message()));
}

// What `parse` makes of an attribute.
template <class Parse>
auto Parsed(const Node& node, std::string_view attribute, std::string_view fallback,
            const Parse& parse) -> decltype(parse(fallback)) {
  if (node.attribute(attribute) == nullptr) return parse(fallback);
  PF_ASSIGN_OR_RETURN(const std::string text, node.StringAttribute(attribute, fallback));
  auto parsed = parse(text);
  if (parsed.ok()) return parsed;
  return AttributeError(node, attribute, StdView(parsed.status().message()));
}

}  // namespace

absl::StatusOr<CacheFormat> ReadCacheFormat(const Node& node) {
  CacheFormat format;
  PF_ASSIGN_OR_RETURN(format.mode, Parsed(node, "kv_quant_mode", "none", ParseKvQuantMode));
  PF_ASSIGN_OR_RETURN(format.int8_rounding,
                      Parsed(node, "int8_rounding", "half_even", ParseInt8Rounding));
  return format;
}

absl::Status CheckCachePorts(const ShapeContext& c, const CachePorts& ports) {
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(c.node()));
  PF_RETURN_IF_ERROR(CheckType(c, ports.key_cache, format));
  PF_RETURN_IF_ERROR(CheckType(c, ports.value_cache, format));
  const auto need = [&](bool needed, int input) {
    if (!needed || c.has_input(input)) return absl::OkStatus();
    return c.InputError(input, StrCat("is missing with kv_quant_mode = ", format.name()));
  };
  PF_RETURN_IF_ERROR(need(format.has_tensor_scale(), ports.k_scale));
  PF_RETURN_IF_ERROR(need(format.has_tensor_scale(), ports.v_scale));
  PF_RETURN_IF_ERROR(need(format.has_row_scales(), ports.k_scale_cache));
  PF_RETURN_IF_ERROR(need(format.has_row_scales(), ports.v_scale_cache));
  if (format.needs_signs() && ports.rht_signs < 0) {
    return c.AttributeError("kv_quant_mode", StrCat(format.name(), " is not a mode of this op"));
  }
  return need(format.needs_signs(), ports.rht_signs);
}

CacheRows RowsOfCache(const CacheFormat& format, int64_t head_size, const TensorArg& cache,
                      const TensorArg& scales) {
  const CacheShape shape = {cache.dim(0), cache.dim(1), cache.dim(2), head_size};
  CacheRows rows = DenseRows(format, shape, cache.data, scales.data);
  rows.data_strides.block = cache.block_bytes();
  if (rows.scales != nullptr) rows.scale_strides.block = scales.block_bytes();
  return rows;
}

SizeDef::ComputeFn StoredSize(std::string_view row, int source) {
  return [row = std::string(row), source](const ShapeContext& c) -> absl::StatusOr<Dim> {
    PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(c.node()));
    const Dim& size = c.size(row);
    const std::optional<int64_t> number = size.constant();
    if (!number) return format.row().code_bits == 8 ? size : Dim::Unknown();
    if (format.TakesSize(*number)) return Dim(format.StoredElements(*number));
    return c.InputError(source, StrCat("expected rows of a power of two with kv_quant_mode = ",
                                       format.name(), ", got ", c.input_shape(source)->ToString()));
  };
}

}  // namespace pagefuse
