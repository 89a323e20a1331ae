// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/type_bindings.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string TypeNames(const std::vector<DataType>& types) {
  return absl::StrJoin(types, ", ",
                       [](std::string* out, DataType type) { StrAppend(out, DataTypeName(type)); });
}

// The last port of an op is that of all further values.
const PortSignature& PortOf(const std::vector<PortSignature>& ports, int i) {
  return ports[std::min<size_t>(i, ports.size() - 1)];
}

}  // namespace

absl::Status TypeBindings::BindInputs(const ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.has_input(i)) PF_RETURN_IF_ERROR(Bind(c, i));
  }
  return absl::OkStatus();
}

absl::Status TypeBindings::Bind(const ShapeContext& c, int input) {
  const PortSignature& port = PortOf(signature_.inputs, input);
  const DataType type = c.input_type(input);
  const std::string_view name = NameOf(port, c);
  if (type == DataType::kUndefined || name.empty()) return absl::OkStatus();
  const std::vector<DataType>* allowed = Allowed(name);
  if (!IsAllowed(name, type)) {
    return c.InputError(input,
                        StrCat("expected type ", allowed ? TypeNames(*allowed) : std::string(name),
                               Reason(port, c), ", got ", DataTypeName(type)));
  }
  if (allowed == nullptr) return absl::OkStatus();
  const DataType before = Bound(name);
  if (before == DataType::kUndefined) bound_.emplace_back(name, type);
  if (before == DataType::kUndefined || before == type) return absl::OkStatus();
  return c.InputError(input, StrCat("expected type ", DataTypeName(before),
                                    " as the inputs before, got ", DataTypeName(type)));
}

absl::Status TypeBindings::CheckOutputs(ShapeContext& c) const {
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    const std::string_view name = NameOf(PortOf(signature_.outputs, i), c);
    const DataType type = c.outputs()[i].dtype;
    if (type == DataType::kUndefined) {
      c.SetOutput(i, Find(name), c.outputs()[i].shape);
    } else if (!IsAllowed(name, type)) {
      return c.OutputError(i, StrCat("type ", DataTypeName(type), " is not a type of this op"));
    }
  }
  return absl::OkStatus();
}

std::string_view TypeBindings::NameOf(const PortSignature& port, const ShapeContext& c) const {
  const std::string& name = Chosen(port.type, op_, c);
  if (!port.type_is_in_attribute) return name;
  for (const AttributeDef& def : op_.attributes()) {
    if (def.name != name) continue;
    const auto* text = std::get_if<std::string>(&def.default_value);
    const Attribute* attribute = c.node().attribute(name);
    if (attribute != nullptr) text = std::get_if<std::string>(&attribute->value);
    return text == nullptr ? std::string_view() : *text;
  }
  return name;
}

std::string TypeBindings::Reason(const PortSignature& port, const ShapeContext& c) const {
  const std::vector<std::string> facts = Circumstances(port.type, op_, c);
  return facts.empty() ? "" : StrCat(" with ", absl::StrJoin(facts, ", "));
}

const std::vector<DataType>* TypeBindings::Allowed(std::string_view variable) const {
  for (const auto& [name, types] : op_.types()) {
    if (name == variable) return &types;
  }
  return nullptr;
}

DataType TypeBindings::Bound(std::string_view variable) const {
  for (const auto& [name, type] : bound_) {
    if (name == variable) return type;
  }
  return DataType::kUndefined;
}

DataType TypeBindings::Find(std::string_view name) const {
  const DataType bound = Bound(name);
  if (bound != DataType::kUndefined) return bound;
  if (const std::vector<DataType>* allowed = Allowed(name)) {
    return allowed->size() == 1 ? allowed->front() : DataType::kUndefined;
  }
  return DataTypeFromName(name).value_or(DataType::kUndefined);
}

bool TypeBindings::IsAllowed(std::string_view name, DataType type) const {
  const std::vector<DataType>* allowed = Allowed(name);
  if (allowed == nullptr) return name.empty() || DataTypeName(type) == name;
  return std::find(allowed->begin(), allowed->end(), type) != allowed->end();
}

}  // namespace pagefuse
