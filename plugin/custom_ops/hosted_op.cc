// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/hosted_op.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/plugin/custom_ops/hosted_inference.h"
#include "pagefuse/plugin/custom_ops/hosted_kernel.h"

namespace pagefuse::ort {
namespace {

std::vector<DataType> AllTypes() {
  std::vector<DataType> types;
  for (int32_t code = 1; code <= kMaxDataType; ++code) {
    types.push_back(static_cast<DataType>(code));
  }
  return types;
}

// The types of port `i` over all rows; empty for any.
std::vector<DataType> TypesOf(const std::vector<Row>& rows, std::vector<RowPort> Row::*side,
                              size_t i) {
  std::vector<DataType> types;
  for (const Row& row : rows) {
    const RowPort& port = (row.*side)[i];
    if (port.type == DataType::kUndefined || !port.is_homogeneous) return {};
    if (std::count(types.begin(), types.end(), port.type) == 0) types.push_back(port.type);
  }
  return types;
}

// What an op's declaration says of the type of a port: a name, or a variable that it declares.
std::string DeclareType(const std::vector<Row>& rows, std::vector<RowPort> Row::*side, size_t i,
                        OpDef& op) {
  std::vector<DataType> types = TypesOf(rows, side, i);
  const RowPort& port = (rows[0].*side)[i];
  const bool all_alike = port.kind == PortKind::kVariadic && port.is_homogeneous;
  if (types.empty() && !all_alike) return "";
  if (types.size() == 1) return std::string(DataTypeName(types[0]));
  if (types.empty()) types = AllTypes();
  std::string variable = StrCat(side == &Row::inputs ? "I" : "O", i);
  op.Types(variable, std::move(types));
  return variable;
}

void DeclarePorts(const std::vector<Row>& rows, OpDef& op) {
  for (size_t i = 0; i < rows[0].inputs.size(); ++i) {
    op.Input(StrCat("input_", i), DeclareType(rows, &Row::inputs, i, op), "",
             rows[0].inputs[i].kind);
  }
  for (size_t i = 0; i < rows[0].outputs.size(); ++i) {
    op.Output(StrCat("output_", i), DeclareType(rows, &Row::outputs, i, op), "",
              rows[0].outputs[i].kind);
  }
}

}  // namespace

absl::StatusOr<OpDef> HostedOp(std::vector<Row> rows, const std::string& library) {
  int since = rows[0].start_version;
  for (const Row& row : rows) {
    PF_RETURN_IF_ERROR(CheckSameShape(rows[0], row));
    since = std::min(since, row.start_version);
  }
  OpDef op(rows[0].domain, rows[0].name, since);
  op.Doc(StrCat("A custom op for ONNX Runtime, of ", library, "."));
  DeclarePorts(rows, op);
  op.Attr(kAnyAttribute, {}, "what the library reads");
  const auto shared = std::make_shared<const std::vector<Row>>(std::move(rows));
  op.InferShapes([shared, library](ShapeContext& c) { return InferHosted(*shared, library, c); });
  for (const Row& row : *shared) {
    // Where there are several, their types tell them apart.
    const std::string name = shared->size() == 1 ? library : StrCat(library, row.InputTypes());
    op.AddKernel(HostedRow(std::shared_ptr<const Row>(shared, &row), library, name));
  }
  return op;
}

}  // namespace pagefuse::ort
