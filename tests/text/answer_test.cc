// SPDX-License-Identifier: Apache-2.0
// Answers in each format, whole and cut at every byte, against expectations written by hand.
#include "gtest/gtest.h"
#include "tests/text/answer_cases.h"

#include "pagefuse/text/answer/answer_parser.h"
#include "pagefuse/text/answer/begins_in_reasoning.h"

namespace pagefuse {
namespace {

AnswerParserOptions BegunOptions(std::string_view reasoning, std::string_view tools) {
  AnswerParserOptions options = OptionsOf(reasoning, tools);
  options.begins_in_reasoning = true;
  return options;
}

AnswerParserOptions ToolOptions(std::string_view tools, std::vector<std::string> known) {
  AnswerParserOptions options = OptionsOf("", tools);
  options.tools = std::move(known);
  return options;
}

TEST(Reasoning, StandsBetweenThinkMarks) {
  CheckAnswers(
      OptionsOf("think", ""),
      {{"", ""},
       {"just text", "C(just text)"},
       {" leading and trailing \n", "C( leading and trailing \n)"},
       {"<think>why</think>because", "R(why)C(because)"},
       {"<think>\nwhy\n</think>\n\nbecause\n", "R(why)C(because\n)"},
       {"\n<think>\n</think>\n\nplain", "C(plain)"},
       {"<think></think>", ""},
       {"<think>only reasoning", "R(only reasoning)"},
       {"<think>cut off </thi", "R(cut off </thi)"},
       {"<think>a < b, </ b> and <think twice</think>c", "R(a < b, </ b> and <think twice)C(c)"},
       {"<think>one <think> two</think>three", "R(one <think> two)C(three)"},
       {"before <think> in </think> after", "C(before)R(in)C(after)"},
       {"<think>a</think>b</think>c", "R(a)C(b</think>c)"},
       {"<think>a</think>b <think>c</think> d", "R(a)C(b <think>c</think> d)"},
       {"no opening</think>text", "C(no opening</think>text)"},
       {"<thinking>x</thinking>", "C(<thinking>x</thinking>)"},
       {"<<think>x</think>", "C(<)R(x)"},
       {"<th<think>è中🙂</think>ß", "C(<th)R(è中🙂)C(ß)"}});
}

TEST(Reasoning, MayHaveBegunInThePrompt) {
  CheckAnswers(BegunOptions("think", ""), {{"why\n</think>\n\nbecause", "R(why)C(because)"},
                                           {"\n\nwhy</think>because", "R(why)C(because)"},
                                           {"</think>because", "C(because)"},
                                           {"<think>\nwhy</think>because", "R(why)C(because)"},
                                           {"all of it \n", "R(all of it \n)"},
                                           {"why</think>a<think>b", "R(why)C(a<think>b)"}});
}

TEST(Reasoning, StandsInGemma4sChannels) {
  CheckAnswers(
      OptionsOf("gemma4", ""),
      {{"<|channel>thought\nwhy<channel|>because", "R(why)C(because)"},
       {"<|channel>thought\n<channel|>because", "C(because)"},
       {"<|channel>why<channel|>because", "R(why)C(because)"},
       {"<|channel>though<channel|>because", "R(though)C(because)"},
       {"<|channel>thoughtful\nwhy<channel|>because", "R(thoughtful\nwhy)C(because)"},
       {"<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "R(a)C(b)R(c)C(d)"},
       {"<|channel|>x", "C(<|channel|>x)"},
       {"<|channel>thou", "R(thou)"}});
}

TEST(Reasoning, StandsInHarmonysAnalysisChannel) {
  CheckAnswers(
      OptionsOf("harmony", ""),
      {{"<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>because",
        "R(why)C(because)"},
       {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>"
        "d<|return|>",
        "R(a)C(b)R(c)C(d)"},
       {"<|channel|>final<|message|>because<|return|>", "C(because)"},
       {"<|channel|>analysis<|message|>cut", "R(cut)"},
       {"<|channel|>other<|message|>x", "C(<|channel|>other<|message|>x)"}});
}

TEST(Reasoning, IsContentWithoutAFormat) {
  CheckAnswers(OptionsOf("", ""),
               {{"<think>a</think>b", "C(<think>a</think>b)"},
                {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                 "C(<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>)"}});
}

TEST(Reasoning, HasNoCallsInIt) {
  CheckAnswers(
      BegunOptions("think", "hermes"),
      {{"I could <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call></think>"
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "R(I could <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>)T(f)({})"}});
}

TEST(Reasoning, BeginsInThePromptIfTheTemplateWroteTheMarkLast) {
  const ReasoningFormat* think = OptionsOf("think", "").format.reasoning;
  const ReasoningFormat* gemma4 = OptionsOf("gemma4", "").format.reasoning;
  EXPECT_TRUE(BeginsInReasoning(think, {"<user>q<assistant><think>\n", {}}));
  EXPECT_TRUE(BeginsInReasoning(think, {"<think>", {}}));
  EXPECT_FALSE(BeginsInReasoning(think, {"<assistant><think>\n\n</think>\n\n", {}}));
  EXPECT_FALSE(BeginsInReasoning(think, {"<assistant>", {}}));
  EXPECT_FALSE(BeginsInReasoning(think, {"", {}}));
  EXPECT_FALSE(BeginsInReasoning(think, {"say <think>", {{4, 11}}})) << "a user wrote it";
  EXPECT_TRUE(BeginsInReasoning(think, {"say <think>", {{0, 3}}}));
  EXPECT_FALSE(BeginsInReasoning(nullptr, {"<think>", {}}));
  EXPECT_TRUE(BeginsInReasoning(gemma4, {"<|turn>model\n<|channel>thought\n", {}}));
  EXPECT_TRUE(BeginsInReasoning(gemma4, {"<|turn>model\n<|channel>", {}}));
  EXPECT_FALSE(BeginsInReasoning(gemma4, {"<|channel>thought\n<channel|>", {}}));
}

TEST(ToolCalls, OfHermes) {
  CheckAnswers(
      OptionsOf("think", "hermes"),
      {{R"(<tool_call>
{"name": "f", "arguments": {"a": 1}}
</tool_call>)",
        R"(T(f)({"a": 1}))"},
       {R"(Let me see.

<tool_call>
{"name": "f", "arguments": {}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {"x": [1, 2, {"y": null}]}}
</tool_call>
 Done. )",
        R"(C(Let me see.)T(f)({})T(g)({"x": [1, 2, {"y": null}]})C(Done. ))"},
       {"<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "R(hm)T(f)({})"},
       {R"(<tool_call>{"name":"f","arguments":{"t":"</tool_call> } \" \\ <think> é 🙂 \u00e9"}}</tool_call>)",
        R"(T(f)({"t":"</tool_call> } \" \\ <think> é 🙂 \u00e9"}))"},
       {R"(<tool_call>{"arguments": {"a": [true, false]}, "name": "f"}</tool_call>x)",
        R"(T(f)({"a": [true, false]})C(x))"},
       {R"(<tool_call>{"id": "1", "type": "function", "name": "f", "parameters": { "a" : -1.5e+3 } , "z": [0]} </tool_call>)",
        R"(T(f)({ "a" : -1.5e+3 }))"},
       {R"(<tool_call>{"name": "f", "arguments": {"a": 1}
</tool_call>after)",
        R"(T(f)({"a": 1})C(after))"},
       {"a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> b "
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> c",
        "C(a)T(f)({})C(b)T(f)({})C(c)"},
       {"<tool_call<think>x</think>y", "C(<tool_call)R(x)C(y)"},
       {"<tool_call>{\"name\": \"f\\u0041\", \"arguments\": {}}</tool_call>", "T(fA)({})"}});
}

TEST(ToolCalls, OfHermesThatAreNone) {
  CheckAnswers(
      OptionsOf("", "hermes"),
      {{"<tool_", "C(<tool_)"},
       {"a < b and <tool_calls> ", "C(a < b and <tool_calls> )"},
       {"<tool_call>", "C(<tool_call>)"},
       {" \n<tool_call>\n\n", "C( \n<tool_call>\n\n)"},
       {"<tool_call>not json</tool_call>", "C(<tool_call>not json</tool_call>)"},
       {"<tool_call>[1]</tool_call> ", "C(<tool_call>[1]</tool_call> )"},
       {"<tool_call>{}</tool_call>", "C(<tool_call>{}</tool_call>)"},
       {R"(<tool_call>{"name": "f"}</tool_call>)", R"(C(<tool_call>{"name": "f"}</tool_call>))"},
       {R"(<tool_call>{"name": 1, "arguments": {}})",
        R"(C(<tool_call>{"name": 1, "arguments": {}}))"},
       {R"(<tool_call>{"name": "f", "arguments": "{}"})",
        R"(C(<tool_call>{"name": "f", "arguments": "{}"}))"},
       {R"(<tool_call>{"name": "", "arguments": {}})",
        R"(C(<tool_call>{"name": "", "arguments": {}}))"},
       {R"(<tool_call>{"arguments": {"a": 1}, "arguments": {}})",
        R"(C(<tool_call>{"arguments": {"a": 1}, "arguments": {}}))"},
       {R"(<tool_call>{"arguments": {"a": 1}})", R"(C(<tool_call>{"arguments": {"a": 1}}))"},
       {R"(<tool_call>{"na)", R"(C(<tool_call>{"na))"},
       {R"(no <tool_call>no <tool_call>{"name": "f", "arguments": {}}</tool_call>)",
        R"(C(no <tool_call>no)T(f)({}))"},
       {R"(<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>)",
        R"(C(<tool_call>)T(f)({}))"}});
}

TEST(ToolCalls, EndWhereTheirArgumentsAreNoJson) {
  CheckAnswers(
      OptionsOf("", "hermes"),
      {{R"(<tool_call>{"name": "f", "arguments": {"a": x}}</tool_call>)",
        R"(T(f)({"a": )C(x}}</tool_call>))"},
       {R"(<tool_call>{"name": "f", "arguments": {"a": 01}}</tool_call>)",
        R"(T(f)({"a": 0)C(1}}</tool_call>))"},
       {R"(<tool_call>{"name": "f", "arguments": {"a": [1}}</tool_call>)",
        R"(T(f)({"a": [1)C(}}</tool_call>))"},
       {R"(<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>)",
        R"(T(f)({"a": 1,)C(}}</tool_call>))"},
       {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}",
        "T(f)({\"a\": \"x)C(y\"}})"},
       {R"(<tool_call>{"name": "f", "arguments": {"a": tru)", R"(T(f)({"a": tru))"},
       {R"(<tool_call>{"name": "f", "arguments": {}})", R"(T(f)({}))"},
       {R"(<tool_call>{"name": "f", "arguments": {}}</tool_)", R"(T(f)({}))"},
       {R"(<tool_call>{"name": "f", "arguments": {}}</tool_x>)", R"(T(f)({})C(</tool_x>))"},
       {R"(<tool_call>{"name": "f", "arguments": {}} oh)", R"(T(f)({})C(oh))"},
       {R"(<tool_call>{"name": "f", "arguments": {}}<tool_call>{"name": "g", "arguments": {}}</tool_call>)",
        R"(T(f)({})T(g)({}))"}});
}

TEST(ToolCalls, OfUnknownToolsAreContent) {
  CheckAnswers(
      ToolOptions("hermes", {"f", "now"}),
      {{R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)", "T(now)({})"},
       {R"(<tool_call>{"name": "no", "arguments": {}}</tool_call> )",
        R"(C(<tool_call>{"name": "no", "arguments": {}}</tool_call> ))"},
       {R"(<tool_call>{"name": "F", "arguments": {}}</tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>)",
        R"(C(<tool_call>{"name": "F", "arguments": {}}</tool_call>)T(f)({}))"},
       {R"(<tool_call>{"arguments": {"a": 1}, "name": "g"}</tool_call>)",
        R"(C(<tool_call>{"arguments": {"a": 1}, "name": "g"}</tool_call>))"}});
  CheckAnswers(
      ToolOptions("deepseek_v31", {"f"}),
      {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "T(f)({})C(<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>)"}});
  CheckAnswers(ToolOptions("llama3_json", {"f"}),
               {{R"({"name": "Bob", "parameters": {}})", R"(C({"name": "Bob", "parameters": {}}))"},
                {R"({"name": "f", "parameters": {}})", R"(T(f)({}))"}});
  CheckAnswers(ToolOptions("functiongemma", {"f"}),
               {{"<start_function_call>call:g{}<end_function_call>",
                 "C(<start_function_call>call:g{}<end_function_call>)"}});
  CheckAnswers(ToolOptions("deepseek_v32", {"f"}),
               {{"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>",
                 "C(<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>)"}});
}

TEST(ToolCalls, OfDeepSeekV3) {
  CheckAnswers(
      OptionsOf("think", "deepseek_v3"),
      {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        "{\"city\": \"Köln\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "T(get_weather)({\"city\": \"Köln\"})"},
       {"Sure.\n\n<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{\"a\": \"```\"}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜> Bye",
        "C(Sure.)T(f)({})T(g)({\"a\": \"```\"})C(Bye)"},
       {"<think>x</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "R(x)T(f)({})"},
       {"<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
        "C(<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```",
        "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```)"},
       {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
        "C(<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": [1, 2\n```",
        "T(f)({\"a\": [1, 2\n)C(```)"},
       {"<｜tool▁calls", "C(<｜tool▁calls)"},
       {"<｜User｜> <｜ <", "C(<｜User｜> <｜ <)"}});
}

TEST(ToolCalls, OfDeepSeekV31) {
  CheckAnswers(
      OptionsOf("think", "deepseek_v31"),
      {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": {\"b\": \"}\"}}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "T(f)({\"a\": {\"b\": \"}\"}})T(g)({})"},
       {"Hm\n<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> f <｜tool▁sep｜> {} <｜tool▁call▁end｜> "
        "<｜tool▁calls▁end｜> \nrest",
        "C(Hm)T(f)({})C(rest)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁call▁end｜>",
        "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁call▁end｜>)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f)T(g)({})"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>",
        "C(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>)"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>between"
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "T(f)({})C(between)T(g)({})"},
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\"", "T(f)({\"a\")"}});
}

TEST(ToolCalls, OfDeepSeekV32) {
  CheckAnswers(
      OptionsOf("think", "deepseek_v32"),
      {{R"(<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="city" string="true">Zürich "old" \ town
</｜DSML｜parameter>
<｜DSML｜parameter name="n" string="false">3</｜DSML｜parameter>
</｜DSML｜invoke>
<｜DSML｜invoke name="g">
</｜DSML｜invoke>
</｜DSML｜function_calls>)",
        R"_(T(f)({"city": "Zürich \"old\" \\ town\n", "n": 3})T(g)({}))_"},
       {"Now.\n\n<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a b\" string=\"false\"> "
        "{\"x\": [1, \"</｜DSML｜parameter>\"]} </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls> end",
        "C(Now.)T(f)({\"a b\": {\"x\": [1, \"</｜DSML｜parameter>\"]}})C(end)"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">"
        "<｜DSML｜parameter name=\"a\" string=\"false\">true</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"b\" string=\"false\">not json</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"c\" string=\"false\">\"quoted\"</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"d\" string=\"true\"></｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"e\" string=\"true\"></｜DSML</｜DSML｜param <b> \x01\t</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"f\" string=\"false\"></｜DSML｜parameter></｜DSML｜invoke>",
        "T(f)({\"a\": true, \"b\": \"not json\", \"c\": \"quoted\", \"d\": \"\", "
        "\"e\": \"</｜DSML</｜DSML｜param <b> \\u0001\\t\", \"f\": \"\"})"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">"
        "<｜DSML｜parameter name=\"a\" string=\"false\">1, 2</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"b\" string=\"false\">\xEF\xBB\xBF"
        "1</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"c\" string=\"false\">\"a\" b</｜DSML｜parameter>"
        "<｜DSML｜parameter name=\"d\" string=\"false\"> -1e5 </｜DSML｜parameter></｜DSML｜invoke>",
        "T(f)({\"a\": \"1, 2\", \"b\": \"\xEF\xBB\xBF"
        "1\", \"c\": \"\\\"a\\\" b\", \"d\": -1e5})"},
       {"<｜DSML｜function_calls>\n</｜DSML｜function_calls>",
        "C(<｜DSML｜function_calls>\n</｜DSML｜function_calls>)"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"\">",
        "C(<｜DSML｜function_calls><｜DSML｜invoke name=\"\">)"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">text</｜DSML｜invoke>",
        "T(f)()C(text</｜DSML｜invoke>)"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"maybe\">1",
        "T(f)()C(\" string=\"maybe\">1)"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\">[1, x]",
        "T(f)({\"a\": [1, )C(x])"},
       {"<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"true\">cut</｜",
        "T(f)({\"a\": \"cut)"},
       {"<｜DSML｜x>", "C(<｜DSML｜x>)"}});
}

TEST(ToolCalls, OfLlama3) {
  CheckAnswers(
      OptionsOf("", "llama3_json"),
      {{R"({"name": "f", "parameters": {"a": "}"}})", R"(T(f)({"a": "}"}))"},
       {R"(
 {"type": "function", "name": "f", "parameters": {}} )",
        R"(T(f)({}))"},
       {R"(<|python_tag|>{"name": "f", "arguments": {"a": 1.0}})", R"(T(f)({"a": 1.0}))"},
       {R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"x": []}})",
        R"(T(f)({})T(g)({"x": []}))"},
       {R"({"name": "f", "parameters": {}} and text {"name": "g", "parameters": {}})",
        R"(T(f)({})C(and text {"name": "g", "parameters": {}}))"},
       {R"(I call {"name": "f", "parameters": {}})",
        R"(C(I call {"name": "f", "parameters": {}}))"},
       {R"(<|python_tag|>print(1))", R"(C(<|python_tag|>print(1)))"},
       {R"({"answer": {"name": "f", "parameters": {}}})",
        R"(C({"answer": {"name": "f", "parameters": {}}}))"},
       {R"({"name": "Bob", "age": 3})", R"(C({"name": "Bob", "age": 3}))"},
       {"{", "C({)"},
       {"<|py{\"name\": \"f\", \"parameters\": {}}",
        "C(<|py{\"name\": \"f\", \"parameters\": {}})"},
       {"{}; {}", "C({}; {})"},
       {"a; b", "C(a; b)"},
       {R"({"name": "f", "parameters": {"a": 1}; {"name": "g", "parameters": {}})",
        R"(T(f)({"a": 1})T(g)({}))"}});
}

TEST(ToolCalls, OfFunctionGemma) {
  CheckAnswers(
      OptionsOf("", "functiongemma"),
      {{"<start_function_call>call:f{city:<escape>Rome<escape>,n:1}<end_function_call>",
        R"(T(f)({"city": "Rome", "n": 1}))"},
       {"<start_function_call>call:f{}<end_function_call><start_function_call>call:g{a:true}<end_function_call>",
        R"(T(f)({})T(g)({"a": true}))"},
       {"Ok.\n<start_function_call>call:f{a:{b:[1, <escape>x,]}<escape>, {}],c:{}},d:[]}<end_function_call>\nend",
        R"(C(Ok.)T(f)({"a": {"b": [1, "x,]}", {}], "c": {}}, "d": []})C(end))"},
       {"<start_function_call>call:f{<escape>a \"b\"<escape>:<escape>q\"\\\n<end_function_call> ü 🙂<escape>}"
        "<end_function_call>",
        R"(T(f)({"a \"b\"": "q\"\\\n<end_function_call> ü 🙂"}))"},
       {"<start_function_call>call:f{ a : -1.5 , b:null,c:None,d:True,e:bare text}<end_function_call>",
        R"(T(f)({"a": -1.5, "b": null, "c": null, "d": true, "e": "bare text"}))"},
       {"<start_function_call>call:f{a:<escape><escape>}<end_function_call>", R"(T(f)({"a": ""}))"},
       {"<start_function_call>call:f{a:<escape>x<esc <escape>}<end_function_call>",
        R"(T(f)({"a": "x<esc "}))"},
       {"<start_function_call>call:{}<end_function_call>",
        "C(<start_function_call>call:{}<end_function_call>)"},
       {"<start_function_call>f{}<end_function_call>",
        "C(<start_function_call>f{}<end_function_call>)"},
       {"<start_function_call>call:f(a)", "C(<start_function_call>call:f(a))"},
       {"<start_function_call>call:f{a:1<end_function_call>x",
        "T(f)({\"a\": )C(<end_function_call>x)"},
       {"<start_function_call>call:f{a:1}]", "T(f)({\"a\": 1})C(])"},
       {"<start_function_call>call:f{a:[1}x", "T(f)({\"a\": [1)C(}x)"},
       {"<start_function_call>call:f{a}", "T(f)({)C(})"},
       {"<start_function_call>call:f{a:<escape>cut<esc", "T(f)({\"a\": \"cut)"},
       {"<start_function", "C(<start_function)"}});
}

TEST(ToolCalls, AreContentWhereNoToolsAreOffered) {
  AnswerParserOptions options = OptionsOf("think", "hermes");
  options.parses_tools = false;
  CheckAnswers(options,
               {{R"(<think>a</think> <tool_call>{"name": "f", "arguments": {}}</tool_call>)",
                 R"(R(a)C(<tool_call>{"name": "f", "arguments": {}}</tool_call>))"}});
}

TEST(ToolCalls, ComeOutWhileTheyAreWritten) {
  AnswerParser parser(OptionsOf("", "hermes"));
  EXPECT_EQ(ShownPieces(parser.Add("Hi <tool_")), "C(Hi)");
  EXPECT_TRUE(parser.Add("call>\n{\"name\": \"f\", \"arguments\": ").empty());
  const auto begun = parser.Add("{\"a\": \"x");
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].text, "f");
  EXPECT_EQ(begun[1].text, "{\"a\": \"x");
  const auto more = parser.Add("y");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].kind, AnswerPiece::kCallArguments);
  EXPECT_EQ(more[0].call, 0);
  EXPECT_EQ(more[0].text, "y");
  const auto end = parser.Add("\"}}\n</tool_call>");
  ASSERT_EQ(end.size(), 2u);
  EXPECT_EQ(end[1].kind, AnswerPiece::kCallEnd);
  EXPECT_TRUE(parser.Finish().empty());
  EXPECT_EQ(parser.calls(), 1);
}

// A call as the recipe for making models call tools composes it.
std::string ComposedCall(const CallText& text, std::string_view name) {
  std::string call = std::string(text.before_name);
  call.append(name).append(text.before_arguments);
  const ParameterText& parameter = text.parameter;
  if (text.syntax == ArgumentSyntax::kJson) {
    call.append(R"({"s": "t", "n": 1})");
  } else {
    call.append(parameter.before_key).append("s").append(parameter.before_string).append("t");
    call.append(parameter.after_string).append(parameter.separator);
    call.append(parameter.before_key).append("n").append(parameter.before_value).append("1");
    call.append(parameter.after_value);
  }
  return call.append(text.after_arguments);
}

TEST(ToolCalls, AreWhatTheRecipeComposes) {
  ASSERT_EQ(ToolFormats().size(), 6u);
  for (const ToolFormat* format : ToolFormats()) {
    const CallText& text = format->text;
    std::string answer = std::string(text.opening);
    answer.append(ComposedCall(text, "f")).append(text.separator).append(ComposedCall(text, "g"));
    answer.append(text.closing);
    const std::string expected = R"(T(f)({"s": "t", "n": 1})T(g)({"s": "t", "n": 1}))";
    CheckAnswers(OptionsOf("think", format->name), {{answer, expected}});
  }
}

}  // namespace
}  // namespace pagefuse
