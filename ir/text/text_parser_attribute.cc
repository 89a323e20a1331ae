// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes and defaults of functions.
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text_attribute_types.h"
#include "pagefuse/ir/text/text_parser.h"

namespace pagefuse {

// The empty list of a list type.
absl::StatusOr<Attribute> TextParser::EmptyList(int type) const {
  switch (type) {
    case kFloatsAttribute:
      return Attribute{.value = std::vector<float>()};
    case kIntsAttribute:
      return Attribute{.value = std::vector<int64_t>()};
    case kStringsAttribute:
      return Attribute{.value = std::vector<std::string>()};
    case kTensorsAttribute:
      return Attribute{.value = std::vector<Tensor>()};
    case kGraphsAttribute:
      return Attribute{.value = Attribute::Graphs()};
    default:
      if (protos_ == nullptr) return Unexpected("no list of types");
      return Attribute{.value = protos_->EmptyAttribute(type)};
  }
}

// `<name: type = value, ...>`, in which properties of the node may stand too.
absl::Status TextParser::ParseAttributeList(AttributeList& list) {
  if (!Matches("<") || Matches(">")) return absl::OkStatus();
  absl::flat_hash_set<std::string> seen;
  for (const NamedAttribute& attribute : list.attributes) seen.insert(attribute.first);
  do {
    if (NextIsProperty()) {
      PF_RETURN_IF_ERROR(ParseProperty(list.properties));
      continue;
    }
    const Token place = lexer_.Peek();
    PF_RETURN_IF_ERROR(ParseAttribute(list.attributes));
    const std::string& name = list.attributes.back().first;
    if (!seen.insert(name).second) {
      return lexer_.Error(place, StrCat("attribute \"", name, "\" is given twice"));
    }
  } while (Matches(","));
  return Expect(">");
}

absl::Status TextParser::ParseAttribute(std::vector<NamedAttribute>& attributes) {
  PF_ASSIGN_OR_RETURN(std::string name, ParseName("the name of an attribute"));
  int type = 0;
  bool is_proto = false;
  if (Matches(":")) {
    is_proto = protos_ != nullptr && lexer_.Peek().text == "proto";
    if (is_proto) {
      lexer_.Next();
    } else {
      PF_ASSIGN_OR_RETURN(type, ParseAttributeType());
    }
  }
  PF_RETURN_IF_ERROR(Expect("="));
  Attribute attribute;
  if (is_proto) {
    // An AttributeProto that the syntax cannot say, as hexadecimal bytes.
    const Token place = lexer_.Peek();
    OpaqueAttribute opaque;
    PF_RETURN_IF_ERROR(ParseHexBytes(opaque.proto));
    if (!protos_->IsAttribute(opaque.proto)) {
      return lexer_.Error(place, "expected a serialised AttributeProto");
    }
    attribute.value = std::move(opaque);
  } else {
    PF_ASSIGN_OR_RETURN(attribute, ParseAttributeValue(type));
    if (auto* opaque = std::get_if<OpaqueAttribute>(&attribute.value)) {
      *opaque = protos_->Named(*opaque, name);
    }
  }
  Properties properties;
  PF_RETURN_IF_ERROR(ParseOptionalProperties(properties));
  attribute.doc_string = std::move(properties.doc_string);
  attribute.unknown_fields = std::move(properties.unknown_fields);
  attributes.emplace_back(std::move(name), std::move(attribute));
  return absl::OkStatus();
}

absl::StatusOr<int> TextParser::ParseAttributeType() {
  const int type = AttributeTypeFromName(lexer_.Peek().text);
  if (lexer_.Peek().kind != TokenKind::kIdentifier || type == 0) {
    return Unexpected(
        "the type of an attribute (float, int, string, tensor, graph, type_proto, "
        "their plurals, or proto)");
  }
  lexer_.Next();
  return type;
}

absl::StatusOr<Attribute> TextParser::ParseAttributeValue(int type) {
  if (lexer_.Peek().Is("[")) return ParseItems(type);
  if (Matches("@")) {
    PF_ASSIGN_OR_RETURN(std::string name, ParseName("the name of an attribute of the function"));
    return Attribute{.value = AttributeRef{std::move(name), type}};
  }
  if (IsListType(type)) return Unexpected("\"[\" or \"@\"");
  return ParseItem(type);
}

absl::StatusOr<Attribute> TextParser::ParseItems(int type) {
  if (type != 0 && !IsListType(type)) {
    return Unexpected(StrCat("one value of type ", AttributeTypeName(type)));
  }
  PF_RETURN_IF_ERROR(Expect("["));
  if (lexer_.Peek().Is("]")) {
    if (type == 0)
      return lexer_.Error(lexer_.Peek(), "an empty list needs a type, as in \"x: ints = []\"");
    lexer_.Next();
    return EmptyList(type);
  }
  Attribute list;
  std::vector<OpaqueAttribute> types;
  bool first = true;
  do {
    const Token place = lexer_.Peek();
    PF_ASSIGN_OR_RETURN(Attribute item, ParseItem(ItemType(type)));
    if (first) {
      PF_ASSIGN_OR_RETURN(list, EmptyList(ListType(AttributeTypeOf(item))));
    }
    first = false;
    if (const auto* type_item = std::get_if<OpaqueAttribute>(&item.value)) {
      types.push_back(*type_item);
    }
    PF_RETURN_IF_ERROR(AppendItem(list, std::move(item), place));
  } while (Matches(","));
  PF_RETURN_IF_ERROR(Expect("]"));
  if (types.empty()) return list;
  return Attribute{.value = protos_->TypeList(types)};
}

// Adds an item to a list of its kind. Integers among floats become floats.
absl::Status TextParser::AppendItem(Attribute& list, Attribute item, const Token& place) {
  if (const auto* tensors = std::get_if<std::vector<Tensor>>(&list.value);
      tensors != nullptr && !item.tensor_fields.empty()) {
    list.tensor_fields.resize(tensors->size());
    list.tensor_fields.push_back(std::move(item.tensor_fields[0]));
  }
  auto append = [&]<typename T>(const T&) {
    auto* items = std::get_if<std::vector<T>>(&list.value);
    auto* value = std::get_if<T>(&item.value);
    if (items == nullptr || value == nullptr) return false;
    items->push_back(std::move(*value));
    return true;
  };
  if (const auto* number = std::get_if<int64_t>(&item.value);
      number != nullptr && std::holds_alternative<std::vector<float>>(list.value)) {
    item.value = static_cast<float>(*number);
  }
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&list.value);
      integers != nullptr && std::holds_alternative<float>(item.value)) {
    list.value = std::vector<float>(integers->begin(), integers->end());
  }
  const int list_type = AttributeTypeOf(list);
  const int item_type = AttributeTypeOf(item);
  if (append(float()) || append(int64_t()) || append(std::string()) || append(Tensor()) ||
      append(std::shared_ptr<Graph>())) {
    return absl::OkStatus();
  }
  if (ListType(item_type) == list_type) return absl::OkStatus();  // types, which the caller keeps
  return lexer_.Error(place,
                      StrCat("expected an item of type ", AttributeTypeName(ItemType(list_type)),
                             " as before, got ", AttributeTypeName(item_type)));
}

absl::StatusOr<Attribute> TextParser::ParseItem(int type) {
  const Token place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(Attribute item, ParseUncheckedItem(type));
  const int got = AttributeTypeOf(item);
  if (type == 0 || type == got) return item;
  return lexer_.Error(place, StrCat("expected a value of type ", AttributeTypeName(type), ", got ",
                                    AttributeTypeName(got)));
}

absl::StatusOr<Attribute> TextParser::ParseUncheckedItem(int type) {
  const Token& next = lexer_.Peek();
  if (next.kind == TokenKind::kString && !lexer_.Peek(1).Is("(")) {
    return Attribute{.value = StringValue(lexer_.Next())};
  }
  if (next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat || next.Is("-") ||
      (next.kind == TokenKind::kIdentifier && IsFloatWord(next.text))) {
    return ParseNumber(type);
  }
  if (NextIsType()) return ParseTensorOrType();
  if (!NextIsName()) return Unexpected("the value of an attribute");
  PF_ASSIGN_OR_RETURN(std::shared_ptr<Graph> graph, ParseSubgraph());
  return Attribute{.value = std::move(graph)};
}

absl::StatusOr<Attribute> TextParser::ParseNumber(int type) {
  const Token& digits = lexer_.Peek(lexer_.Peek().Is("-") ? 1 : 0);
  if (digits.kind == TokenKind::kInteger && type != kFloatAttribute) {
    PF_ASSIGN_OR_RETURN(const int64_t value, ParseInteger());
    return Attribute{.value = value};
  }
  PF_ASSIGN_OR_RETURN(const float value, ParseFloat<float>());
  return Attribute{.value = value};
}

// `float[2] {1, 2}`, `float[2] name {1, 2}`, or a type alone.
absl::StatusOr<Attribute> TextParser::ParseTensorOrType() {
  const Token place = lexer_.Peek();
  TextType type;
  PF_RETURN_IF_ERROR(ParseType(type));
  const Token& next = lexer_.Peek();
  if (next.Is("{") || next.Is("=") || next.Is("...") || NextIsName()) {
    std::optional<std::string> name;
    if (NextIsName()) {
      PF_ASSIGN_OR_RETURN(name, ParseName("the name of a tensor"));
    }
    Matches("=");
    PF_ASSIGN_OR_RETURN(Tensor tensor, ParseTensorData(type, place));
    Attribute attribute{.value = std::move(tensor)};
    if (name && protos_ != nullptr) {
      attribute.tensor_fields.push_back(protos_->TensorFields(*name));
    }
    return attribute;
  }
  if (protos_ == nullptr) return Unexpected("the data of a tensor");
  return Attribute{.value = protos_->TypeAttribute(type)};
}

}  // namespace pagefuse
