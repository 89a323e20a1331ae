// SPDX-License-Identifier: Apache-2.0
// The parser behind text.h: recursive descent over the tokens of text_lexer.h. The grammar is in
// docs/text_form.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/text/text_lexer.h"
#include "pagefuse/ir/text/text_type.h"

namespace pagefuse {

// One use: make one for a text, call one Parse function.
class TextParser {
 public:
  // Without `protos` all types are those of tensors, and no attribute is kept as bytes.
  TextParser(std::string_view text, const TextProtos* protos) : lexer_(text), protos_(protos) {}

  absl::StatusOr<Model> ParseModel();
  absl::StatusOr<Function> ParseFunction();
  // A type alone.
  absl::StatusOr<TextType> ParseWholeType();

 private:
  // Subgraphs may nest this deep, types and parentheses too; the import of protobuf files has the
  // same limit.
  static constexpr int kMaxDepth = 64;

  // What `<doc_string: "...", metadata_props: [...], unknown_fields: "hex">` says of the thing
  // before it.
  struct Properties {
    std::string doc_string;
    Metadata metadata;
    std::string unknown_fields;
    std::vector<std::string_view> seen;
  };

  // `float[N] "x" <doc_string: "...">` in a list of values.
  struct Declaration {
    Token place;  // the name's
    std::string name;
    bool typed = false;
    TextType type;
    Properties properties;
  };

  // What the head of a graph says of values that the nodes define later.
  struct Signature {
    std::vector<Declaration> outputs;
    std::vector<Declaration> infos;
  };

  // --- tokens (text_parser.cc) ---
  bool Matches(std::string_view punctuation);
  absl::Status Expect(std::string_view punctuation);
  // `expected X, got Y` at the next token, or the lexer's own complaint about it.
  absl::Status Unexpected(std::string_view expected) const;
  absl::StatusOr<std::string> ParseName(std::string_view what);  // identifier or quoted
  absl::StatusOr<std::string> ParseString();
  absl::StatusOr<int64_t> ParseInteger();
  bool NextIsName() const;
  bool NextIsType() const;
  absl::Status EnterNesting(int& depth);

  // --- headers (text_parser.cc) ---
  absl::Status ParseModelKey(const Token& key, Model& model);
  absl::Status ParseFunctionKey(const Token& key, Function& function);
  template <typename ParseKey>
  absl::Status ParseHeader(ParseKey parse_key);
  absl::Status ParseOpsetImports(std::map<std::string, int64_t>& imports);
  absl::Status ParseMetadata(Metadata& metadata);
  absl::Status ParseHexBytes(std::string& bytes);
  bool NextIsProperties() const;
  bool NextIsProperty() const;
  absl::Status ParseProperty(Properties& properties);
  absl::Status ParseOptionalProperties(Properties& properties);
  absl::StatusOr<Function> ParseFunctionRest();
  absl::Status ParseFunctionAttributes(Function& function);

  // --- graphs (text_parser_graph.cc) ---
  absl::Status ParseGraphInto(Graph& graph);
  absl::Status ParseGraphRest(Graph& graph, bool is_function);
  absl::StatusOr<std::shared_ptr<Graph>> ParseSubgraph();
  absl::StatusOr<Declaration> ParseDeclaration();
  absl::Status ParseInputs(Graph& graph, bool is_function);
  absl::Status ParseOutputs(Signature& signature);
  absl::Status ParseValueInfos(Graph& graph, Signature& signature, bool is_function);
  absl::Status AddInitializer(Graph& graph, Declaration& declaration);
  absl::Status Declare(Graph& graph, Declaration& declaration);
  absl::Status Conflict(const Declaration& declaration) const;
  absl::Status ParseNode(Graph& graph);
  absl::Status ParseOperator(std::string& domain, std::string& op_type, std::string& overload);
  absl::StatusOr<std::vector<Value*>> ParseNodeInputs(Graph& graph);
  absl::StatusOr<std::vector<Value*>> DefineNodeOutputs(Graph& graph,
                                                        const std::vector<Token>& names);
  std::vector<Token> ParseNameList();
  absl::Status AddOutput(Graph& graph, const Declaration& declaration);

  // --- attributes (text_parser_attribute.cc) ---
  using NamedAttribute = std::pair<std::string, Attribute>;
  struct AttributeList {
    std::vector<NamedAttribute> attributes;
    Properties properties;
  };
  // `type` is an AttributeProto.AttributeType, 0 where the text names none.
  absl::Status ParseAttributeList(AttributeList& list);
  absl::Status ParseAttribute(std::vector<NamedAttribute>& attributes);
  absl::StatusOr<int> ParseAttributeType();
  absl::StatusOr<Attribute> ParseAttributeValue(int type);
  absl::StatusOr<Attribute> ParseItems(int type);
  absl::StatusOr<Attribute> ParseItem(int type);
  absl::StatusOr<Attribute> ParseUncheckedItem(int type);
  absl::Status AppendItem(Attribute& list, Attribute item, const Token& place);
  absl::StatusOr<Attribute> ParseNumber(int type);
  absl::StatusOr<Attribute> ParseTensorOrType();
  absl::StatusOr<Attribute> EmptyList(int type) const;
  absl::Status SetType(const TextType& type, Value& value) const;
  bool SameKind(const TextType& type, const Value& value) const;

  // --- types (text_parser_type.cc) ---
  absl::Status ParseType(TextType& type);
  absl::Status ParseTypeKeyword(std::string_view keyword, TextType& type);
  absl::Status ParseInnerType(TextType::Kind kind, TextType& type);
  absl::Status ParseProtoType(TextType& type);
  absl::Status ParseOpaqueType(TextType& type);
  absl::StatusOr<DataType> ParseElementType();
  absl::Status ParseTensorType(TextType& type);
  absl::Status ParseDim(TextType::TextDim& dim);
  absl::StatusOr<Dim> ParseDimSum();
  absl::StatusOr<Dim> ParseDimProduct();
  absl::StatusOr<Dim> ParseDimFactor();

  // --- tensor literals (text_parser_tensor.cc) ---
  absl::StatusOr<Tensor> ParseTensorData(const TextType& type, const Token& place);
  absl::StatusOr<Tensor> ParseElements(DataType type, const std::vector<int64_t>& dims);
  absl::StatusOr<Tensor> ParseStrings(const std::vector<int64_t>& dims, int64_t count);
  absl::Status ParseBraced(int64_t count, const std::function<absl::Status()>& parse_element);
  absl::StatusOr<uint64_t> ParseElementBits(DataType type);
  absl::StatusOr<uint64_t> ParseIntegerBits(DataType type);
  template <typename Float>
  absl::StatusOr<Float> ParseFloat();
  template <typename Float>
  absl::StatusOr<Float> ParseFloatWord(bool negative);

  TextLexer lexer_;
  const TextProtos* protos_;
  int graph_depth_ = 0;
  int type_depth_ = 0;
  Graph* scope_ = nullptr;  // the graph whose nodes are being read
};

}  // namespace pagefuse
