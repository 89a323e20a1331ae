// SPDX-License-Identifier: Apache-2.0
// The printer behind text.h. What it prints, text_parser.h reads back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/onnx_pb.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {

// A name, in double quotes where it is no plain one.
std::string PrintName(std::string_view name);
// In double quotes, with \ before " and \.
std::string PrintQuoted(std::string_view text);
// A number that reads back as the same bits; `1.0`, not `1`, if `with_point`.
std::string PrintFloat(float value, bool with_point);
std::string PrintDouble(double value);
// `float[2, N]`, `seq(int64)`; `proto("0a02...")` for what the syntax cannot say.
std::string PrintType(const onnx::TypeProto& type);
std::string PrintTensorType(DataType type, const std::vector<int64_t>& dims);
// The type of a value; empty if nothing is known of it.
std::string PrintValueType(const Value& value);
// What follows the name of an attribute of a kind that is kept as proto: `: type_proto = float[N]`,
// else `: proto = "0a01..."`.
std::string PrintOpaqueAttribute(std::string_view name, const OpaqueAttribute& attribute);
// True if the tensor has more than `max_elements` (unless that is -1), or no data.
bool IsElided(const Tensor& tensor, int64_t max_elements);
// `{1, 2}`, or `...` if it is elided.
std::string PrintTensorData(const Tensor& tensor, int64_t max_elements);

class TextPrinter {
 public:
  struct Style {
    PrintOptions options;
    bool one_line = false;  // subgraphs as `name {...}`
  };
  explicit TextPrinter(const Style& style) : style_(style) {}

  void PrintModel(const Model& model);
  void PrintFunction(const Function& function);
  void PrintGraph(const Graph& graph, bool is_function, std::string_view name);
  void PrintNode(const Node& node);
  std::string Take() { return std::move(text_); }

 private:
  using Lines = std::vector<std::string>;

  void Header(const Lines& entries);
  // `(a, b)`: on one line, or one entry a line.
  std::string List(const Lines& entries, bool one_line) const;
  Lines Declarations(const std::vector<Value*>& values, bool is_input, bool is_function) const;
  Lines ValueInfos(const Graph& graph, bool is_function) const;
  std::string Declaration(const Value& value) const;
  std::string Initializer(const Value& value) const;
  std::string TensorData(const Tensor& tensor) const;
  void ConstantNode(const Value& value);
  void Attributes(const Node& node);
  void PrintAttribute(std::string_view name, const Attribute& attribute);
  void AttributeValue(const Attribute& attribute);
  void Subgraph(const Graph& graph);
  std::string Indent(int extra = 0) const { return std::string(2 * (depth_ + extra), ' '); }

  Style style_;
  std::string text_;
  int depth_ = 0;
  mutable int64_t elided_ = 0;  // tensors that were printed as `...`
};

}  // namespace pagefuse
