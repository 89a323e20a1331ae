// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/dot.h"

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// A string of Graphviz's; `\n` in it starts a new line.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string TypeOf(const Value& value) {
  if (value.dtype() == DataType::kUndefined) return "";
  return StrCat(DataTypeName(value.dtype()), value.shape() ? value.shape()->ToString() : "");
}

std::string OpOf(const Node& node) {
  return StrCat(node.domain(), node.domain().empty() ? "" : ".", node.op_type());
}

bool IsLeftOut(const Node& node) { return node.Is("Constant"); }

class DotPrinter {
 public:
  std::string Run(const Graph& graph) {
    StrAppend(&text_, "digraph ", Quoted(graph.name), " {\n  node [shape=box];\n");
    Body(graph, "  ");
    text_ += edges_;
    return text_ + "}\n";
  }

 private:
  // Declares the inputs, nodes and outputs of one graph; arrows follow at the end, where they draw
  // no node into a cluster.
  void Body(const Graph& graph, const std::string& indent) {
    for (const Value* input : graph.inputs()) {
      if (input->initializer() != nullptr) continue;
      const std::string id = Declare(indent, Label(*input), "oval");
      sources_[input] = id;
    }
    for (const auto& node : graph.nodes()) {
      if (!IsLeftOut(*node)) AddNode(*node, indent);
    }
    for (const Value* output : graph.outputs()) {
      const std::string id = Declare(indent, Label(*output), "oval");
      Arrow(*output, id);
    }
  }

  void AddNode(const Node& node, const std::string& indent) {
    const std::string label = StrCat(OpOf(node), node.name.empty() ? "" : "\n", node.name);
    const std::string id = Declare(indent, label, "");
    for (const Value* input : node.inputs()) {
      if (input != nullptr) Arrow(*input, id);
    }
    for (const Value* output : node.outputs()) {
      if (output != nullptr) sources_[output] = id;
    }
    for (const auto& [name, attribute] : node.attributes()) {
      if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) {
        Cluster(**graph, name, id, indent);
      } else if (const auto* list = std::get_if<Attribute::Graphs>(&attribute.value)) {
        for (const auto& graph : *list) Cluster(*graph, name, id, indent);
      }
    }
  }

  // A frame around a subgraph, and a dashed arrow from its holder to a point inside.
  void Cluster(const Graph& graph, std::string_view attribute, const std::string& holder,
               const std::string& indent) {
    const std::string inner = indent + "  ";
    StrAppend(&text_, indent, "subgraph cluster_", next_cluster_++, " {\n", inner,
              "label=", Quoted(StrCat(attribute, ": ", graph.name)), ";\n");
    const std::string point = Declare(inner, "", "point");
    StrAppend(&edges_, "  ", holder, " -> ", point, " [style=dashed];\n");
    Body(graph, inner);
    StrAppend(&text_, indent, "}\n");
  }

  static std::string Label(const Value& value) {
    const std::string type = TypeOf(value);
    return StrCat(value.name(), type.empty() ? "" : "\n", type);
  }

  std::string Declare(const std::string& indent, const std::string& label, std::string_view shape) {
    const std::string id = StrCat("n", next_id_++);
    StrAppend(&text_, indent, id, " [label=", Quoted(label), shape.empty() ? "" : ", shape=", shape,
              "];\n");
    return id;
  }

  // From what makes the value; nothing for initialisers and constants.
  void Arrow(const Value& value, const std::string& reader) {
    const auto source = sources_.find(&value);
    if (source == sources_.end()) return;
    StrAppend(&edges_, "  ", source->second, " -> ", reader, " [label=", Quoted(Label(value)),
              "];\n");
  }

  std::string text_;
  std::string edges_;
  absl::flat_hash_map<const Value*, std::string> sources_;
  int next_id_ = 0;
  int next_cluster_ = 0;
};

}  // namespace

std::string PrintDot(const Graph& graph) { return DotPrinter().Run(graph); }

}  // namespace pagefuse
