// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/signature.h"

#include <variant>

#include "absl/status/status.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/port_checks.h"

namespace pagefuse {
namespace {

// Parses the ports of one op.
class Compiler {
 public:
  Compiler(const OpDef& op, Signature& signature) : op_(op), signature_(signature) {}

  absl::Status Run() {
    PF_RETURN_IF_ERROR(Ports(op_.inputs(), "input", signature_.inputs));
    PF_RETURN_IF_ERROR(Ports(op_.outputs(), "output", signature_.outputs));
    for (size_t i = 0; i < op_.outputs().size(); ++i) {
      const ShapePattern& shape = signature_.outputs[i].shape;
      if (shape.any.size() <= 1 && shape.relations.empty()) continue;
      return Error("output", op_.outputs()[i].name, "an output has one shape and no relations");
    }
    for (const SizeDef& let : op_.lets()) PF_RETURN_IF_ERROR(Let(let));
    for (const std::string& name : signature_.names) {
      signature_.meanings.push_back(MeaningOf(name));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(std::string_view what, std::string_view name, std::string_view why) const {
    return absl::InvalidArgumentError(
        StrCat("op \"", op_.name(), "\": ", what, " \"", name, "\": ", why));
  }

  absl::Status Ports(const std::vector<Port>& ports, std::string_view side,
                     std::vector<PortSignature>& signatures) {
    for (const Port& port : ports) {
      const absl::Status status = OnePort(port, signatures.emplace_back());
      if (!status.ok()) return Error(side, port.name, StdView(status.message()));
    }
    return absl::OkStatus();
  }

  absl::Status OnePort(const Port& port, PortSignature& signature) {
    if (!port.is_checked) {
      signature.type.emplace_back(std::nullopt, port.type);
      return absl::OkStatus();
    }
    signature_.is_declared = true;
    PF_ASSIGN_OR_RETURN(signature.shape, ParseShapePattern(port.shape, signature_.names));
    PF_RETURN_IF_ERROR(CheckConditions(signature.shape.chosen));
    if (!signature.shape.as.empty() && PlaceOf(op_.inputs(), signature.shape.as) < 0) {
      return absl::InvalidArgumentError(StrCat("there is no input \"", signature.shape.as, "\""));
    }
    PF_ASSIGN_OR_RETURN(signature.type, ParseTypes(port.type));
    PF_RETURN_IF_ERROR(CheckConditions(signature.type));
    for (const auto& [condition, name] : signature.type) {
      PF_RETURN_IF_ERROR(CheckType(name, signature.type_is_in_attribute));
    }
    PF_RETURN_IF_ERROR(ReadCondition(port.required_if, signature.required_if));
    return ReadCondition(port.only_if, signature.only_if);
  }

  absl::Status ReadCondition(std::string_view text, std::optional<PortCondition>& condition) const {
    if (text.empty()) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(condition, ParseCondition(text));
    return CheckCondition(*condition);
  }

  absl::Status CheckType(const std::string& name, bool& is_in_attribute) const {
    for (const auto& [variable, types] : op_.types()) {
      if (variable == name) return absl::OkStatus();
    }
    if (DataTypeFromName(name)) return absl::OkStatus();
    const int attribute = PlaceOf(op_.attributes(), name);
    is_in_attribute = attribute >= 0 && !op_.attributes()[attribute].names.empty();
    if (!is_in_attribute) {
      return absl::InvalidArgumentError(StrCat("there is no type \"", name, "\""));
    }
    for (const std::string& type : op_.attributes()[attribute].names) {
      if (DataTypeFromName(type)) continue;
      return absl::InvalidArgumentError(StrCat("\"", name, "\" may be \"", type, "\", no type"));
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status CheckConditions(const Choice<T>& choice) const {
    for (const auto& [condition, what] : choice) {
      if (condition) PF_RETURN_IF_ERROR(CheckCondition(*condition));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCondition(const PortCondition& condition) const {
    if (PlaceOf(op_.attributes(), condition.name) >= 0) return absl::OkStatus();
    const bool is_port =
        PlaceOf(op_.inputs(), condition.name) >= 0 || PlaceOf(op_.outputs(), condition.name) >= 0;
    if (is_port && !condition.value) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat("condition \"", ToString(condition), "\": there is no attribute",
               condition.value ? "" : " and no port", " \"", condition.name, "\""));
  }

  absl::Status Let(const SizeDef& let) {
    Choice<SizeExpression>& sizes = signature_.lets.emplace_back();
    if (let.compute) return absl::OkStatus();
    absl::StatusOr<Choice<SizeExpression>> parsed = ParseSizes(let.text, signature_.names);
    absl::Status status = parsed.status();
    if (parsed.ok()) status = CheckConditions(*parsed);
    if (!status.ok()) return Error("size", let.name, StdView(status.message()));
    sizes = *std::move(parsed);
    return absl::OkStatus();
  }

  Signature::NameMeaning MeaningOf(const std::string& name) const {
    if (const int let = PlaceOf(op_.lets(), name); let >= 0) {
      return {Signature::NameKind::kLet, let};
    }
    const int attribute = PlaceOf(op_.attributes(), name);
    if (attribute >= 0) return {Signature::NameKind::kAttribute, attribute};
    return {};
  }

  const OpDef& op_;
  Signature& signature_;
};

// An attribute of the node or its default, as a condition writes it; empty if there is none.
std::string ValueText(const AttributeDef& def, const Node& node) {
  const Attribute* attribute = node.attribute(def.name);
  if (attribute != nullptr) {
    if (const auto* text = std::get_if<std::string>(&attribute->value)) return *text;
    if (const auto* number = std::get_if<int64_t>(&attribute->value)) return StrCat(*number);
    return "";
  }
  if (const auto* text = std::get_if<std::string>(&def.default_value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&def.default_value)) return StrCat(*number);
  return "";
}

bool IsGiven(const std::string& port, const OpDef& op, const ShapeContext& c) {
  const int input = PlaceOf(op.inputs(), port);
  if (input >= 0) return c.has_input(input);
  return c.has_output(PlaceOf(op.outputs(), port));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Signature>> Signature::Make(const OpDef& op) {
  auto signature = std::make_shared<Signature>();
  PF_RETURN_IF_ERROR(Compiler(op, *signature).Run());
  return signature;
}

const Dim& DeclaredSizes::Find(std::string_view name) const {
  const auto it = std::find(names.begin(), names.end(), name);
  PF_CHECK(it != names.end());
  return values[it - names.begin()];
}

bool Holds(const PortCondition& condition, const OpDef& op, const ShapeContext& c) {
  const int attribute = PlaceOf(op.attributes(), condition.name);
  if (attribute < 0) return IsGiven(condition.name, op, c) != condition.negated;
  const std::string value = ValueText(op.attributes()[attribute], c.node());
  const bool holds = condition.value ? value == *condition.value : !value.empty() && value != "0";
  return holds != condition.negated;
}

std::string Circumstance(const PortCondition& condition, const OpDef& op, const ShapeContext& c) {
  const int attribute = PlaceOf(op.attributes(), condition.name);
  if (attribute >= 0) {
    return StrCat(condition.name, " = ", ValueText(op.attributes()[attribute], c.node()));
  }
  return StrCat(IsGiven(condition.name, op, c) ? "" : "no ", "\"", condition.name, "\"");
}

}  // namespace pagefuse
