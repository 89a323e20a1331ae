#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"

#include <bit>
#include <cmath>
#include <string>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/dim_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

absl::Status AttributeError(const Node& node, std::string_view attribute, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat(node.Description(), ": attribute \"", attribute, "\": ", what));
}

absl::Status CheckSlotSize(const ShapeContext& c, const TurboQuantPorts& ports,
                           const TurboQuantSizes& sizes, const TurboQuantFormat& format) {
  const std::optional<int64_t> slot = Dims(c).Of(ports.cache, 3).constant();
  if (!slot) return absl::OkStatus();
  const std::string shape = c.input_shape(ports.cache)->ToString();
  if (*slot < format.SlotBytes()) {
    return c.InputError(
        ports.cache,
        StrCat("expected slots of at least ", format.SlotBytes(), " bytes for a head size of ",
               sizes.head_size.ToString(), " with key_bits ", format.key_bits, " and value_bits ",
               format.value_bits, ", got ", shape));
  }
  if (*slot % 2 == 0) return absl::OkStatus();
  return c.InputError(ports.cache, StrCat("expected slots of an even size, got ", shape));
}

absl::Status CheckRotation(const ShapeContext& c, const TurboQuantPorts& ports,
                           const TurboQuantSizes& sizes) {
  if (c.has_input(ports.rotation)) {
    const Dims dims(c);
    const std::string source = sizes.source >= 0 ? "the head size" : "\"head_size\"";
    PF_RETURN_IF_ERROR(dims.Rank(ports.rotation, 2));
    PF_RETURN_IF_ERROR(dims.Equal(ports.rotation, 0, sizes.head_size, source));
    return dims.Equal(ports.rotation, 1, sizes.head_size, source);
  }
  const std::optional<int64_t> size = sizes.head_size.constant();
  if (!size || std::has_single_bit(static_cast<uint64_t>(*size))) return absl::OkStatus();
  return c.InputError(ports.rotation,
                      StrCat("is missing: the head size ", *size, " is no power of two"));
}

}  // namespace

absl::StatusOr<TurboQuantAttributes> ReadTurboQuantAttributes(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t key_bits, node.IntAttribute("key_bits", 0));
  PF_ASSIGN_OR_RETURN(const int64_t value_bits, node.IntAttribute("value_bits", 0));
  PF_ASSIGN_OR_RETURN(const int64_t norm_correction, node.IntAttribute("norm_correction", 0));
  if (key_bits != 3 && key_bits != 4 && key_bits != 8) {
    return AttributeError(node, "key_bits", StrCat("expected 3, 4 or 8, got ", key_bits));
  }
  if (value_bits != 3 && value_bits != 4) {
    return AttributeError(node, "value_bits", StrCat("expected 3 or 4, got ", value_bits));
  }
  return TurboQuantAttributes{static_cast<int>(key_bits), static_cast<int>(value_bits),
                              norm_correction == 1};
}

absl::Status CheckTurboQuantCache(const ShapeContext& c, const TurboQuantPorts& ports,
                                  const TurboQuantSizes& sizes) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(c.node()));
  const Dims dims(c);
  PF_RETURN_IF_ERROR(dims.Rank(ports.cache, 4));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(ports.cache, 1));
  PF_RETURN_IF_ERROR(dims.AtLeastOne(ports.cache, 2));
  PF_RETURN_IF_ERROR(dims.Equal(ports.cache, 2, sizes.heads, "\"key\""));
  if (const std::optional<int64_t> size = sizes.head_size.constant()) {
    const TurboQuantFormat format = attributes.Format(*size);
    const absl::Status fits = format.CheckHeadSize();
    if (!fits.ok()) {
      return sizes.source >= 0 ? c.InputError(sizes.source, StdView(fits.message()))
                               : c.AttributeError("head_size", StdView(fits.message()));
    }
    PF_RETURN_IF_ERROR(CheckSlotSize(c, ports, sizes, format));
  }
  if (attributes.key_bits == 8) return absl::OkStatus();
  if (sizes.needs_rotation || c.has_input(ports.rotation)) {
    PF_RETURN_IF_ERROR(CheckRotation(c, ports, sizes));
  }
  if (!c.has_input(ports.centroids)) return absl::OkStatus();
  PF_RETURN_IF_ERROR(dims.Rank(ports.centroids, 1));
  return dims.Equal(ports.centroids, 0, Dim(int64_t{1} << attributes.key_bits), "2^key_bits");
}

absl::Status ValidateCentroids(const KernelArgs& args, const TurboQuantPorts& ports) {
  const TensorArg& centroids = args.input(ports.centroids);
  if (!centroids.present()) return absl::OkStatus();
  const auto* values = centroids.as<const float>();
  for (int64_t i = 0; i < centroids.size(); ++i) {
    if (std::isfinite(values[i]) && (i == 0 || values[i - 1] <= values[i])) continue;
    return InputValueError(
        args, ports.centroids,
        StrCat("expected finite numbers that do not fall, got ", values[i], " at ", i));
  }
  return absl::OkStatus();
}

TurboQuantTables ReadTurboQuantTables(const KernelArgs& args, const TurboQuantPorts& ports,
                                      const TurboQuantFormat& format) {
  TurboQuantTables tables;
  if (!format.has_centroids()) return tables;
  tables.rotation = args.input(ports.rotation).as<const float>();
  const TensorArg& centroids = args.input(ports.centroids);
  tables.centroids = centroids.present()
                         ? centroids.as<const float>()
                         : DefaultCentroids(format.head_size, format.key_bits).data();
  return tables;
}

CacheRows TurboQuantSlots(const TensorArg& cache) {
  CacheRows rows;
  rows.data = cache.as<uint8_t>();
  rows.num_blocks = cache.dim(0);
  rows.block_size = cache.dim(1);
  const int64_t slot = cache.dim(3);
  const int64_t row = slot * cache.dim(2);
  rows.data_strides = {.block = row * cache.dim(1), .row = row, .head = slot};
  return rows;
}

absl::StatusOr<TurboQuantBody> ReadTurboQuantBody(const Node& node, const TurboQuantPorts& ports,
                                                  int64_t head_size) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(node));
  TurboQuantBody body;
  body.key_bits = attributes.key_bits;
  body.value_bits = attributes.value_bits;
  body.norm_correction = attributes.norm_correction;
  body.has_rotation = node.input(ports.rotation) != nullptr;
  body.has_centroids = node.input(ports.centroids) != nullptr;
  body.head_size = head_size;
  if (head_size < 0 && body.has_rotated_keys() && !body.has_centroids) {
    return absl::FailedPreconditionError(StrCat(
        node.Description(), ": the decomposition needs the head size as a number, or centroids"));
  }
  return body;
}

std::vector<TurboQuantBody> TurboQuantVariantBodies() {
  std::vector<TurboQuantBody> bodies;
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    TurboQuantBody body;
    body.key_bits = preset.key_bits;
    body.value_bits = preset.value_bits;
    body.norm_correction = preset.norm_correction;
    body.has_centroids = true;
    if (!body.has_rotated_keys()) {
      bodies.push_back(body);
      continue;
    }
    for (const bool has_rotation : {true, false}) {
      body.has_rotation = has_rotation;
      bodies.push_back(body);
    }
  }
  return bodies;
}

std::string TurboQuantVariantName(const TurboQuantBody& body) {
  return StrCat("k", body.key_bits, "v", body.value_bits, body.norm_correction ? "_nc" : "",
                body.has_rotation ? "_rotation" : "");
}

}  // namespace pagefuse::pagefuse_ops
