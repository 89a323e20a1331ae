// SPDX-License-Identifier: Apache-2.0
// How models write tool calls into their answers: the formats that are known.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pagefuse {

class CallReader;

// How arguments are written between CallText::before_arguments and after_arguments.
enum class ArgumentSyntax {
  kJson,            // a JSON object
  kTextParameters,  // texts of ParameterText, one a parameter; see there
};

// How one parameter is written where arguments are no JSON object. A parameter whose value is a string is
// before_key KEY before_string TEXT after_string: the text as it is, in which nothing is escaped and after_string cannot occur.
// Any other is before_key KEY before_value VALUE after_value. `separator` stands between two.
struct ParameterText {
  std::string_view before_key;
  std::string_view before_string, after_string;
  std::string_view before_value, after_value;
  std::string_view separator;
  // VALUE: JSON if set. Else numbers, true, false and null as JSON has them; strings between the delimiter
  // nested_string, twice the same; lists as [VALUE,VALUE]; objects as {KEY:VALUE,KEY:VALUE} with bare keys. No white space.
  bool value_is_json = true;
  std::string_view nested_string;
};

// The text of an answer that consists of calls:
//   opening, then calls with `separator` between, then closing;
//   a call is before_name NAME before_arguments ARGUMENTS after_arguments.
// Whoever makes a model call tools lets it write nothing but that.
struct CallText {
  std::string_view opening;
  std::string_view before_name, before_arguments, after_arguments;
  std::string_view separator;
  std::string_view closing;
  ArgumentSyntax syntax = ArgumentSyntax::kJson;
  ParameterText parameter = {};  // of kTextParameters
};

struct ToolFormat {
  std::string_view name;  // of --tools

  // What the parser looks for in an answer. With a section, calls stand between `section_begin` and `section_end` and each begins with
  // call_begin; without, both are empty. `call_begin` is empty where a call is bare JSON: it then begins with "{", or with bare_mark.
  std::string_view section_begin, section_end;
  std::string_view call_begin, call_end;
  std::string_view bare_mark;

  CallText text;  // as templates write calls, for making a model call tools

  // Whether a template that takes tools writes calls so.
  bool (*fits)(std::string_view template_source);
  // Reads what follows `call_begin`, or `section_begin`, if not `begun`.
  std::unique_ptr<CallReader> (*read)(bool begun);
};

// hermes, deepseek_v3, deepseek_v31, deepseek_v32, llama3_json, functiongemma; in the order in which they are tried.
std::span<const ToolFormat* const> ToolFormats();

extern const ToolFormat kHermesTools;
extern const ToolFormat kDeepSeekV3Tools;
extern const ToolFormat kDeepSeekV31Tools;
extern const ToolFormat kDeepSeekV32Tools;
extern const ToolFormat kLlama3JsonTools;
extern const ToolFormat kFunctionGemmaTools;

}  // namespace pagefuse
