// SPDX-License-Identifier: Apache-2.0
#include "text_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

// Short, and the same float again when it is read.
std::string FloatText(double value) {
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
  return text;
}

std::string DimsText(const std::vector<int64_t>& dims) {
  return dims.empty() ? "" : StrCat("[", absl::StrJoin(dims, ", "), "]");
}

// The sum of twelve uniform numbers: the same on every machine, unlike std::normal_distribution.
double Normal(Random& random) {
  constexpr int kTerms = 12;
  double sum = -kTerms / 2.0;
  for (int i = 0; i < kTerms; ++i) {
    sum += static_cast<double>(random.Next() >> 11) * 0x1p-53;
  }
  return sum;
}

}  // namespace

std::string TextGraph::Add(const std::string& op, const std::vector<std::string>& inputs,
                           const std::string& attributes) {
  return AddMany(op, 1, inputs, attributes)[0];
}

std::vector<std::string> TextGraph::AddMany(const std::string& op, int outputs,
                                            const std::vector<std::string>& inputs,
                                            const std::string& attributes) {
  Node node{.op = op, .attributes = attributes, .inputs = inputs, .outputs = {}};
  for (int i = 0; i < outputs; ++i) node.outputs.push_back(NewName("v"));
  nodes_.push_back(node);
  return node.outputs;
}

std::string TextGraph::Weights(const std::vector<int64_t>& dims, double deviation) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<std::string> values;
  for (int64_t i = 0; i < count; ++i) {
    // Short to read, and exact.
    values.push_back(FloatText(std::round(Normal(random_) * deviation * 32) / 32));
  }
  const std::string name = NewName("w");
  initializers_.push_back(
      StrCat("float", DimsText(dims), " ", name, " = {", absl::StrJoin(values, ", "), "}"));
  return name;
}

std::string TextGraph::Floats(const std::vector<int64_t>& dims, const std::vector<double>& values) {
  const std::string body = absl::StrJoin(
      values, ", ", [](std::string* out, double value) { out->append(FloatText(value)); });
  const std::string key = StrCat("float", DimsText(dims), "{", body, "}");
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const std::string name = NewName("f");
  initializers_.push_back(StrCat("float", DimsText(dims), " ", name, " = {", body, "}"));
  return known_[key] = name;
}

std::string TextGraph::Integers(const std::string& type, const std::vector<int64_t>& dims,
                                const std::vector<int64_t>& values) {
  const std::string body = absl::StrJoin(values, ", ");
  const std::string key = StrCat(type, DimsText(dims), "{", body, "}");
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const std::string name = NewName("c");
  initializers_.push_back(StrCat(type, DimsText(dims), " ", name, " = {", body, "}"));
  return known_[key] = name;
}

std::string TextGraph::Ints(const std::vector<int64_t>& values) {
  if (!options_.constants_are_nodes) {
    return Integers("int64", {static_cast<int64_t>(values.size())}, values);
  }
  return Add("Constant", {}, StrCat("value_ints: ints = [", absl::StrJoin(values, ", "), "]"));
}

std::string TextGraph::Int(int64_t value) {
  if (!options_.constants_are_nodes) return Integers("int64", {}, {value});
  return Add("Constant", {}, StrCat("value_int: int = ", value));
}

std::string TextGraph::Float(double value) {
  if (!options_.constants_are_nodes || std::isinf(value)) return Floats({}, {value});
  return Add("Constant", {}, StrCat("value_float: float = ", FloatText(value)));
}

std::string TextGraph::Input(const std::string& type, const std::string& name) {
  inputs_.push_back({type, name});
  return name;
}

void TextGraph::Output(const std::string& type, const std::string& value, const std::string& name) {
  outputs_.push_back({type, name});
  nodes_.push_back({.op = "Identity", .attributes = "", .inputs = {value}, .outputs = {name}});
}

bool TextGraph::HasInput(const std::string& name) const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const Port& port) { return port.name == name; });
}

std::vector<std::string> TextGraph::input_names() const {
  std::vector<std::string> names;
  for (const Port& port : inputs_) names.push_back(Printed(port.name));
  return names;
}

void TextGraph::ShuffleInputs(Random& random) {
  for (size_t i = inputs_.size(); i > 1; --i) std::swap(inputs_[i - 1], inputs_[random.Below(i)]);
}

void TextGraph::RenameInput(const std::string& name, const std::string& to) { renamed_[name] = to; }

std::string TextGraph::Printed(const std::string& name) const {
  if (name.empty()) return "\"\"";
  const auto other = renamed_.find(name);
  return other == renamed_.end() ? name : other->second;
}

std::string TextGraph::Joined(const std::vector<std::string>& names) const {
  return absl::StrJoin(names, ", ", [this](std::string* out, const std::string& name) {
    out->append(Printed(name));
  });
}

std::string TextGraph::Text(int64_t opset) const {
  const auto ports = [this](const std::vector<Port>& list) {
    return absl::StrJoin(list, ", ", [this](std::string* out, const Port& port) {
      StrAppend(out, port.type, " ", Printed(port.name));
    });
  };
  std::string text =
      StrCat("<ir_version: 10, opset_import: [\"\" : ", opset, ", \"com.microsoft\" : 1]>\n",
             "decoder (", ports(inputs_), ")\n  => (", ports(outputs_), ")\n<\n  ",
             absl::StrJoin(initializers_, ",\n  "), "\n>\n{\n");
  for (const Node& node : nodes_) {
    StrAppend(&text, "  ", Joined(node.outputs), " = ", node.op,
              node.attributes.empty() ? "" : StrCat(" <", node.attributes, ">"), " (",
              Joined(node.inputs), ")\n");
  }
  return text + "}\n";
}

}  // namespace pagefuse::fuzz
