#include "pagefuse/ops/pagefuse/cache/cache_ports.h"

#include <bit>
#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {
namespace {

absl::Status CheckType(const ShapeContext& c, int cache, KvQuantMode mode) {
  const DataType type = c.input_type(cache);
  if (type == DataType::kUndefined) return absl::OkStatus();
  const absl::Status fits = CacheFormat::Make(mode, type).status();
  return fits.ok() ? fits : c.InputError(cache, StdView(fits.message()));
}

}  // namespace

absl::StatusOr<KvQuantMode> ReadKvQuantMode(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("kv_quant_mode", "none"));
  const absl::StatusOr<KvQuantMode> mode = ParseKvQuantMode(name);
  if (mode.ok()) return mode;
  return absl::InvalidArgumentError(
      StrCat(node.Description(), ": attribute \"kv_quant_mode\": ", mode.status().message()));
}

absl::Status CheckCachePorts(const ShapeContext& c, const CachePorts& ports) {
  PF_ASSIGN_OR_RETURN(const KvQuantMode mode, ReadKvQuantMode(c.node()));
  PF_RETURN_IF_ERROR(CheckType(c, ports.key_cache, mode));
  PF_RETURN_IF_ERROR(CheckType(c, ports.value_cache, mode));
  const CacheFormat format{.mode = mode};
  const auto need = [&](bool needed, int input) {
    if (!needed || c.has_input(input)) return absl::OkStatus();
    return c.InputError(input, StrCat("is missing with kv_quant_mode = ", KvQuantModeName(mode)));
  };
  PF_RETURN_IF_ERROR(need(format.has_tensor_scale(), ports.k_scale));
  PF_RETURN_IF_ERROR(need(format.has_tensor_scale(), ports.v_scale));
  PF_RETURN_IF_ERROR(need(format.has_row_scales(), ports.k_scale_cache));
  PF_RETURN_IF_ERROR(need(format.has_row_scales(), ports.v_scale_cache));
  if (format.needs_signs() && ports.rht_signs < 0) {
    return c.AttributeError("kv_quant_mode",
                            StrCat(KvQuantModeName(mode), " is not a mode of this op"));
  }
  return need(format.needs_signs(), ports.rht_signs);
}

SizeDef::ComputeFn StoredSize(std::string_view row, int source) {
  return [row = std::string(row), source](const ShapeContext& c) -> absl::StatusOr<Dim> {
    PF_ASSIGN_OR_RETURN(const KvQuantMode mode, ReadKvQuantMode(c.node()));
    const CacheFormat format{.mode = mode};
    const Dim& size = c.size(row);
    if (!format.needs_signs()) return size;
    const std::optional<int64_t> number = size.constant();
    if (!number) return Dim::Unknown();
    if (*number >= 2 && std::has_single_bit(static_cast<uint64_t>(*number))) {
      return Dim(format.StoredElements(*number));
    }
    return c.InputError(source,
                        StrCat("expected rows of a power of two with kv_quant_mode = ",
                               KvQuantModeName(mode), ", got ", c.input_shape(source)->ToString()));
  };
}

}  // namespace pagefuse
