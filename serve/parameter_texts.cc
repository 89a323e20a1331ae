// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/parameter_texts.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/grammar_row.h"
#include "pagefuse/text/grammar/schema_node.h"

namespace pagefuse::serve {
namespace {

using ParameterSchema = nlohmann::ordered_json;
using GrammarOr = absl::StatusOr<Grammar::Ptr>;

// Readers take the mark without the line break behind it for the end, so that texts have none of both.
std::string_view EndMark(const ParameterText& text) {
  return text.after_string.substr(0, text.after_string.find_last_not_of('\n') + 1);
}

GrammarOr AnyTextValue(const ParameterText& text) {
  const std::string_view mark = EndMark(text);
  return InRow({Grammar::OfText(text.before_string), Grammar::Until(mark),
                Grammar::OfText(text.after_string.substr(mark.size()))});
}

GrammarOr OtherValue(const ParameterText& text, const ParameterSchema& schema) {
  return InRow({Grammar::OfText(text.before_value), Grammar::OfJsonSchema(schema),
                Grammar::OfText(text.after_value)});
}

class ParameterTexts {
 public:
  ParameterTexts(const ParameterText& text, const ParameterSchema& schema)
      : text_(text), schema_(schema) {}

  GrammarOr Make() const {
    PF_RETURN_IF_ERROR(Check());
    const ParameterSchema none = ParameterSchema::object();
    const ParameterSchema& properties =
        schema_.contains("properties") ? schema_["properties"] : none;
    std::vector<Grammar::Ptr> needed, others;
    for (const auto& [name, schema] : properties.items()) {
      auto parameter = Parameter(name, schema);
      if (!parameter.ok()) return OfProperty(name, parameter.status());
      (IsRequired(name) ? needed : others).push_back(*std::move(parameter));
    }
    return Joined(needed, others);
  }

 private:
  // What the schema says is what is made of it here.
  absl::Status Check() const {
    PF_RETURN_IF_ERROR(Grammar::OfJsonSchema(schema_).status());
    const bool is_object = schema_.is_object() && (!schema_.contains("type") || IsObjectType());
    if (!is_object) return absl::InvalidArgumentError("/type: expected a schema of objects");
    for (const char* keyword : {"$ref", "anyOf", "allOf", "enum", "const"}) {
      if (!schema_.contains(keyword)) continue;
      return absl::InvalidArgumentError(
          StrCat("/", keyword,
                 ": this model writes calls parameter by parameter: expected \"properties\""));
    }
    if (!schema_.contains("required")) return absl::OkStatus();
    for (const ParameterSchema& name : schema_["required"]) {
      if (schema_.contains("properties") && schema_["properties"].contains(name)) continue;
      return absl::InvalidArgumentError(
          StrCat("/required: expected names of \"properties\", got ", name.dump()));
    }
    return absl::OkStatus();
  }
  // Its pointer goes on with that of the error.
  static absl::Status OfProperty(std::string_view name, const absl::Status& error) {
    const std::string pointer = StrCat("/properties", PointerStep(name));
    const std::string_view message = StdView(error.message());
    if (!message.starts_with('/')) return AtPlace(pointer, error);
    return absl::Status(error.code(), StrCat(pointer, message));
  }
  bool IsObjectType() const {
    const ParameterSchema& type = schema_["type"];
    return type == "object" || (type.is_array() && std::ranges::count(type, "object") > 0);
  }
  bool IsRequired(const std::string& name) const {
    return schema_.contains("required") &&
           std::ranges::count(schema_["required"], ParameterSchema(name)) > 0;
  }

  // Those that are needed, and then any of the others, in order.
  GrammarOr Joined(const std::vector<Grammar::Ptr>& needed,
                   const std::vector<Grammar::Ptr>& others) const {
    std::vector<Grammar::Ptr> parts;
    for (const Grammar::Ptr& part : needed) {
      PF_RETURN_IF_ERROR(AddSeparator(parts));
      parts.push_back(part);
    }
    if (!parts.empty() || text_.separator.empty()) {
      PF_RETURN_IF_ERROR(AddOptional(others, parts));
      return Grammar::Sequence(parts);
    }
    // The first of the others has no separator before it, whichever it is.
    std::vector<Grammar::Ptr> ways;
    PF_ASSIGN_OR_RETURN(ways.emplace_back(), Grammar::OfText(""));
    for (auto first = others.begin(); first != others.end(); ++first) {
      std::vector<Grammar::Ptr> row = {*first};
      PF_RETURN_IF_ERROR(AddOptional({first + 1, others.end()}, row));
      PF_ASSIGN_OR_RETURN(ways.emplace_back(), Grammar::Sequence(row));
    }
    return Grammar::AnyOf(ways);
  }
  absl::Status AddSeparator(std::vector<Grammar::Ptr>& parts) const {
    if (parts.empty() || text_.separator.empty()) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(parts.emplace_back(), Grammar::OfText(text_.separator));
    return absl::OkStatus();
  }
  absl::Status AddOptional(const std::vector<Grammar::Ptr>& others,
                           std::vector<Grammar::Ptr>& parts) const {
    for (const Grammar::Ptr& other : others) {
      PF_ASSIGN_OR_RETURN(const Grammar::Ptr one, InRow({Grammar::OfText(text_.separator), other}));
      PF_ASSIGN_OR_RETURN(parts.emplace_back(), Grammar::Optional(one));
    }
    return absl::OkStatus();
  }

  GrammarOr Parameter(const std::string& name, const ParameterSchema& schema) const {
    PF_RETURN_IF_ERROR(CheckName(name));
    const GrammarOr before = Grammar::OfText(StrCat(text_.before_key, name));
    return InRow({before, IsText(schema) ? TextValue(schema) : Value(schema)});
  }
  // Names stand as they are too, and have to be found again.
  absl::Status CheckName(std::string_view name) const {
    const std::string_view marks = text_.value_is_json ? "\"<>" : "<>{}[],:";
    const bool has_mark = std::ranges::any_of(name, [marks](char c) {
      return static_cast<unsigned char>(c) < 0x20 || marks.find(c) != std::string_view::npos;
    });
    constexpr size_t kMost = 256;
    const bool plain = !name.empty() && name.size() <= kMost && !has_mark && name.front() != ' ' &&
                       name.back() != ' ';
    if (plain) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat("this model writes names in calls as they are: expected 1 to ", kMost,
               " bytes without ", marks, ", line breaks and blanks at the ends"));
  }

  static bool IsText(const ParameterSchema& schema) {
    if (!schema.is_object()) return false;
    if (schema.contains("type")) return schema["type"] == "string";
    const auto is_text = [](const ParameterSchema& value) { return value.is_string(); };
    if (schema.contains("const")) return is_text(schema["const"]);
    return schema.contains("enum") && std::ranges::all_of(schema["enum"], is_text);
  }
  // Text stands as it is, so that one of the choices does too.
  GrammarOr TextValue(const ParameterSchema& schema) const {
    for (const char* keyword : {"pattern", "format", "minLength", "maxLength"}) {
      if (!schema.contains(keyword)) continue;
      return absl::InvalidArgumentError(
          StrCat("/", keyword, ": this model writes texts in calls as they are: expected none"));
    }
    if (!schema.contains("enum") && !schema.contains("const")) return AnyTextValue(text_);
    std::vector<Grammar::Ptr> ways;
    const ParameterSchema values =
        schema.contains("enum") ? schema["enum"] : ParameterSchema::array({schema["const"]});
    for (const ParameterSchema& value : values) {
      if (!value.is_string() || (schema.contains("const") && value != schema["const"])) continue;
      const auto& choice = value.get_ref<const std::string&>();
      if (choice.find(EndMark(text_)) != std::string::npos) {
        return absl::InvalidArgumentError(
            StrCat("this model writes texts in calls as they are: expected none with ",
                   EndMark(text_), ", got ", value.dump()));
      }
      PF_ASSIGN_OR_RETURN(ways.emplace_back(),
                          Grammar::OfText(StrCat(text_.before_string, choice, text_.after_string)));
    }
    return Grammar::AnyOf(ways);
  }
  // A schema within another one may refer to what that defines.
  GrammarOr Value(const ParameterSchema& schema) const {
    const bool is_flat = schema.is_object() && schema.contains("type") &&
                         schema["type"].is_string() && schema["type"] != "object" &&
                         schema["type"] != "array";
    if (!text_.value_is_json && !is_flat) {
      return absl::InvalidArgumentError(
          "this model's calls are constrained for texts, numbers and booleans alone: expected one "
          "\"type\" of these");
    }
    ParameterSchema whole = schema;
    for (const char* keyword : {"$defs", "definitions"}) {
      if (whole.is_object() && schema_.contains(keyword)) whole[keyword] = schema_[keyword];
    }
    return OtherValue(text_, whole);
  }

  const ParameterText& text_;
  const ParameterSchema& schema_;
};

}  // namespace

absl::StatusOr<Grammar::Ptr> ParametersGrammar(const ParameterText& text,
                                               const nlohmann::ordered_json& schema) {
  return ParameterTexts(text, schema).Make();
}

absl::StatusOr<Grammar::Ptr> AnyParametersGrammar(const ParameterText& text) {
  const ParameterSchema values = text.value_is_json
                                     ? ParameterSchema(true)
                                     : ParameterSchema{{"type", {"number", "boolean", "null"}}};
  std::vector<Grammar::Ptr> ways;
  PF_ASSIGN_OR_RETURN(ways.emplace_back(), AnyTextValue(text));
  PF_ASSIGN_OR_RETURN(ways.emplace_back(), OtherValue(text, values));
  PF_ASSIGN_OR_RETURN(
      const Grammar::Ptr one,
      InRow({Grammar::OfText(text.before_key), Grammar::OfRegex("[A-Za-z_][A-Za-z0-9_-]{0,63}"),
             Grammar::AnyOf(ways)}));
  PF_ASSIGN_OR_RETURN(Grammar::Ptr more, InRow({Grammar::OfText(text.separator), one}));
  PF_ASSIGN_OR_RETURN(more, Grammar::Repeat(more, 0, -1));
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr some, Grammar::Sequence({one, more}));
  return Grammar::Optional(some);
}

}  // namespace pagefuse::serve
