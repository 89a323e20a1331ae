// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/float_form.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/constants.h"

namespace pagefuse {
namespace {

bool IsHalf(DataType type) { return type == DataType::kFloat16 || type == DataType::kBfloat16; }

absl::StatusOr<Tensor> Widened(const Tensor& tensor, std::string_view name) {
  const auto numbers = Numbers(tensor, std::numeric_limits<int64_t>::max());
  if (!numbers) return absl::UnimplementedError(StrCat("\"", name, "\" has no numbers"));
  PF_ASSIGN_OR_RETURN(Tensor wide, Tensor::Allocate(DataType::kFloat, tensor.dims()));
  std::ranges::transform(*numbers, wide.mutable_values<float>().begin(),
                         [](double number) { return static_cast<float>(number); });
  return wide;
}

// Attributes that name the type of an output, or in which an op computes.
bool NamesType(std::string_view name) {
  return name == "to" || name == "dtype" || name == "output_dtype" || name == "softmax_precision";
}

absl::Status WidenAttribute(Node& node, const std::string& name) {
  Attribute attribute = *node.attribute(name);
  if (auto* tensor = std::get_if<Tensor>(&attribute.value)) {
    if (!IsHalf(tensor->dtype())) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(*tensor, Widened(*tensor, name));
  } else if (auto* type = std::get_if<int64_t>(&attribute.value)) {
    if (!NamesType(name) || !IsHalf(static_cast<DataType>(*type))) return absl::OkStatus();
    *type = static_cast<int64_t>(DataType::kFloat);
  } else {
    return absl::OkStatus();
  }
  node.SetAttribute(name, std::move(attribute));
  return absl::OkStatus();
}

absl::Status Widen(Graph& graph) {
  for (Value* value : graph.values()) {
    if (const Tensor* tensor = value->initializer(); tensor && IsHalf(tensor->dtype())) {
      PF_ASSIGN_OR_RETURN(Tensor wide, Widened(*tensor, value->name()));
      graph.SetInitializer(value, std::move(wide));
    }
    if (!IsHalf(value->dtype())) continue;
    value->set_dtype(DataType::kFloat);
    value->spelled_type.clear();
  }
  for (const auto& node : graph.nodes()) {
    std::vector<std::string> names;
    for (const auto& [name, attribute] : node->attributes()) names.push_back(name);
    for (const std::string& name : names) PF_RETURN_IF_ERROR(WidenAttribute(*node, name));
    for (Graph* subgraph : node->Subgraphs()) PF_RETURN_IF_ERROR(Widen(*subgraph));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> InFloat(const Model& model) {
  Model wide = model.Clone();
  PF_RETURN_IF_ERROR(Widen(*wide.graph));
  for (const Function& function : wide.functions) PF_RETURN_IF_ERROR(Widen(*function.body));
  return wide;
}

}  // namespace pagefuse
