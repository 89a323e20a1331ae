// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/hosted_inference.h"

#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/custom_ops/library_call.h"
#include "pagefuse/plugin/custom_ops/node_types.h"
#include "pagefuse/plugin/custom_ops/objects.h"

namespace pagefuse::ort {
namespace {

std::vector<DataType> InputTypes(const ShapeContext& c) {
  std::vector<DataType> types;
  for (int i = 0; i < c.num_inputs(); ++i) types.push_back(c.input_type(i));
  return types;
}

// The first row that fits, one that can be computed before others. Null if none does.
const Row* FindRow(const std::vector<Row>& rows, const std::vector<DataType>& types,
                   int64_t opset) {
  const Row* found = nullptr;
  for (const Row& row : rows) {
    if (!IsInVersion(row, opset) || !row.Takes(types)) continue;
    if (row.refusal.empty()) return &row;
    if (found == nullptr) found = &row;
  }
  return found;
}

absl::Status NoRow(const std::vector<Row>& rows, const std::vector<DataType>& types,
                   const std::string& library, const ShapeContext& c) {
  const std::string got = absl::StrJoin(types, ", ", [](std::string* text, DataType type) {
    StrAppend(text, type == DataType::kUndefined ? "none" : DataTypeName(type));
  });
  const std::string expected = absl::StrJoin(rows, " or ", [](std::string* text, const Row& row) {
    StrAppend(text, row.InputTypes());
    if (row.start_version > 1) StrAppend(text, " from version ", row.start_version, " on");
  });
  return c.Error(StrCat(library, " has the op for inputs ", expected, ", got (", got,
                        ") at version ", c.opset()));
}

absl::Status CheckCount(const std::vector<RowPort>& ports, int count, const char* side,
                        const ShapeContext& c) {
  if (ports.empty() || ports.back().kind != PortKind::kVariadic) return absl::OkStatus();
  const int least = static_cast<int>(ports.size()) - 1 + ports.back().least;
  if (count >= least) return absl::OkStatus();
  return c.Error(StrCat("expected at least ", least, " ", side, "s, got ", count));
}

// The type of outputs that may have any: that of the last input that may. Undefined without one.
DataType AnyType(const Row& row, const std::vector<DataType>& types) {
  DataType any = DataType::kUndefined;
  for (size_t i = 0; i < types.size(); ++i) {
    const RowPort& port = *PortAt(row.inputs, i);
    if (port.type != DataType::kUndefined || !port.is_homogeneous) continue;
    if (types[i] != DataType::kUndefined) any = types[i];
  }
  return any;
}

// Names of dims that the inputs have.
std::set<std::string> Symbols(const ShapeContext& c) {
  std::set<std::string> symbols;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input_shape(i) == nullptr) continue;
    for (const Dim& dim : c.input_shape(i)->dims()) {
      for (const auto& [symbol, coefficient] : dim.terms()) symbols.insert(symbol);
    }
  }
  return symbols;
}

// A name that the library made up means this node's output, whoever else uses it.
class OwnNames {
 public:
  explicit OwnNames(ShapeContext& c) : c_(c), known_(Symbols(c)) {}

  Shape Renamed(Shape shape) {
    for (Dim& dim : shape.dims()) {
      if (!dim.known()) {
        dim = c_.FreshDim();
        continue;
      }
      for (const auto& [symbol, coefficient] : dim.terms()) {
        if (known_.count(symbol) == 0 && own_.count(symbol) == 0) own_[symbol] = c_.FreshDim();
      }
      dim = dim.Substitute(own_);
    }
    return shape;
  }

 private:
  ShapeContext& c_;
  const std::set<std::string> known_;
  std::map<std::string, Dim> own_;
};

// What the row's function says of the outputs. It sees no input of unknown rank: it would take that
// for a scalar.
absl::StatusOr<std::vector<std::optional<TensorTypeAndShapeInfo>>> AskShapes(
    const Row& row, const std::string& library, const ShapeContext& c) {
  ShapeInferContext context{c.node(), {}, {}};
  context.outputs.resize(c.num_outputs());
  if (row.infer_output_shapes == nullptr) return context.outputs;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Shape* shape = c.input_shape(i);
    if (c.has_input(i) && shape == nullptr) return context.outputs;
    context.inputs.push_back(
        InfoOf(c.input_type(i), shape == nullptr ? std::nullopt : std::optional(*shape)));
  }
  const absl::Status status =
      CallLibrary([&] { return row.infer_output_shapes(row.op, &context); });
  PF_RETURN_IF_ERROR(AtPlace(c.node().Description(), AtPlace(library, status)));
  return context.outputs;
}

}  // namespace

bool IsInVersion(const Row& row, int64_t opset) {
  return opset >= row.start_version && opset <= row.end_version;
}

absl::Status InferHosted(const std::vector<Row>& rows, const std::string& library,
                         ShapeContext& c) {
  const std::vector<DataType> types = InputTypes(c);
  for (int i = 0; i < c.num_inputs(); ++i) {
    // Nothing is said of it yet.
    if (c.has_input(i) && types[i] == DataType::kUndefined) return absl::OkStatus();
  }
  const Row* row = FindRow(rows, types, c.opset());
  if (row == nullptr) return NoRow(rows, types, library, c);
  PF_RETURN_IF_ERROR(CheckCount(row->inputs, c.num_inputs(), "input", c));
  PF_RETURN_IF_ERROR(CheckCount(row->outputs, c.num_outputs(), "output", c));
  PF_ASSIGN_OR_RETURN(const auto said, AskShapes(*row, library, c));
  OwnNames names(c);
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    const RowPort* port = PortAt(row->outputs, i);
    DataType type = port->type;
    if (type == DataType::kUndefined && said[i]) {
      type = DataTypeFromCode(said[i]->type).value_or(DataType::kUndefined);
    }
    if (type == DataType::kUndefined && port->is_homogeneous) type = AnyType(*row, types);
    if (type == DataType::kUndefined) type = c.node().output(i)->dtype();
    c.SetOutput(i, type, said[i] ? std::optional(names.Renamed(ShapeOf(*said[i]))) : std::nullopt);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::ort
