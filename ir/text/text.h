// SPDX-License-Identifier: Apache-2.0
// The text form: ONNX text syntax (onnx docs/Syntax.md), extended only by the newer type names and
// quoted names.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// Parses `<ir_version: 10, opset_import: ["" : 18]> name (inputs) => (outputs) <value infos,
// initialisers> { nodes }` and any functions after it. Names that are no identifiers are written in
// double quotes. `#` starts a comment. Errors give line, column, the source line, and what was
// expected. A tensor may be `...`: it has a type and dims, but no data, and the model does not run.
absl::StatusOr<Model> ParseModel(std::string_view text);
// Parses one function: `<domain: "pagefuse", opset_import: ["" : 23]> Name <attr> (x) => (y) { ...
// }`, header optional.
absl::StatusOr<Function> ParseFunction(std::string_view text);
// The same for texts in which all types are those of tensors and no attribute is one. A program that
// reads no others needs no protobuf.
absl::StatusOr<Function> ParsePlainFunction(std::string_view text);

struct PrintOptions {
  // Tensors with more elements are printed as `float[2304, 1152] name = ...`, and a comment at the
  // top says so; read back, they have no data (absent_data.h). -1: print all. Strings are always
  // printed.
  int64_t max_elements = -1;
  // Types of inner values as a value-info list.
  bool value_infos = true;
};
// Stable: the same graph always gives the same text, and ParseModel(PrintModel(m)) prints the same
// again.
std::string PrintModel(const Model& model, const PrintOptions& options = {});
std::string PrintFunction(const Function& function, const PrintOptions& options = {});
std::string PrintGraph(const Graph& graph, const PrintOptions& options = {});
// One line: `y = Mul <a = 1> (x, w)`; subgraphs as `name {...}`, tensors of more than 16 elements
// as `...`.
std::string PrintNode(const Node& node);

}  // namespace pagefuse
