// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/text/text_parser.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

std::string DescribeToken(const Token& token) {
  constexpr size_t kMaxShown = 40;
  std::string shown;
  // Quotes stay as they are, what cannot be shown becomes \x...
  for (const char c : token.text.substr(0, kMaxShown)) {
    const bool plain = absl::ascii_isprint(static_cast<unsigned char>(c));
    shown += plain ? std::string(1, c) : absl::CHexEscape(std::string(1, c));
  }
  if (token.text.size() > kMaxShown) shown += "...";
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the text";
    case TokenKind::kString:
      return StrCat("string ", shown);
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return StrCat("number ", shown);
    case TokenKind::kIdentifier:
    case TokenKind::kPunctuation:
    case TokenKind::kError:
      break;
  }
  return StrCat("\"", shown, "\"");
}

}  // namespace

// --- tokens ---

bool TextParser::Matches(std::string_view punctuation) {
  if (!lexer_.Peek().Is(punctuation)) return false;
  lexer_.Next();
  return true;
}

absl::Status TextParser::Expect(std::string_view punctuation) {
  if (Matches(punctuation)) return absl::OkStatus();
  return Unexpected(StrCat("\"", punctuation, "\""));
}

absl::Status TextParser::Unexpected(std::string_view expected) const {
  const Token& token = lexer_.Peek();
  if (token.kind == TokenKind::kError) {
    return lexer_.Error(
        token, StrCat("expected ", expected, ", got ", token.error, " ", DescribeToken(token)));
  }
  return lexer_.Error(token, StrCat("expected ", expected, ", got ", DescribeToken(token)));
}

bool TextParser::NextIsName() const {
  const TokenKind kind = lexer_.Peek().kind;
  return kind == TokenKind::kIdentifier || kind == TokenKind::kString;
}

absl::StatusOr<std::string> TextParser::ParseName(std::string_view what) {
  if (!NextIsName()) return Unexpected(what);
  const Token token = lexer_.Next();
  return token.kind == TokenKind::kString ? StringValue(token) : std::string(token.text);
}

absl::StatusOr<std::string> TextParser::ParseString() {
  if (lexer_.Peek().kind != TokenKind::kString) return Unexpected("a string in double quotes");
  return StringValue(lexer_.Next());
}

absl::StatusOr<int64_t> TextParser::ParseInteger() {
  const Token first = lexer_.Peek();
  const std::string_view sign = Matches("-") ? "-" : "";
  if (lexer_.Peek().kind != TokenKind::kInteger) return Unexpected("an integer");
  int64_t value = 0;
  const std::string digits = StrCat(sign, lexer_.Next().text);
  if (!absl::SimpleAtoi(digits, &value)) {
    return lexer_.Error(first, StrCat("expected a 64-bit integer, got ", digits));
  }
  return value;
}

absl::Status TextParser::EnterNesting(int& depth) {
  if (++depth <= kMaxDepth) return absl::OkStatus();
  return lexer_.Error(lexer_.Peek(), StrCat("nested deeper than ", kMaxDepth, " levels"));
}

// --- headers ---

// `<key: value, key: value>`, where parse_key(key) reads what follows the colon.
template <typename ParseKey>
absl::Status TextParser::ParseHeader(ParseKey parse_key) {
  if (!Matches("<")) return absl::OkStatus();
  std::vector<std::string_view> seen;
  do {
    const Token key = lexer_.Peek();
    if (key.kind != TokenKind::kIdentifier) return Unexpected("a key of the header");
    if (std::ranges::find(seen, key.text) != seen.end()) {
      return lexer_.Error(key, StrCat("\"", key.text, "\" is given twice"));
    }
    seen.push_back(key.text);
    lexer_.Next();
    PF_RETURN_IF_ERROR(Expect(":"));
    PF_RETURN_IF_ERROR(parse_key(key));
  } while (Matches(","));
  return Expect(">");
}

absl::Status TextParser::ParseModelKey(const Token& key, Model& model) {
  if (key.text == "ir_version") {
    PF_ASSIGN_OR_RETURN(model.ir_version, ParseInteger());
  } else if (key.text == "opset_import") {
    return ParseOpsetImports(model.opset_imports);
  } else if (key.text == "producer_name") {
    PF_ASSIGN_OR_RETURN(model.producer_name, ParseString());
  } else if (key.text == "producer_version") {
    PF_ASSIGN_OR_RETURN(model.producer_version, ParseString());
  } else if (key.text == "domain") {
    PF_ASSIGN_OR_RETURN(model.domain, ParseString());
  } else if (key.text == "model_version") {
    PF_ASSIGN_OR_RETURN(model.model_version, ParseInteger());
  } else if (key.text == "doc_string") {
    PF_ASSIGN_OR_RETURN(model.doc_string, ParseString());
  } else if (key.text == "metadata_props") {
    return ParseMetadata(model.metadata);
  } else if (key.text == "unknown_fields") {
    return ParseHexBytes(model.unknown_fields);
  } else {
    return lexer_.Error(
        key, StrCat("expected ir_version, opset_import, producer_name, producer_version, "
                    "domain, model_version, doc_string, metadata_props or unknown_fields, "
                    "got ",
                    DescribeToken(key)));
  }
  return absl::OkStatus();
}

absl::Status TextParser::ParseFunctionKey(const Token& key, Function& function) {
  if (key.text == "domain") {
    PF_ASSIGN_OR_RETURN(function.domain, ParseString());
  } else if (key.text == "overload") {
    PF_ASSIGN_OR_RETURN(function.overload, ParseString());
  } else if (key.text == "opset_import") {
    return ParseOpsetImports(function.opset_imports);
  } else if (key.text == "doc_string") {
    PF_ASSIGN_OR_RETURN(function.doc_string, ParseString());
  } else if (key.text == "metadata_props") {
    return ParseMetadata(function.metadata);
  } else if (key.text == "unknown_fields") {
    return ParseHexBytes(function.unknown_fields);
  } else {
    return lexer_.Error(key, StrCat("expected domain, overload, opset_import, doc_string, "
                                    "metadata_props or unknown_fields, got ",
                                    DescribeToken(key)));
  }
  return absl::OkStatus();
}

absl::Status TextParser::ParseOpsetImports(std::map<std::string, int64_t>& imports) {
  PF_RETURN_IF_ERROR(Expect("["));
  if (Matches("]")) return absl::OkStatus();
  do {
    const Token place = lexer_.Peek();
    PF_ASSIGN_OR_RETURN(std::string domain, ParseString());
    PF_RETURN_IF_ERROR(Expect(":"));
    const Token version_place = lexer_.Peek();
    PF_ASSIGN_OR_RETURN(const int64_t version, ParseInteger());
    if (version < 1) {
      return lexer_.Error(version_place,
                          StrCat("expected an opset version of 1 or more, got ", version));
    }
    if (!imports.emplace(domain, version).second) {
      return lexer_.Error(place, StrCat("domain \"", domain, "\" is imported twice"));
    }
  } while (Matches(","));
  return Expect("]");
}

absl::Status TextParser::ParseMetadata(Metadata& metadata) {
  PF_RETURN_IF_ERROR(Expect("["));
  if (Matches("]")) return absl::OkStatus();
  do {
    PF_ASSIGN_OR_RETURN(std::string key, ParseString());
    PF_RETURN_IF_ERROR(Expect(":"));
    PF_ASSIGN_OR_RETURN(std::string value, ParseString());
    metadata.emplace_back(std::move(key), std::move(value));
  } while (Matches(","));
  return Expect("]");
}

absl::Status TextParser::ParseHexBytes(std::string& bytes) {
  const Token place = lexer_.Peek();
  PF_ASSIGN_OR_RETURN(const std::string hex, ParseString());
  const bool good = hex.size() % 2 == 0 && std::ranges::all_of(hex, [](char c) {
                      return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                    });
  if (!good) return lexer_.Error(place, "expected an even number of hexadecimal digits");
  bytes = absl::HexStringToBytes(hex);
  return absl::OkStatus();
}

bool TextParser::NextIsProperty() const {
  if (lexer_.Peek(0).kind != TokenKind::kIdentifier || !lexer_.Peek(1).Is(":")) return false;
  return lexer_.Peek(2).kind == TokenKind::kString || lexer_.Peek(2).Is("[");
}

bool TextParser::NextIsProperties() const {
  if (!lexer_.Peek(0).Is("<") || !lexer_.Peek(2).Is(":")) return false;
  const std::string_view key = lexer_.Peek(1).text;
  return key == "doc_string" || key == "metadata_props" || key == "unknown_fields";
}

absl::Status TextParser::ParseProperty(Properties& properties) {
  const Token key = lexer_.Peek();
  if (key.kind != TokenKind::kIdentifier)
    return Unexpected("doc_string, metadata_props or unknown_fields");
  if (std::ranges::find(properties.seen, key.text) != properties.seen.end()) {
    return lexer_.Error(key, StrCat("\"", key.text, "\" is given twice"));
  }
  properties.seen.push_back(key.text);
  lexer_.Next();
  PF_RETURN_IF_ERROR(Expect(":"));
  if (key.text == "doc_string") {
    PF_ASSIGN_OR_RETURN(properties.doc_string, ParseString());
    return absl::OkStatus();
  }
  if (key.text == "metadata_props") return ParseMetadata(properties.metadata);
  if (key.text == "unknown_fields") return ParseHexBytes(properties.unknown_fields);
  return lexer_.Error(key, StrCat("expected doc_string, metadata_props or unknown_fields, got ",
                                  DescribeToken(key)));
}

absl::Status TextParser::ParseOptionalProperties(Properties& properties) {
  if (!NextIsProperties()) return absl::OkStatus();
  PF_RETURN_IF_ERROR(Expect("<"));
  do {
    PF_RETURN_IF_ERROR(ParseProperty(properties));
  } while (Matches(","));
  return Expect(">");
}

// --- models and functions ---

absl::StatusOr<Model> TextParser::ParseModel() {
  Model model;
  PF_RETURN_IF_ERROR(ParseHeader([&](const Token& key) { return ParseModelKey(key, model); }));
  model.graph = std::make_shared<Graph>();
  PF_RETURN_IF_ERROR(ParseGraphInto(*model.graph));
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  while (lexer_.Peek().kind != TokenKind::kEnd) {
    const Token place = lexer_.Peek();
    PF_ASSIGN_OR_RETURN(Function function, ParseFunctionRest());
    if (function.name.empty()) return lexer_.Error(place, "expected a function with a name");
    if (!seen.emplace(function.domain, function.name, function.overload).second) {
      return lexer_.Error(place, StrCat("function \"", function.name, "\" of domain \"",
                                        function.domain, "\" is defined twice"));
    }
    model.functions.push_back(std::move(function));
  }
  return model;
}

absl::StatusOr<Function> TextParser::ParseFunction() {
  PF_ASSIGN_OR_RETURN(Function function, ParseFunctionRest());
  if (lexer_.Peek().kind != TokenKind::kEnd) return Unexpected("the end of the text");
  return function;
}

absl::StatusOr<Function> TextParser::ParseFunctionRest() {
  Function function;
  PF_RETURN_IF_ERROR(
      ParseHeader([&](const Token& key) { return ParseFunctionKey(key, function); }));
  if (!lexer_.Peek().Is("(")) {
    PF_ASSIGN_OR_RETURN(function.name, ParseName("the name of a function"));
  }
  PF_RETURN_IF_ERROR(ParseFunctionAttributes(function));
  function.body = std::make_shared<Graph>();
  function.body->name = function.name;
  PF_RETURN_IF_ERROR(ParseGraphRest(*function.body, /*is_function=*/true));
  return function;
}

absl::Status TextParser::ParseFunctionAttributes(Function& function) {
  if (!Matches("<")) return absl::OkStatus();
  if (Matches(">")) return absl::OkStatus();
  absl::flat_hash_set<std::string> seen;
  do {
    const Token place = lexer_.Peek();
    std::string name;
    if (lexer_.Peek(1).Is(":") || lexer_.Peek(1).Is("=")) {
      PF_RETURN_IF_ERROR(ParseAttribute(function.defaults));
      name = function.defaults.back().first;
    } else {
      PF_ASSIGN_OR_RETURN(name, ParseName("the name of an attribute"));
      function.attributes.push_back(name);
    }
    if (!seen.insert(name).second) {
      return lexer_.Error(place, StrCat("attribute \"", name, "\" is given twice"));
    }
  } while (Matches(","));
  return Expect(">");
}

absl::StatusOr<Function> ParsePlainFunction(std::string_view text) {
  return TextParser(text, /*protos=*/nullptr).ParseFunction();
}

}  // namespace pagefuse
