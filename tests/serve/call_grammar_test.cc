// SPDX-License-Identifier: Apache-2.0
// Grammars of calls beside the parser that reads calls: what the one lets a model write, the other reads back.
#include "pagefuse/serve/call_grammar.h"

#include <random>
#include <string>
#include <vector>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/answer_constraint.h"
#include "pagefuse/text/answer/answer_parser.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse::serve {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

struct ReadCall {
  std::string name, arguments;
};
struct ReadAnswer {
  std::string content;
  std::vector<ReadCall> calls;
};

ReadAnswer ReadBack(const ToolFormat& format, std::string_view text) {
  AnswerParser parser({.format = {.tools = &format}, .parses_tools = true});
  std::vector<AnswerPiece> pieces = parser.Add(text);
  std::ranges::move(parser.Finish(), std::back_inserter(pieces));
  ReadAnswer answer;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == AnswerPiece::kContent) answer.content += piece.text;
    if (piece.kind == AnswerPiece::kCallBegin) answer.calls.push_back({piece.text, ""});
    if (piece.kind == AnswerPiece::kCallArguments) answer.calls.back().arguments += piece.text;
  }
  return answer;
}

std::string Parameters(const ParameterText& text, const Json& arguments) {
  std::string written;
  for (const auto& [name, value] : arguments.items()) {
    if (!written.empty()) written += text.separator;
    StrAppend(&written, text.before_key, name);
    if (value.is_string()) {
      StrAppend(&written, text.before_string, value.get<std::string>(), text.after_string);
    } else {
      StrAppend(&written, text.before_value, value.dump(), text.after_value);
    }
  }
  return written;
}

// The answer that consists of these calls, as the format's description says.
std::string Written(const ToolFormat& format, const std::vector<ReadCall>& calls) {
  const CallText& text = format.text;
  std::string written(text.opening);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) written += text.separator;
    const bool is_json = text.syntax == ArgumentSyntax::kJson;
    StrAppend(
        &written, text.before_name, calls[i].name, text.before_arguments,
        is_json ? calls[i].arguments : Parameters(text.parameter, Json::parse(calls[i].arguments)),
        text.after_arguments);
  }
  return written += text.closing;
}

std::vector<ToolRules> TwoTools() {
  return {{.name = "weather", .parameters = Json::parse(R"({"type": "object", "properties": {
             "city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
             "required": ["city", "days"], "additionalProperties": false})")},
          {.name = "get-time", .parameters = Json()}};
}

bool Accepts(const Grammar::Ptr& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.Advance(text) && state.accepts();
}

// A text of the grammar, drawn byte by byte but for what ends a text; empty if it did not end.
std::string Drawn(const Grammar::Ptr& grammar, std::string_view text_end, std::mt19937& random) {
  GrammarState state(grammar);
  std::string text;
  constexpr size_t kMost = 600;
  while (!state.finished() && text.size() < kMost) {
    if (state.accepts() && random() % 256 == 0) return text;  // as likely as that one byte comes
    if (random() % 8 == 0 && state.Advance(text_end)) {
      text += text_end;
      continue;
    }
    const char byte = static_cast<char>(random() % 256);
    if (state.Advance(static_cast<uint8_t>(byte))) text += byte;
  }
  return state.accepts() ? text : "";
}

void CheckWeather(const std::string& arguments) {
  const Json value = Json::parse(arguments);
  ASSERT_TRUE(value.is_object());
  EXPECT_TRUE(value["city"].is_string()) << arguments;
  EXPECT_TRUE(value["days"] >= 1 && value["days"] <= 14) << arguments;
  if (value.contains("unit")) {
    EXPECT_TRUE(value["unit"] == "c" || value["unit"] == "f") << arguments;
  }
  EXPECT_EQ(value.size(), value.contains("unit") ? 3 : 2) << arguments;
}

void CheckDrawn(const ToolFormat& format, const std::string& text) {
  const ReadAnswer answer = ReadBack(format, text);
  ASSERT_EQ(answer.content, "") << text;
  ASSERT_FALSE(answer.calls.empty()) << text;
  EXPECT_EQ(Written(format, answer.calls), text);
  for (const ReadCall& call : answer.calls) {
    if (call.name == "weather") {
      CheckWeather(call.arguments);
    } else {
      EXPECT_EQ(call.name, "get-time");
      EXPECT_EQ(call.arguments, "{}");
    }
  }
}

class CallGrammarTest : public testing::TestWithParam<const ToolFormat*> {};

TEST_P(CallGrammarTest, WhatItLetsBeWrittenIsReadBack) {
  const auto grammar = Must(CallsGrammar(*GetParam(), TwoTools(), /*several=*/true));
  const std::string_view parameter_end = GetParam()->text.parameter.after_string;
  std::mt19937 random(7);
  size_t several = 0, ended = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string text = Drawn(grammar, parameter_end.empty() ? "\"" : parameter_end, random);
    if (text.empty()) continue;
    ++ended;
    CheckDrawn(*GetParam(), text);
    several += ReadBack(*GetParam(), text).calls.size() > 1;
  }
  EXPECT_GT(several, 10u);
  EXPECT_GT(ended, 50u);
}

TEST_P(CallGrammarTest, TakesCallsAndNothingElse) {
  const ToolFormat& format = *GetParam();
  const auto one = Must(CallsGrammar(format, TwoTools(), /*several=*/false));
  const auto more = Must(CallsGrammar(format, TwoTools(), /*several=*/true));
  const ReadCall weather = {"weather", R"({"city":"Köln \\ <b>","days":3})"},
                 time = {"get-time", "{}"};
  EXPECT_TRUE(Accepts(one, Written(format, {weather})));
  EXPECT_TRUE(Accepts(more, Written(format, {weather})));
  EXPECT_FALSE(Accepts(one, Written(format, {weather, time})));
  EXPECT_TRUE(Accepts(more, Written(format, {weather, time, weather})));
  EXPECT_FALSE(Accepts(more, ""));
  EXPECT_FALSE(Accepts(more, StrCat("Well: ", Written(format, {time}))));
  EXPECT_FALSE(Accepts(more, StrCat(Written(format, {time}), " Done.")));
  for (const ReadCall& wrong :
       std::vector<ReadCall>{{"whether", weather.arguments},
                             {"weather", "{}"},
                             {"weather", R"({"city":"a","days":15})"},
                             {"weather", R"({"days":1,"city":5})"},
                             {"weather", R"({"city":"a","unit":"k","days":1})"},
                             {"get-time", R"({"zone":"a"})"}}) {
    EXPECT_FALSE(Accepts(more, Written(format, {wrong}))) << wrong.name << wrong.arguments;
  }
}

TEST_P(CallGrammarTest, TextGoesOnUntilTheMark) {
  const ToolFormat& format = *GetParam();
  const auto grammar = Must(TextOrCallsGrammar(format, TwoTools(), /*several=*/false));
  const std::string mark(format.section_begin.empty() ? format.call_begin : format.section_begin);
  ASSERT_EQ(grammar == nullptr, mark.empty());
  if (!grammar) return;
  const std::string call = Written(format, {{"get-time", "{}"}});
  ASSERT_TRUE(call.starts_with(mark));
  for (const char* text : {"", "Hello.", "a < b {\"name\": \"x\"}"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
    EXPECT_TRUE(Accepts(grammar, StrCat(text, call))) << text;
    EXPECT_FALSE(Accepts(grammar, StrCat(text, call, text, call))) << text;
    EXPECT_FALSE(Accepts(grammar, StrCat(text, mark))) << text;
    EXPECT_FALSE(GrammarState(grammar).Advance(StrCat(text, mark, "~")));
  }
}

TEST_P(CallGrammarTest, AnyArgumentsAreAnObject) {
  const ToolFormat& format = *GetParam();
  const std::vector<ToolRules> tools = {
      {.name = "f", .parameters = Json::parse(R"({"not": {}})"), .any_arguments = true}};
  EXPECT_FALSE(BindsArguments(format, {.name = "f", .parameters = tools[0].parameters}));
  const auto grammar = Must(CallsGrammar(format, tools, /*several=*/false));
  for (const char* arguments : {"{}", R"({"a":"b c"})", R"({"a":1,"b":"","c":true})"}) {
    const std::string text = Written(format, {{"f", arguments}});
    EXPECT_TRUE(Accepts(grammar, text)) << text;
    EXPECT_EQ(Json::parse(ReadBack(format, text).calls.at(0).arguments), Json::parse(arguments));
  }
  EXPECT_FALSE(Accepts(grammar, Written(format, {{"g", "{}"}})));
}

INSTANTIATE_TEST_SUITE_P(Formats, CallGrammarTest,
                         testing::ValuesIn(ToolFormats().begin(), ToolFormats().end()),
                         [](const auto& info) { return std::string(info.param->name); });

std::string ErrorOf(const ToolFormat& format, std::string_view schema) {
  const std::vector<ToolRules> tools = {{.name = "f", .parameters = Json::parse(schema)}};
  return std::string(StdView(CallsGrammar(format, tools, false).status().message()));
}

TEST(CallGrammar, ArgumentsAreObjectsWhateverElseTheSchemaTakes) {
  for (const char* schema : {"{}", R"({"type": ["object", "null"]})", R"({"minLength": 1})",
                             R"({"enum": [1, {}, {"a": 1}]})", R"({"description": "d"})"}) {
    const std::vector<ToolRules> tools = {{.name = "f", .parameters = Json::parse(schema)}};
    const auto grammar = Must(CallsGrammar(kHermesTools, tools, false));
    EXPECT_TRUE(Accepts(grammar, Written(kHermesTools, {{"f", "{}"}}))) << schema;
    for (const char* other : {"1", "null", "\"a\"", "[]"}) {
      EXPECT_FALSE(Accepts(grammar, Written(kHermesTools, {{"f", other}}))) << schema;
    }
  }
  for (const char* schema :
       {R"({"type": "string"})", R"({"anyOf": [{"type": "object"}, {"type": "null"}]})"}) {
    EXPECT_THAT(ErrorOf(kHermesTools, schema), HasSubstr("expected a schema of objects")) << schema;
  }
  EXPECT_EQ(ErrorOf(kHermesTools, R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})"),
            "");
}

// What is written parameter by parameter cannot say all, and says so.
TEST(CallGrammar, ParametersSayWhatTheyCannot) {
  const std::pair<const char*, const char*> both[] = {
      {R"({"properties": {"a": {"type": "string", "minLength": 1}}})", "/properties/a/minLength: "},
      {R"({"properties": {"a": {"type": "text"}}})", "/properties/a/type"},
      {R"({"properties": [{"type": "string"}]})", "/properties"},
      {R"({"required": ["a"]})", "/required: expected names of \"properties\", got \"a\""},
      {R"({"required": "a", "properties": {"a": {"type": "string"}}})", "/required"},
      {R"({"anyOf": [{"type": "object"}]})", "/anyOf: "},
      {R"({"enum": [{}]})", "/enum: "},
      {R"({"type": "string"})", "/type: expected a schema of objects"},
      {R"({"minProperties": 2})", "/minProperties"},
      {R"({"properties": {"a<b": {"type": "string"}}})", "/properties/a<b: "},
      {R"({"properties": {"": {"type": "string"}}})", "/properties/: "}};
  for (const auto& [schema, error] : both) {
    EXPECT_THAT(ErrorOf(kDeepSeekV32Tools, schema), HasSubstr(error)) << schema;
    EXPECT_THAT(ErrorOf(kFunctionGemmaTools, schema), HasSubstr(error)) << schema;
    EXPECT_THAT(ErrorOf(kDeepSeekV32Tools, schema), HasSubstr("tool \"f\"")) << schema;
  }
  const std::string list = R"({"properties": {"a": {"type": "array"}}})";
  EXPECT_EQ(ErrorOf(kDeepSeekV32Tools, list), "");
  EXPECT_THAT(ErrorOf(kFunctionGemmaTools, list), HasSubstr("/properties/a: "));
  EXPECT_THAT(ErrorOf(kFunctionGemmaTools, R"({"properties": {"a": {"enum": ["x<escape>y"]}}})"),
              HasSubstr("<escape>"));
}

// A choice that is no text is none of a text's, and is no reason to fail.
TEST(CallGrammar, ChoicesOfTextsAreTexts) {
  const std::vector<ToolRules> tools = {{.name = "f", .parameters = Json::parse(R"({"properties":
          {"a": {"type": "string", "enum": ["x", 1, null, "y"]}, "b": {"const": "z"}}, "required": ["a"]})")}};
  for (const ToolFormat* format : {&kDeepSeekV32Tools, &kFunctionGemmaTools}) {
    const auto grammar = Must(CallsGrammar(*format, tools, false));
    EXPECT_TRUE(Accepts(grammar, Written(*format, {{"f", R"({"a":"y","b":"z"})"}})));
    EXPECT_FALSE(Accepts(grammar, Written(*format, {{"f", R"({"a":1})"}})));
    EXPECT_FALSE(Accepts(grammar, Written(*format, {{"f", R"({"a":"x","b":"y"})"}})));
  }
}

// The reader takes the mark for the end without the line break behind it.
TEST(CallGrammar, TextsHaveNoEndMarkWithin) {
  const std::vector<ToolRules> tools = {
      {.name = "f",
       .parameters =
           Json::parse(R"({"properties": {"a": {"type": "string"}}, "required": ["a"]})")}};
  const auto grammar = Must(CallsGrammar(kDeepSeekV32Tools, tools, false));
  EXPECT_TRUE(Accepts(grammar, Written(kDeepSeekV32Tools, {{"f", R"({"a":"b</｜DSML｜"})"}})));
  EXPECT_FALSE(
      Accepts(grammar, Written(kDeepSeekV32Tools, {{"f", R"({"a":"b</｜DSML｜parameter>c"})"}})));
}

TEST(CallGrammar, ReasoningComesBefore) {
  const ReasoningFormat& think = ReasoningFormats().back();
  ASSERT_EQ(think.name, "think");
  const auto choice = Must(Grammar::OfChoice({"yes", "no"}));
  const auto begun = Must(BehindReasoning(choice, think, /*begins_in_reasoning=*/true));
  const auto open = Must(BehindReasoning(choice, think, /*begins_in_reasoning=*/false));
  for (const char* text : {"</think>yes", "Let me <think> no.\n</think>\n\nno"}) {
    EXPECT_TRUE(Accepts(begun, text)) << text;
    EXPECT_TRUE(Accepts(open, StrCat("<think>", text))) << text;
    EXPECT_FALSE(GrammarState(open).Advance(text)) << text;
  }
  for (const char* text : {"yes", "\n\nno"}) {
    EXPECT_TRUE(Accepts(open, text)) << text;
    EXPECT_FALSE(Accepts(begun, text)) << text;
  }
  for (const char* text :
       {"</think>", "a</think>maybe", "a</think>yes no", "a</think>\n\n\n\n\nyes"}) {
    EXPECT_FALSE(Accepts(begun, text)) << text;
    EXPECT_FALSE(Accepts(open, StrCat("<think>", text))) << text;
  }
}

}  // namespace
}  // namespace pagefuse::serve
