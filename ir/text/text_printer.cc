// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/text/text_printer.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text_lexer.h"

namespace pagefuse {
namespace {

constexpr size_t kMaxColumn = 100;

std::string PrintMetadata(const Metadata& metadata) {
  std::vector<std::string> entries;
  for (const auto& [key, value] : metadata) {
    entries.push_back(StrCat(PrintQuoted(key), ": ", PrintQuoted(value)));
  }
  return StrCat("[", absl::StrJoin(entries, ", "), "]");
}

std::string PrintOpsetImports(const std::map<std::string, int64_t>& imports) {
  std::vector<std::string> entries;
  for (const auto& [domain, version] : imports) {
    entries.push_back(StrCat(PrintQuoted(domain), " : ", version));
  }
  return StrCat("[", absl::StrJoin(entries, ", "), "]");
}

// The entries that models, functions, graphs, nodes and values share; nothing for what is empty.
void AppendProperties(const std::string& doc_string, const Metadata& metadata,
                      const std::string& unknown_fields, std::vector<std::string>& entries) {
  if (!doc_string.empty()) entries.push_back(StrCat("doc_string: ", PrintQuoted(doc_string)));
  if (!metadata.empty()) entries.push_back(StrCat("metadata_props: ", PrintMetadata(metadata)));
  if (!unknown_fields.empty()) {
    entries.push_back(StrCat("unknown_fields: \"", absl::BytesToHexString(unknown_fields), "\""));
  }
}

// ` <doc_string: "...">` or nothing.
std::string PrintProperties(const std::string& doc_string, const Metadata& metadata,
                            const std::string& unknown_fields) {
  std::vector<std::string> entries;
  AppendProperties(doc_string, metadata, unknown_fields, entries);
  return entries.empty() ? "" : StrCat(" <", absl::StrJoin(entries, ", "), ">");
}

// `domain.Op:overload`; a domain that is no list of identifiers is quoted as a whole.
std::string PrintOperator(const Node& node) {
  std::string text;
  if (!node.domain().empty()) {
    const std::vector<std::string> parts = absl::StrSplit(node.domain(), '.');
    const bool plain = std::all_of(parts.begin(), parts.end(),
                                   [](const std::string& part) { return IsIdentifier(part); });
    text = StrCat(plain ? node.domain() : PrintQuoted(node.domain()), ".");
  }
  StrAppend(&text, IsIdentifier(node.op_type()) ? node.op_type() : PrintQuoted(node.op_type()));
  if (!node.overload.empty()) StrAppend(&text, ":", PrintName(node.overload));
  return text;
}

std::string PrintNames(const std::vector<Value*>& values) {
  return absl::StrJoin(values, ", ", [](std::string* text, const Value* value) {
    StrAppend(text, value == nullptr ? "\"\"" : PrintName(value->name()));
  });
}

// The dims that the type of the value says are those of its initialiser.
bool TypeIsThatOfInitializer(const Value& value) {
  return value.shape() && *value.shape() == Shape::FromInts(value.initializer()->dims()) &&
         value.dtype() == value.initializer()->dtype();
}

}  // namespace

// --- models and functions ---

void TextPrinter::Header(const Lines& entries) {
  const std::string line = absl::StrJoin(entries, ", ");
  if (line.size() + 2 <= kMaxColumn) {
    StrAppend(&text_, "<", line, ">\n");
  } else {
    StrAppend(&text_, "<\n  ", absl::StrJoin(entries, ",\n  "), "\n>\n");
  }
}

void TextPrinter::PrintModel(const Model& model) {
  Lines entries = {StrCat("ir_version: ", model.ir_version),
                   StrCat("opset_import: ", PrintOpsetImports(model.opset_imports))};
  auto add = [&entries](std::string_view key, const std::string& value) {
    if (!value.empty()) entries.push_back(StrCat(key, ": ", PrintQuoted(value)));
  };
  add("producer_name", model.producer_name);
  add("producer_version", model.producer_version);
  add("domain", model.domain);
  if (model.model_version != 0) entries.push_back(StrCat("model_version: ", model.model_version));
  AppendProperties(model.doc_string, model.metadata, model.unknown_fields, entries);
  Header(entries);
  PrintGraph(*model.graph, /*is_function=*/false, PrintName(model.graph->name));
  text_ += "\n";
  for (const Function& function : model.functions) {
    text_ += "\n";
    PrintFunction(function);
  }
  if (elided_ == 0) return;
  text_ = StrCat(
      "# ", elided_, elided_ == 1 ? " tensor is" : " tensors are",
      " left out, as \"...\": what reads this text knows types and dims of them, but has no ",
      "data to run on.\n", text_);
}

void TextPrinter::PrintFunction(const Function& function) {
  Lines entries;
  if (!function.domain.empty()) entries.push_back(StrCat("domain: ", PrintQuoted(function.domain)));
  if (!function.overload.empty()) {
    entries.push_back(StrCat("overload: ", PrintQuoted(function.overload)));
  }
  if (!function.opset_imports.empty()) {
    entries.push_back(StrCat("opset_import: ", PrintOpsetImports(function.opset_imports)));
  }
  AppendProperties(function.doc_string, function.metadata, function.unknown_fields, entries);
  if (!entries.empty()) Header(entries);
  std::string head = function.name.empty() ? "" : PrintName(function.name);
  if (!function.attributes.empty() || !function.defaults.empty()) {
    Lines attributes;
    for (const std::string& name : function.attributes) attributes.push_back(PrintName(name));
    for (const auto& [name, attribute] : function.defaults) {
      TextPrinter printer(style_);
      printer.PrintAttribute(name, attribute);
      elided_ += printer.elided_;
      attributes.push_back(printer.Take());
    }
    StrAppend(&head, " <", absl::StrJoin(attributes, ", "), ">");
  }
  PrintGraph(*function.body, /*is_function=*/true, head);
  text_ += "\n";
}

// --- graphs ---

std::string TextPrinter::Declaration(const Value& value) const {
  const std::string type = PrintValueType(value);
  return StrCat(type, type.empty() ? "" : " ", PrintName(value.name()),
                PrintProperties(value.doc_string, value.metadata, value.unknown_fields));
}

std::string TextPrinter::Initializer(const Value& value) const {
  const Tensor& tensor = *value.initializer();
  return StrCat(PrintTensorType(tensor.dtype(), tensor.dims()), " ", PrintName(value.name()),
                PrintProperties(value.doc_string, value.metadata, value.unknown_fields), " = ",
                TensorData(tensor));
}

// Strings are left out of single lines only: nothing could stand in for them when they are read.
std::string TextPrinter::TensorData(const Tensor& tensor) const {
  const bool whole = tensor.dtype() == DataType::kString && !style_.one_line;
  const int64_t max_elements = whole ? -1 : style_.options.max_elements;
  if (IsElided(tensor, max_elements)) ++elided_;
  return PrintTensorData(tensor, max_elements);
}

TextPrinter::Lines TextPrinter::Declarations(const std::vector<Value*>& values, bool is_input,
                                             bool is_function) const {
  Lines lines;
  for (const Value* value : values) {
    const bool with_default = is_input && !is_function && value->initializer() != nullptr &&
                              TypeIsThatOfInitializer(*value);
    lines.push_back(with_default ? Initializer(*value) : Declaration(*value));
  }
  return lines;
}

// Initialisers, what is known of the values that nodes compute, and what the file had listed
// although it is said elsewhere.
TextPrinter::Lines TextPrinter::ValueInfos(const Graph& graph, bool is_function) const {
  Lines lines;
  for (const Value* value : graph.initializers()) {
    const bool printed = value->is_input() && TypeIsThatOfInitializer(*value);
    if (!is_function && !printed) lines.push_back(Initializer(*value));
  }
  if (!style_.options.value_infos) return lines;
  auto add_if_listed = [&](const Value* value) {
    if (value != nullptr && value->listed) lines.push_back(Declaration(*value));
  };
  for (const Value* value : graph.inputs()) add_if_listed(value);
  for (const Value* value : graph.initializers()) {
    if (!value->is_input()) add_if_listed(value);
  }
  for (const auto& node : graph.nodes()) {
    for (const Value* value : node->outputs()) {
      if (value == nullptr) continue;
      if (value->is_output()) {
        add_if_listed(value);
        continue;
      }
      std::string line = Declaration(*value);
      if (line != PrintName(value->name())) lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::string TextPrinter::List(const Lines& entries, bool one_line) const {
  if (one_line || entries.empty()) return StrCat("(", absl::StrJoin(entries, ", "), ")");
  const std::string indent = Indent(1);
  return StrCat("(\n", indent, absl::StrJoin(entries, StrCat(",\n", indent)), "\n", Indent(), ")");
}

// `name` is what stands before the inputs. Ends after the closing brace.
void TextPrinter::PrintGraph(const Graph& graph, bool is_function, std::string_view name) {
  const Lines inputs = Declarations(graph.inputs(), /*is_input=*/true, is_function);
  const Lines outputs = Declarations(graph.outputs(), /*is_input=*/false, is_function);
  const std::string line =
      StrCat(name, name.empty() ? "" : " ", List(inputs, true), " => ", List(outputs, true));
  if (Indent().size() + line.size() + 2 <= kMaxColumn) {
    text_ += line;
  } else {
    StrAppend(&text_, name, name.empty() ? "" : " ", List(inputs, false), " => ",
              List(outputs, false));
  }
  if (!is_function) {
    text_ += PrintProperties(graph.doc_string, graph.metadata, graph.unknown_fields);
  }
  const Lines infos = ValueInfos(graph, is_function);
  if (!infos.empty()) {
    const std::string separator = StrCat(",\n", Indent(1));
    StrAppend(&text_, "\n", Indent(), "<\n", Indent(1), absl::StrJoin(infos, separator), "\n",
              Indent(), ">");
  }
  text_ += " {\n";
  ++depth_;
  for (const Value* value : graph.initializers()) {
    if (is_function && value->IsConstant()) ConstantNode(*value);
  }
  for (const auto& node : graph.nodes()) {
    text_ += Indent();
    PrintNode(*node);
    text_ += "\n";
  }
  --depth_;
  StrAppend(&text_, Indent(), "}");
}

// Functions have no initialisers: a Constant node computes what passes made one.
void TextPrinter::ConstantNode(const Value& value) {
  StrAppend(&text_, Indent(), PrintName(value.name()), " = Constant <");
  PrintAttribute("value", Attribute{.value = *value.initializer()});
  text_ += "> ()\n";
}

void TextPrinter::PrintNode(const Node& node) {
  if (!node.name.empty()) StrAppend(&text_, "[", PrintName(node.name), "] ");
  const std::string outputs = PrintNames(node.outputs());
  StrAppend(&text_, outputs, outputs.empty() ? "" : " ", "= ", PrintOperator(node));
  // Subgraphs are long, so that the inputs are easier to find before them.
  const bool attributes_last = !node.Subgraphs().empty();
  if (!attributes_last) Attributes(node);
  StrAppend(&text_, " (", PrintNames(node.inputs()), ")");
  if (attributes_last) Attributes(node);
  text_ += PrintProperties(node.doc_string, node.metadata, node.unknown_fields);
}

void TextPrinter::Subgraph(const Graph& graph) {
  if (style_.one_line) {
    StrAppend(&text_, PrintName(graph.name), " {...}");
    return;
  }
  PrintGraph(graph, /*is_function=*/false, PrintName(graph.name));
}

// --- attributes ---

void TextPrinter::Attributes(const Node& node) {
  if (node.attributes().empty()) return;
  text_ += " <";
  std::string_view separator = "";
  for (const auto& [name, attribute] : node.attributes()) {
    StrAppend(&text_, separator);
    PrintAttribute(name, attribute);
    separator = ", ";
  }
  text_ += ">";
}

void TextPrinter::PrintAttribute(std::string_view name, const Attribute& attribute) {
  text_ += IsIdentifier(name) ? std::string(name) : PrintQuoted(name);
  if (const auto* opaque = std::get_if<OpaqueAttribute>(&attribute.value)) {
    StrAppend(&text_, PrintOpaqueAttribute(name, *opaque));
  } else {
    AttributeValue(attribute);
  }
  text_ += PrintProperties(attribute.doc_string, {}, attribute.unknown_fields);
}

// --- text.h ---

std::string PrintModel(const Model& model, const PrintOptions& options) {
  TextPrinter printer({.options = options});
  printer.PrintModel(model);
  return printer.Take();
}

std::string PrintFunction(const Function& function, const PrintOptions& options) {
  TextPrinter printer({.options = options});
  printer.PrintFunction(function);
  return printer.Take();
}

std::string PrintGraph(const Graph& graph, const PrintOptions& options) {
  TextPrinter printer({.options = options});
  printer.PrintGraph(graph, /*is_function=*/false, PrintName(graph.name));
  return printer.Take() + "\n";
}

std::string PrintNode(const Node& node) {
  constexpr int64_t kMaxElements = 16;
  TextPrinter printer({.options = {.max_elements = kMaxElements}, .one_line = true});
  printer.PrintNode(node);
  return printer.Take();
}

}  // namespace pagefuse
