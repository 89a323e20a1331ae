// SPDX-License-Identifier: Apache-2.0
// What requests say of tools and of the form of answers, and what becomes of it.
#include "pagefuse/serve/answer_rules.h"

#include <string>
#include <utility>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ServedModel ModelWithTools() {
  ServedModel model;
  model.tokenizer = Must(Tokenizer::OfBytes());
  model.format = {.tools = &kHermesTools, .template_takes_tools = true};
  return model;
}

struct Applied {
  ChatInput input;
  GenerationRequest request;
};

absl::StatusOr<Applied> Apply(const ServedModel& model, std::string_view members) {
  const Json json = Json::parse(members);
  AnswerRulesInput rules;
  if (json.contains("tools")) rules.tools = json["tools"];
  rules.tool_choice = json.value("tool_choice", Json());
  rules.parallel = json.value("parallel", true);
  rules.response_format = json.value("response_format", Json());
  rules.structured_outputs = json.value("structured_outputs", Json());
  Applied applied;
  const absl::Status status = ApplyAnswerRules(model, rules, applied.input, applied.request);
  if (!status.ok()) return status;
  return applied;
}

// With the tools f, of an integer, and g, of nothing.
std::string WithTools(std::string_view others = "", std::string_view of_f = "") {
  return StrCat(
      R"({"tools": [{"type": "function", "function": {"name": "f", )", of_f,
      R"("parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}},
                   {"type": "function", "function": {"name": "g"}}])",
      others, "}");
}

bool Takes(const Grammar::Ptr& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.Advance(text) && state.accepts();
}

constexpr char kF[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
constexpr char kG[] = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

TEST(AnswerRules, NoToolsWhereTheTemplateTakesNone) {
  ServedModel model = ModelWithTools();
  model.format.template_takes_tools = false;
  const absl::Status refused = Apply(model, WithTools()).status();
  EXPECT_EQ(ParamOf(refused), "tools");
  EXPECT_THAT(std::string(StdView(refused.message())),
              HasSubstr("the chat template of this model takes none"));
  model.format = {.tools = nullptr, .template_takes_tools = true};
  EXPECT_EQ(ParamOf(Apply(model, WithTools()).status()), "tools");
  EXPECT_TRUE(Apply(model, "{}").ok());
  EXPECT_TRUE(Apply(model, R"({"tools": [], "tool_choice": "none"})").ok());
}

TEST(AnswerRules, NamesWhatIsWrong) {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"tools": 5})", "tools"},
      {R"({"tools": [5]})", "tools[0]"},
      {R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {R"({"tools": [{"function": {"name": ""}}]})", "tools[0].function.name"},
      {R"({"tools": [{"function": {"name": "a b"}}]})", "tools[0].function.name"},
      {R"({"tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}]})",
       "tools[1].function.name"},
      {R"({"tools": [{"function": {"name": "a", "parameters": []}}]})",
       "tools[0].function.parameters"},
      {R"({"tools": [{"function": {"name": "a", "strict": 1}}]})", "tools[0].function.strict"},
      {R"({"tools": [{"function": {"name": "a", "description": 1}}]})",
       "tools[0].function.description"},
      {R"({"tool_choice": "required"})", "tool_choice"},
      {WithTools(R"(, "tool_choice": "always")"), "tool_choice"},
      {WithTools(R"(, "tool_choice": {"type": "mcp"})"), "tool_choice.type"},
      {WithTools(R"(, "tool_choice": {"type": "function"})"), "tool_choice.function"},
      {WithTools(R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})"),
       "tool_choice.function.name"},
      {R"({"response_format": "json"})", "response_format"},
      {R"({"response_format": {}})", "response_format.type"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {}}})",
       "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})",
       "response_format.json_schema.schema"},
      {R"({"structured_outputs": {}})", "structured_outputs"},
      {R"({"structured_outputs": {"regex": "a", "choice": ["b"]}})", "structured_outputs"},
      {R"({"structured_outputs": {"regex": "(a"}})", "structured_outputs"},
      {R"({"structured_outputs": {"choice": [1]}})", "structured_outputs.choice"},
      {R"({"structured_outputs": {"grammar": "a"}})", "structured_outputs.grammar"},
      {R"({"structured_outputs": {"json": "{"}})", "structured_outputs.json"},
      {R"({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}})",
       "structured_outputs"}};
  const ServedModel model = ModelWithTools();
  for (const auto& [members, param] : cases) {
    EXPECT_EQ(ParamOf(Apply(model, members).status()), param) << members;
  }
}

TEST(AnswerRules, TheTemplateSeesTheToolsThatMayBeCalled) {
  const ServedModel model = ModelWithTools();
  const Applied applied = Must(Apply(model, WithTools()));
  EXPECT_EQ(applied.input.tools, Json::parse(WithTools())["tools"]);
  EXPECT_TRUE(applied.request.reading.parses_calls);
  EXPECT_THAT(applied.request.reading.tools, ElementsAre("f", "g"));
  const Applied none = Must(Apply(model, WithTools(R"(, "tool_choice": "none")")));
  EXPECT_TRUE(none.input.tools.empty());
  EXPECT_FALSE(none.request.reading.parses_calls);
  EXPECT_EQ(none.request.grammar, nullptr);
}

TEST(AnswerRules, ChoicesBindTheAnswer) {
  const ServedModel model = ModelWithTools();
  const auto grammar = [&](std::string_view others) {
    return Must(Apply(model, WithTools(others))).request.grammar;
  };
  const std::string both = StrCat(kF, "\n", kG);
  const auto open = grammar(R"(, "tool_choice": "auto")");
  EXPECT_TRUE(Takes(open, "Hello.") && Takes(open, StrCat("Hello. ", both)));
  EXPECT_FALSE(Takes(open, "<tool_call>\n{\"name\": \"h\""));
  const auto required = grammar(R"(, "tool_choice": "required")");
  EXPECT_TRUE(Takes(required, kF) && Takes(required, both));
  EXPECT_FALSE(Takes(required, "Hello."));
  const auto single = grammar(R"(, "tool_choice": "required", "parallel": false)");
  EXPECT_TRUE(Takes(single, kG));
  EXPECT_FALSE(Takes(single, both));
  const auto named = grammar(R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_TRUE(Takes(named, kG));
  EXPECT_FALSE(Takes(named, kF) || Takes(named, StrCat(kG, "\n", kG)));
}

TEST(AnswerRules, AFormBindsTheTextBesideCalls) {
  const auto grammar =
      Must(Apply(ModelWithTools(), WithTools(R"(, "response_format": {"type": "json_object"})")))
          .request.grammar;
  EXPECT_TRUE(Takes(grammar, "{\"b\":[]}") && Takes(grammar, kF));
  EXPECT_FALSE(Takes(grammar, "Hello."));
}

// Nothing was promised but by "strict", "required" and a name.
TEST(AnswerRules, SchemasThatAreBeyondUsBindWherePromised) {
  const auto tools = [](std::string_view strict, std::string_view choice) {
    return StrCat(
        R"({"tools": [{"function": {"name": "f", "strict": )", strict,
        R"(, "parameters": {"type": "object", "patternProperties": {}}}}], "tool_choice": )",
        choice, "}");
  };
  const ServedModel model = ModelWithTools();
  const auto open = Must(Apply(model, tools("false", "\"auto\""))).request.grammar;
  EXPECT_TRUE(
      Takes(open, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\":[1]}}\n</tool_call>"));
  EXPECT_FALSE(Takes(open, "<tool_call>\n{\"name\": \"f\", \"arguments\": 1}\n</tool_call>"));
  for (const auto& [strict, choice] : {std::pair("true", "\"auto\""), {"false", "\"required\""}}) {
    const absl::Status refused = Apply(model, tools(strict, choice)).status();
    EXPECT_EQ(ParamOf(refused), "tools");
    EXPECT_THAT(std::string(StdView(refused.message())), HasSubstr("/patternProperties"));
  }
}

// The same in formats that write parameter by parameter.
TEST(AnswerRules, ParametersThatAreBeyondTheFormatBindWherePromised) {
  ServedModel model = ModelWithTools();
  for (const ToolFormat* format : {&kDeepSeekV32Tools, &kFunctionGemmaTools}) {
    model.format.tools = format;
    const std::string tool =
        R"({"tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string", "minLength": 2}}}}}])";
    EXPECT_TRUE(Apply(model, StrCat(tool, "}")).ok()) << format->name;
    EXPECT_EQ(ParamOf(Apply(model, StrCat(tool, R"(, "tool_choice": "required"})")).status()),
              "tools");
  }
}

TEST(AnswerRules, GrammarsAreKept) {
  const ServedModel model = ModelWithTools();
  const auto grammar = [&](const std::string& members) {
    return Must(Apply(model, members)).request.grammar;
  };
  const std::string schema =
      R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}})";
  EXPECT_EQ(grammar(schema), grammar(schema));
  EXPECT_EQ(grammar(WithTools()), grammar(WithTools()));
  EXPECT_NE(grammar(WithTools()), grammar(WithTools(R"(, "parallel": false)")));
  // Forms of the text beside the same tools.
  const auto yes = grammar(WithTools(R"(, "structured_outputs": {"choice": ["yes"]})"));
  const auto no = grammar(WithTools(R"(, "structured_outputs": {"choice": ["no"]})"));
  EXPECT_TRUE(Takes(yes, "yes") && !Takes(yes, "no"));
  EXPECT_TRUE(Takes(no, "no") && !Takes(no, "yes"));
  // What was promised of a schema is part of what is asked.
  EXPECT_NE(grammar(WithTools("", R"("strict": true, )")), grammar(WithTools()));
}

}  // namespace
}  // namespace pagefuse::serve
