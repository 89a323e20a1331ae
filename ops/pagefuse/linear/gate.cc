// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/linear/gate.h"

#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<Gate> GateOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("activation", ""));
  const std::optional<Activation> activation = ActivationFromName(name);
  PF_ASSIGN_OR_RETURN(const float limit, node.FloatAttribute("limit", 0.0f));
  if (activation) return Gate(*activation, limit > 0 ? limit : Gate::kNoLimit);
  return absl::InvalidArgumentError(StrCat("expected gelu, gelu_tanh or silu, got \"", name, "\""));
}

std::string GateText(Activation activation, std::string_view gate, std::string_view activated) {
  switch (activation) {
    case Activation::kGelu:
      return StrCat("  ", activated, " = Gelu <approximate = \"none\"> (", gate, ")\n");
    case Activation::kGeluTanh:
      return StrCat("  ", activated, " = Gelu <approximate = \"tanh\"> (", gate, ")\n");
    case Activation::kSilu:
      return StrCat("  logistic = Sigmoid (", gate, ")\n  ", activated, " = Mul (", gate,
                    ", logistic)\n");
  }
  return "";
}

}  // namespace pagefuse::pagefuse_ops
