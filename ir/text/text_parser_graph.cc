// SPDX-License-Identifier: Apache-2.0
// Graphs, value infos, initialisers and nodes.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text_parser.h"

namespace pagefuse {
namespace {

// Nothing is known of the type of the value yet.
bool IsUntyped(const Value& value) {
  return value.dtype() == DataType::kUndefined && !value.shape() && value.type_proto.empty();
}

// Whether a tensor can be a value of that shape.
bool Fits(const Tensor& tensor, const Shape& shape) {
  if (shape.rank() != tensor.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i].is_constant() && *shape[i].constant() != tensor.dims()[i]) return false;
  }
  return true;
}

std::string NameOf(const Token& token) {
  return token.kind == TokenKind::kString ? StringValue(token) : std::string(token.text);
}

}  // namespace

absl::Status TextParser::ParseGraphInto(Graph& graph) {
  PF_ASSIGN_OR_RETURN(graph.name, ParseName("the name of a graph"));
  return ParseGraphRest(graph, /*is_function=*/false);
}

absl::StatusOr<std::shared_ptr<Graph>> TextParser::ParseSubgraph() {
  PF_RETURN_IF_ERROR(EnterNesting(graph_depth_));
  auto graph = std::make_shared<Graph>(scope_);
  PF_RETURN_IF_ERROR(ParseGraphInto(*graph));
  --graph_depth_;
  return graph;
}

// What follows the name: inputs, outputs, value infos, nodes.
absl::Status TextParser::ParseGraphRest(Graph& graph, bool is_function) {
  Graph* const outer = scope_;
  scope_ = &graph;
  Signature signature;
  PF_RETURN_IF_ERROR(ParseInputs(graph, is_function));
  PF_RETURN_IF_ERROR(Expect("=>"));
  PF_RETURN_IF_ERROR(ParseOutputs(signature));
  Properties properties;
  PF_RETURN_IF_ERROR(ParseOptionalProperties(properties));
  graph.doc_string = std::move(properties.doc_string);
  graph.metadata = std::move(properties.metadata);
  graph.unknown_fields = std::move(properties.unknown_fields);
  PF_RETURN_IF_ERROR(ParseValueInfos(graph, signature, is_function));
  PF_RETURN_IF_ERROR(Expect("{"));
  while (!Matches("}")) PF_RETURN_IF_ERROR(ParseNode(graph));
  for (Declaration& output : signature.outputs) {
    PF_RETURN_IF_ERROR(AddOutput(graph, output));
    PF_RETURN_IF_ERROR(Declare(graph, output));
  }
  for (Declaration& info : signature.infos) {
    PF_RETURN_IF_ERROR(Declare(graph, info));
    graph.FindValue(info.name)->listed = true;
  }
  scope_ = outer;
  return absl::OkStatus();
}

absl::StatusOr<TextParser::Declaration> TextParser::ParseDeclaration() {
  Declaration result;
  if (NextIsType()) {
    result.typed = true;
    PF_RETURN_IF_ERROR(ParseType(result.type));
  }
  result.place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(result.name, ParseName(result.typed ? "the name of a value"
                                                          : "a type or the name of a value"));
  if (result.name.empty()) return lexer_.Error(result.place, "expected a name that is not empty");
  PF_RETURN_IF_ERROR(ParseOptionalProperties(result.properties));
  return result;
}

absl::Status TextParser::ParseInputs(Graph& graph, bool is_function) {
  PF_RETURN_IF_ERROR(Expect("("));
  if (Matches(")")) return absl::OkStatus();
  do {
    PF_ASSIGN_OR_RETURN(Declaration input, ParseDeclaration());
    if (graph.FindValue(input.name) != nullptr) {
      return lexer_.Error(input.place, StrCat("value \"", input.name, "\" is defined twice"));
    }
    graph.AddInput(input.name, DataType::kUndefined, std::nullopt);
    PF_RETURN_IF_ERROR(Declare(graph, input));
    if (!is_function && lexer_.Peek().Is("=")) PF_RETURN_IF_ERROR(AddInitializer(graph, input));
  } while (Matches(","));
  return Expect(")");
}

absl::Status TextParser::ParseOutputs(Signature& signature) {
  PF_RETURN_IF_ERROR(Expect("("));
  if (Matches(")")) return absl::OkStatus();
  do {
    PF_ASSIGN_OR_RETURN(Declaration output, ParseDeclaration());
    signature.outputs.push_back(std::move(output));
  } while (Matches(","));
  return Expect(")");
}

absl::Status TextParser::ParseValueInfos(Graph& graph, Signature& signature, bool is_function) {
  if (!Matches("<") || Matches(">")) return absl::OkStatus();
  do {
    PF_ASSIGN_OR_RETURN(Declaration declaration, ParseDeclaration());
    if (!is_function && lexer_.Peek().Is("=")) {
      PF_RETURN_IF_ERROR(AddInitializer(graph, declaration));
    } else {
      signature.infos.push_back(std::move(declaration));
    }
  } while (Matches(","));
  return Expect(">");
}

// Reads `= {...}`. The value may be a graph input, which then has a default.
absl::Status TextParser::AddInitializer(Graph& graph, Declaration& declaration) {
  const std::string& name = declaration.name;
  if (!declaration.typed) {
    return lexer_.Error(declaration.place, StrCat("initializer \"", name, "\" has no type"));
  }
  PF_RETURN_IF_ERROR(Expect("="));
  PF_ASSIGN_OR_RETURN(Tensor tensor, ParseTensorData(declaration.type, declaration.place));
  Value* value = graph.FindValue(name);
  if (value == nullptr) {
    graph.AddInitializer(name, std::move(tensor));
    return Declare(graph, declaration);
  }
  if (!value->is_input() || value->initializer() != nullptr) {
    return lexer_.Error(declaration.place, StrCat("value \"", name, "\" is defined twice"));
  }
  // The input keeps its own shape, which may have symbols.
  if (value->dtype() == DataType::kUndefined) PF_RETURN_IF_ERROR(Declare(graph, declaration));
  if (value->dtype() != tensor.dtype()) return Conflict(declaration);
  if (value->shape() && !Fits(tensor, *value->shape())) {
    return lexer_.Error(declaration.place,
                        StrCat("expected an initializer of shape ", value->shape()->ToString(),
                               ", got ", DimsToString(tensor.dims())));
  }
  graph.SetInitializer(value, std::move(tensor));
  return absl::OkStatus();
}

absl::Status TextParser::Conflict(const Declaration& declaration) const {
  return lexer_.Error(declaration.place, StrCat("value \"", declaration.name,
                                                "\" is declared with two different types"));
}

// Whether a type agrees with what is known of the value, shapes aside.
bool TextParser::SameKind(const TextType& type, const Value& value) const {
  // Only with protobuf are there others than tensors.
  if (!type.is_tensor()) return protos_->TypeBytes(type) == value.type_proto;
  const bool any = value.dtype() == DataType::kUndefined && value.type_proto.empty();
  return any || value.dtype() == type.element;
}

absl::Status TextParser::SetType(const TextType& type, Value& value) const {
  if (protos_ != nullptr) return protos_->SetType(type, value);
  value.set_dtype(type.element);
  if (!type.dims) return absl::OkStatus();
  std::vector<Dim> dims;
  for (const TextType::TextDim& dim : *type.dims) {
    dims.push_back(dim.number ? Dim(*dim.number) : Dim::Parse(dim.symbol.value_or("")));
  }
  value.set_shape(Shape(std::move(dims)));
  return absl::OkStatus();
}

// Gives a value that exists what the text says of it. The first shape given stays.
absl::Status TextParser::Declare(Graph& graph, Declaration& declaration) {
  Value* const value = graph.FindValue(declaration.name);
  if (value == nullptr) {
    return lexer_.Error(declaration.place,
                        StrCat("value \"", declaration.name, "\" is not defined in this graph"));
  }
  Properties& properties = declaration.properties;
  if (!properties.doc_string.empty()) value->doc_string = std::move(properties.doc_string);
  if (!properties.metadata.empty()) value->metadata = std::move(properties.metadata);
  if (!properties.unknown_fields.empty())
    value->unknown_fields = std::move(properties.unknown_fields);
  if (!declaration.typed) return absl::OkStatus();
  if (!IsUntyped(*value)) {
    if (!SameKind(declaration.type, *value)) return Conflict(declaration);
    if (value->shape() || !declaration.type.is_tensor()) return absl::OkStatus();
  }
  const absl::Status status = SetType(declaration.type, *value);
  return status.ok() ? status : lexer_.Error(declaration.place, StdView(status.message()));
}

absl::Status TextParser::AddOutput(Graph& graph, const Declaration& declaration) {
  Value* const value = graph.FindValue(declaration.name);
  if (value == nullptr) {
    return lexer_.Error(declaration.place, StrCat("graph output \"", declaration.name,
                                                  "\" is not defined in this graph"));
  }
  graph.AddOutput(value);
  return absl::OkStatus();
}

// --- nodes ---

// Names between commas; a name that is missing before a comma is empty, a comma at the end means
// nothing.
std::vector<Token> TextParser::ParseNameList() {
  std::vector<Token> names;
  while (NextIsName() || lexer_.Peek().Is(",")) {
    Token name;
    if (NextIsName()) name = lexer_.Next();
    names.push_back(name);
    if (!Matches(",")) break;
  }
  return names;
}

absl::Status TextParser::ParseOperator(std::string& domain, std::string& op_type,
                                       std::string& overload) {
  const Token place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(op_type, ParseName("the name of an op"));
  while (Matches(".")) {
    StrAppend(&domain, domain.empty() ? "" : ".", op_type);
    PF_ASSIGN_OR_RETURN(op_type, ParseName("the name of an op"));
  }
  if (op_type.empty()) return lexer_.Error(place, "expected the name of an op that is not empty");
  if (Matches(":")) {
    PF_ASSIGN_OR_RETURN(overload, ParseName("the overload of an op"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value*>> TextParser::ParseNodeInputs(Graph& graph) {
  PF_RETURN_IF_ERROR(Expect("("));
  std::vector<Value*> inputs;
  for (const Token& token : ParseNameList()) {
    const std::string name = NameOf(token);
    Value* const value = name.empty() ? nullptr : graph.FindValueInScope(name);
    if (value == nullptr && !name.empty()) {
      return lexer_.Error(token, StrCat("value \"", name, "\" is not defined here"));
    }
    inputs.push_back(value);
  }
  PF_RETURN_IF_ERROR(Expect(")"));
  return inputs;
}

absl::StatusOr<std::vector<Value*>> TextParser::DefineNodeOutputs(Graph& graph,
                                                                  const std::vector<Token>& names) {
  std::vector<Value*> outputs;
  for (const Token& token : names) {
    std::string name = NameOf(token);
    if (name.empty()) {
      outputs.push_back(nullptr);
      continue;
    }
    if (graph.FindValue(name) != nullptr) {
      return lexer_.Error(token, StrCat("value \"", name, "\" is defined twice"));
    }
    outputs.push_back(graph.AddValue(std::move(name)));
  }
  return outputs;
}

// `[name] a, b = domain.Op:overload <attributes> (x, y) <attributes or properties>`
absl::Status TextParser::ParseNode(Graph& graph) {
  std::string label, domain, op_type, overload;
  if (Matches("[")) {
    PF_ASSIGN_OR_RETURN(label, ParseName("the name of a node"));
    PF_RETURN_IF_ERROR(Expect("]"));
  } else if (!NextIsName() && !lexer_.Peek().Is("=") && !lexer_.Peek().Is(",")) {
    return Unexpected("a node or \"}\"");
  }
  const std::vector<Token> output_names = ParseNameList();
  PF_RETURN_IF_ERROR(Expect("="));
  PF_RETURN_IF_ERROR(ParseOperator(domain, op_type, overload));
  AttributeList list;
  PF_RETURN_IF_ERROR(ParseAttributeList(list));
  PF_ASSIGN_OR_RETURN(std::vector<Value*> inputs, ParseNodeInputs(graph));
  while (lexer_.Peek().Is("<")) PF_RETURN_IF_ERROR(ParseAttributeList(list));
  PF_ASSIGN_OR_RETURN(std::vector<Value*> outputs, DefineNodeOutputs(graph, output_names));

  Node* const node = graph.AddNode(domain, op_type, std::move(inputs), std::move(outputs));
  for (auto& [name, attribute] : list.attributes) node->SetAttribute(name, std::move(attribute));
  node->name = std::move(label);
  node->overload = std::move(overload);
  node->doc_string = std::move(list.properties.doc_string);
  node->metadata = std::move(list.properties.metadata);
  node->unknown_fields = std::move(list.properties.unknown_fields);
  return absl::OkStatus();
}

}  // namespace pagefuse
