// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/turboquant/turboquant.h"

#include <bit>
#include <cmath>
#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<TurboQuantAttributes> ReadTurboQuantAttributes(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t key_bits, node.IntAttribute("key_bits", 0));
  PF_ASSIGN_OR_RETURN(const int64_t value_bits, node.IntAttribute("value_bits", 0));
  PF_ASSIGN_OR_RETURN(const int64_t norm_correction, node.IntAttribute("norm_correction", 0));
  return TurboQuantAttributes{static_cast<int>(key_bits), static_cast<int>(value_bits),
                              norm_correction == 1};
}

OpDef& AddTurboQuantBits(OpDef& op) {
  return op.RequiredAttr("key_bits", "3, 4: codes of centroids; 8: float8e4m3fn")
      .OneOf({3, 4, 8})
      .RequiredAttr("value_bits")
      .OneOf({3, 4});
}

SizeDef::ComputeFn SlotBytes(std::string_view head_size, int source) {
  return [name = std::string(head_size), source](const ShapeContext& c) -> absl::StatusOr<Dim> {
    PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(c.node()));
    const std::optional<int64_t> size = c.size(name).constant();
    if (!size) return Dim::Unknown();
    const TurboQuantFormat format = attributes.Format(*size);
    const absl::Status fits = CheckHeadSize(format);
    if (fits.ok()) return Dim(format.SlotBytes());
    return source >= 0 ? c.InputError(source, StdView(fits.message()))
                       : c.AttributeError(name, StdView(fits.message()));
  };
}

absl::Status CheckRotationGiven(const ShapeContext& c, const TurboQuantPorts& ports,
                                const Dim& head_size) {
  PF_ASSIGN_OR_RETURN(const TurboQuantAttributes attributes, ReadTurboQuantAttributes(c.node()));
  const std::optional<int64_t> size = head_size.constant();
  if (attributes.key_bits == 8 || c.has_input(ports.rotation) || !size) return absl::OkStatus();
  if (std::has_single_bit(static_cast<uint64_t>(*size))) return absl::OkStatus();
  return c.InputError(ports.rotation,
                      StrCat("is missing: the head size ", *size, " is no power of two"));
}

absl::Status ValidateCentroids(const KernelArgs& args, const TurboQuantPorts& ports) {
  const TensorArg& centroids = args.input(ports.centroids);
  if (!IsKnown(centroids)) return absl::OkStatus();
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
  rows.data_strides = {.block = cache.block_bytes(), .row = slot * cache.dim(2), .head = slot};
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

}  // namespace pagefuse::pagefuse_ops
