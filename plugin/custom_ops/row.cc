// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/row.h"

#include <string_view>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

// Versions that brought fields of CustomOp.
constexpr uint32_t kOptionalPorts = 8;
constexpr uint32_t kVariadicPorts = 14;
constexpr uint32_t kStatuses = 16;
constexpr uint32_t kShapesAndVersions = 17;

constexpr std::string_view kCpuProvider = "CPUExecutionProvider";

absl::Status Broken(std::string_view op, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("custom op \"", op, "\": ", what));
}

// One side of the declaration.
struct Side {
  const char* name;
  size_t (*count)(const CustomOp*);
  ElementType (*type)(const CustomOp*, size_t);
  Characteristic (*characteristic)(const CustomOp*, size_t);
  int (*least)(const CustomOp*);
  int (*homogeneity)(const CustomOp*);
};

// Not a field of a version before it was there.
PortKind KindOf(const CustomOp& op, const Side& side, size_t i) {
  if (op.version < kOptionalPorts || side.characteristic == nullptr) return PortKind::kRequired;
  const Characteristic said = side.characteristic(&op, i);
  if (said == Characteristic::kOptional) return PortKind::kOptional;
  const bool variadic = said == Characteristic::kVariadic && op.version >= kVariadicPorts;
  return variadic ? PortKind::kVariadic : PortKind::kRequired;
}

absl::Status ReadSide(const CustomOp& op, const Side& side, std::vector<RowPort>& ports,
                      std::string& refusal) {
  const size_t count = side.count(&op);
  for (size_t i = 0; i < count; ++i) {
    RowPort port;
    port.kind = KindOf(op, side, i);
    if (port.kind == PortKind::kVariadic) {
      if (i + 1 != count) {
        return absl::InvalidArgumentError(
            StrCat(side.name, " ", i, " is variadic, expected of the last one only"));
      }
      if (side.least != nullptr) port.least = side.least(&op);
      if (side.homogeneity != nullptr) port.is_homogeneous = side.homogeneity(&op) != 0;
    }
    const ElementType type = side.type(&op, i);
    port.type = DataTypeFromCode(type).value_or(DataType::kUndefined);
    if (type != 0 && port.type == DataType::kUndefined) {
      refusal = StrCat(side.name, " ", i, " is of element type ", type, ", which is not known");
    }
    if (port.type == DataType::kString) {
      refusal = StrCat(side.name, " ", i, " is of strings, which are not computed");
    }
    ports.push_back(port);
  }
  return absl::OkStatus();
}

absl::Status CheckFunctions(const CustomOp& op, std::string_view name) {
  if (op.version < 1 || op.version > kNewestVersion) {
    return Broken(name, StrCat("version ", op.version, " of its declaration, expected 1 to ",
                               kNewestVersion));
  }
  const bool creates =
      op.create_kernel != nullptr || (op.version >= kStatuses && op.create_kernel_v2 != nullptr);
  const bool computes =
      op.compute != nullptr || (op.version >= kStatuses && op.compute_v2 != nullptr);
  const bool declares = op.input_count != nullptr && op.input_type != nullptr &&
                        op.output_count != nullptr && op.output_type != nullptr;
  if (creates && computes && declares && op.destroy != nullptr) return absl::OkStatus();
  return Broken(name, "a function that every op has is null");
}

std::string ProviderOf(const CustomOp& op) {
  if (op.execution_provider == nullptr) return "";
  const char* provider = op.execution_provider(&op);
  return provider == nullptr ? "" : provider;
}

std::string TypesText(const std::vector<RowPort>& ports) {
  return StrCat("(",
                absl::StrJoin(ports, ", ",
                              [](std::string* text, const RowPort& port) {
                                StrAppend(text, port.type == DataType::kUndefined
                                                    ? std::string_view("any")
                                                    : DataTypeName(port.type));
                                if (port.kind == PortKind::kOptional) StrAppend(text, "?");
                                if (port.kind == PortKind::kVariadic) StrAppend(text, "...");
                              }),
                ")");
}

bool SamePort(const RowPort& a, const RowPort& b) {
  return a.kind == b.kind && a.is_homogeneous == b.is_homogeneous && a.least == b.least;
}

absl::Status CheckSameSide(const std::vector<RowPort>& first, const std::vector<RowPort>& other,
                           const char* side) {
  if (first.size() != other.size()) {
    return absl::InvalidArgumentError(
        StrCat("one row has ", first.size(), " ", side, "s, another ", other.size()));
  }
  for (size_t i = 0; i < first.size(); ++i) {
    if (SamePort(first[i], other[i])) continue;
    return absl::InvalidArgumentError(
        StrCat("rows differ in whether ", side, " ", i, " is required, optional or variadic"));
  }
  return absl::OkStatus();
}

}  // namespace

const RowPort* PortAt(const std::vector<RowPort>& ports, size_t i) {
  if (i < ports.size()) return &ports[i];
  const bool goes_on = !ports.empty() && ports.back().kind == PortKind::kVariadic;
  return goes_on ? &ports.back() : nullptr;
}

bool Row::Takes(const std::vector<DataType>& types) const {
  for (size_t i = 0; i < types.size(); ++i) {
    const RowPort* port = PortAt(inputs, i);
    if (port == nullptr) return false;
    const bool any = types[i] == DataType::kUndefined || port->type == DataType::kUndefined ||
                     !port->is_homogeneous;
    if (!any && types[i] != port->type) return false;
  }
  return true;
}

std::string Row::InputTypes() const { return TypesText(inputs); }

absl::StatusOr<Row> ReadRow(const CustomOp& op, const std::string& domain) {
  if (op.name == nullptr) return Broken("", "it has no name");
  Row row;
  row.op = &op;
  row.domain = domain;
  row.name = op.name(&op);
  PF_RETURN_IF_ERROR(CheckFunctions(op, row.name));
  const bool variadic = op.version >= kVariadicPorts;
  const Side inputs = {"input",
                       op.input_count,
                       op.input_type,
                       op.version >= kOptionalPorts ? op.input_characteristic : nullptr,
                       variadic ? op.variadic_input_min_arity : nullptr,
                       variadic ? op.variadic_input_homogeneity : nullptr};
  const Side outputs = {"output",
                        op.output_count,
                        op.output_type,
                        op.version >= kOptionalPorts ? op.output_characteristic : nullptr,
                        variadic ? op.variadic_output_min_arity : nullptr,
                        variadic ? op.variadic_output_homogeneity : nullptr};
  for (const auto& [side, ports] :
       {std::pair(inputs, &row.inputs), std::pair(outputs, &row.outputs)}) {
    const absl::Status status = ReadSide(op, side, *ports, row.refusal);
    if (!status.ok()) return Broken(row.name, StdView(status.message()));
  }
  const std::string provider = ProviderOf(op);
  if (!provider.empty() && provider != kCpuProvider) {
    row.refusal = StrCat("it is for ", provider, ", expected ", kCpuProvider);
  }
  if (op.version >= kStatuses) {
    row.create_kernel_v2 = op.create_kernel_v2;
    row.compute_v2 = op.compute_v2;
  }
  if (op.version >= kShapesAndVersions) {
    row.infer_output_shapes = op.infer_output_shapes;
    if (op.start_version != nullptr) row.start_version = op.start_version(&op);
    if (op.end_version != nullptr) row.end_version = op.end_version(&op);
  }
  return row;
}

absl::Status CheckSameShape(const Row& first, const Row& other) {
  absl::Status status = CheckSameSide(first.inputs, other.inputs, "input");
  if (status.ok()) status = CheckSameSide(first.outputs, other.outputs, "output");
  return status.ok() ? status : Broken(first.name, StdView(status.message()));
}

}  // namespace pagefuse::ort
