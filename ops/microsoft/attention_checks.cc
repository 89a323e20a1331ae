// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/attention_checks.h"

#include <cmath>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {

absl::StatusOr<int64_t> HeadsOf(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, c.node().IntAttribute("num_heads", 0));
  if (heads > 0 && heads <= kMaxHeads) return heads;
  return c.AttributeError("num_heads", StrCat("expected a positive number, got ", heads));
}

absl::Status CheckWidth(const ShapeContext& c, int i, const Dim& width, int64_t heads) {
  const std::optional<int64_t> number = width.constant();
  if (!number || (*number > 0 && *number % heads == 0)) return absl::OkStatus();
  return c.InputError(i,
                      StrCat("width ", *number, " is no positive multiple of ", heads, " heads"));
}

absl::Status CheckScoreBias(const ShapeContext& c, int i, const Shape& scores) {
  const Shape* bias = c.input_shape(i);
  if (bias == nullptr) return absl::OkStatus();
  PF_RETURN_IF_ERROR(
      ExpectShape(c, i, Shape({Dim::Unknown(), Dim::Unknown(), scores[2], scores[3]})));
  for (int d = 0; d < 2; ++d) {
    if ((*bias)[d] == Dim(1) || !Differ((*bias)[d], scores[d])) continue;
    return c.InputError(i, StrCat("shape ", bias->ToString(), " does not broadcast"));
  }
  return absl::OkStatus();
}

absl::Status CheckHeadWeights(const ShapeContext& c, const HeadWeightPorts& ports, int64_t heads,
                              const Dim& head_size) {
  PF_RETURN_IF_ERROR(ExpectShape(c, ports.sinks, Shape({Dim(heads)})));
  if (c.has_input(ports.q_norm) != c.has_input(ports.k_norm)) {
    return c.Error("q_norm_weight and k_norm_weight come together");
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, ports.q_norm, Shape({head_size})));
  return ExpectShape(c, ports.k_norm, Shape({head_size}));
}

absl::Status CheckScaleValues(const KernelArgs& args, int port, std::string_view name) {
  const TensorArg& scales = args.input(port);
  if (scales.data == nullptr) return absl::OkStatus();  // none, or a device's
  for (int64_t k = 0; k < scales.size(); ++k) {
    const float scale = scales.as<float>()[k];
    if (std::isfinite(scale) && scale > 0) continue;
    return ValueError(args, StrCat("input ", port, " \"", name, "\""),
                      StrCat("expected finite positive scales, got ", scale));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::microsoft_ops
