// SPDX-License-Identifier: Apache-2.0
// What templates in the manner of real ones say of answers, and the shape of messages they read.
#include "pagefuse/text/answer/answer_format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"
#include "paths.h"
#include "tests/text/render_now.h"
#include "tests/text/text_data.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/answer/begins_in_reasoning.h"
#include "pagefuse/text/answer/message_shape.h"

namespace pagefuse {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Source(std::string_view name) {
  return Must(ReadFile(SourcePath(StrCat("tests/data/text/answer_templates/", name, ".jinja"))));
}

// "reasoning tools", "-" for none, and "!" behind if the template takes no tools.
std::string Shown(const AnswerFormat& format) {
  return StrCat(format.reasoning != nullptr ? format.reasoning->name : "-", " ",
                format.tools != nullptr ? format.tools->name : "-",
                format.template_takes_tools ? "" : "!");
}

std::string FoundIn(std::string_view source, const AnswerFormatNames& names = {}) {
  return Shown(Must(FindAnswerFormat(source, nullptr, names)));
}

RenderedChat Render(std::string_view source, const ordered_json& given) {
  return Must(Must(ChatTemplate::Parse(source))->Render(OwnVariables(), given, RenderTime()));
}

ordered_json Message(const char* role, const ordered_json& content) {
  return {{"role", role}, {"content", content}};
}

ordered_json Call(const char* id, const char* name, const ordered_json& arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

TEST(AnswerFormats, AreFoundInTemplates) {
  EXPECT_EQ(FoundIn(Source("plain")), "- -!");
  EXPECT_EQ(FoundIn(Source("hermes_thinking")), "think hermes");
  EXPECT_EQ(FoundIn(Source("hermes_objects")), "think hermes");
  EXPECT_EQ(FoundIn(Source("function_tags")), "- -");
  EXPECT_EQ(FoundIn(Source("fenced")), "think deepseek_v3");
  EXPECT_EQ(FoundIn(Source("fenced_without_tools")), "think -!");
  EXPECT_EQ(FoundIn(Source("sections")), "think deepseek_v31");
  EXPECT_EQ(FoundIn(Source("dsml")), "think deepseek_v32");
  EXPECT_EQ(FoundIn(Source("python_tag")), "- llama3_json");
  EXPECT_EQ(FoundIn(Source("bare_keys")), "- functiongemma");
  EXPECT_EQ(FoundIn(Source("channels")), "gemma4 -!");
  EXPECT_EQ(FoundIn(Source("messages_with_channels")), "harmony -");
  EXPECT_EQ(FoundIn(""), "- -!");
  EXPECT_EQ(FoundIn("{% no template"), "- -!");
}

TEST(AnswerFormats, MayBeNamed) {
  EXPECT_EQ(FoundIn(Source("plain"), {.reasoning = "gemma4", .tools = "hermes"}), "gemma4 hermes!");
  EXPECT_EQ(FoundIn(Source("dsml"), {.reasoning = "none", .tools = "none"}), "- -");
  EXPECT_EQ(FoundIn(Source("dsml"), {.tools = "deepseek_v31"}), "think deepseek_v31");
  EXPECT_EQ(FindAnswerFormat("", nullptr, {.reasoning = "thinking"}).status(),
            absl::InvalidArgumentError("--reasoning: expected one of harmony, gemma4, think, none, "
                                       "got \"thinking\""));
  EXPECT_EQ(FindAnswerFormat("", nullptr, {.tools = "qwen"}).status(),
            absl::InvalidArgumentError(
                "--tools: expected one of deepseek_v32, deepseek_v3, deepseek_v31, functiongemma, "
                "hermes, llama3_json, none, got \"qwen\""));
}

TEST(AnswerFormats, AreFoundAmongTheTokens) {
  const auto qwen3 = Must(Tokenizer::Load(TextDataPath("tokenizers/qwen3.json")));
  const auto gemma3 = Must(Tokenizer::Load(TextDataPath("tokenizers/gemma3.json")));
  EXPECT_EQ(Shown(Must(FindAnswerFormat("", qwen3.get(), {}))), "think -!");
  EXPECT_EQ(Shown(Must(FindAnswerFormat("", gemma3.get(), {}))), "- -!");
}

// Letters, and marks as special tokens or not.
constexpr const char* kMarkTokenizer = R"({
  "added_tokens": [
    {"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "<think>", "special": false},
    {"id": 5, "content": "<|channel|>", "special": true}, {"id": 6, "content": "<|end|>", "special": true},
    {"id": 7, "content": "<|call|>", "special": true}, {"id": 8, "content": "</think>", "special": true},
    {"id": 9, "content": "<tool_call>", "special": true}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "<s>": 3, "<think>": 4, "<|channel|>": 5,
            "<|end|>": 6, "<|call|>": 7, "</think>": 8, "<tool_call>": 9}, "merges": []}})";

TEST(AnswerFormats, KnowTheSpecialTokensOfTheirMarks) {
  const auto tokenizer = Must(Tokenizer::Parse(kMarkTokenizer));
  const auto tokens = [&](const AnswerFormatNames& names) {
    return MarkTokens(Must(FindAnswerFormat("", nullptr, names)), *tokenizer);
  };
  EXPECT_THAT(tokens({.reasoning = "harmony"}), ElementsAre(5, 6));
  EXPECT_THAT(tokens({.reasoning = "think"}), ElementsAre(8)) << "the other is not special";
  EXPECT_THAT(tokens({.reasoning = "think", .tools = "hermes"}), ElementsAre(8, 9));
  EXPECT_THAT(tokens({}), IsEmpty());
}

TEST(AnswerFormats, BeginInReasoningAsTheTemplateSays) {
  const auto begins = [](const char* name, ordered_json given) {
    const std::string source = Source(name);
    given["messages"] = ordered_json::array({Message("user", "say <think>")});
    if (!given.contains("add_generation_prompt")) given["add_generation_prompt"] = true;
    const AnswerFormat format = Must(FindAnswerFormat(source, nullptr, {.reasoning = ""}));
    return BeginsInReasoning(format.reasoning, Render(source, given));
  };
  EXPECT_FALSE(begins("hermes_thinking", {}));
  EXPECT_FALSE(begins("hermes_thinking", {{"enable_thinking", false}}));
  EXPECT_TRUE(begins("hermes_objects", {}));
  EXPECT_TRUE(begins("fenced", {}));
  EXPECT_FALSE(begins("fenced", {{"add_generation_prompt", false}}));
  EXPECT_FALSE(begins("sections", {}));
  EXPECT_TRUE(begins("sections", {{"thinking", true}}));
  EXPECT_TRUE(begins("dsml", {}));
  EXPECT_FALSE(begins("dsml", {{"enable_thinking", false}}));
  EXPECT_FALSE(begins("channels", {}));
}

TEST(AnswerFormats, SeeVariablesThatAreNotGivenAsNone) {
  const std::string source = "{{ tools is none }} {{ documents is none }} {{ tools is defined }}";
  EXPECT_EQ(Render(source, {{"messages", ordered_json::array()}}).text, "True True True");
  const ordered_json given = {{"messages", ordered_json::array({Message("user", "q")})},
                              {"add_generation_prompt", true}};
  EXPECT_EQ(Render(Source("hermes_thinking"), given).text,
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  ordered_json without = given;
  without["enable_thinking"] = false;
  EXPECT_EQ(Render(Source("hermes_thinking"), without).text,
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

// "objects|texts null|empty|absent parts|joined"
std::string ShownShape(std::string_view name) {
  const MessageShape shape = FindMessageShape(Source(name));
  const char* const contents[] = {"null", "empty", "absent"};
  return StrCat(shape.object_arguments ? "objects " : "texts ", contents[shape.no_content],
                shape.content_parts ? " parts" : " joined");
}

TEST(MessageShapes, AreFoundByRendering) {
  EXPECT_EQ(ShownShape("plain"), "objects empty joined");
  EXPECT_EQ(ShownShape("hermes_thinking"), "texts empty joined");
  EXPECT_EQ(ShownShape("hermes_objects"), "objects null joined");
  EXPECT_EQ(ShownShape("fenced"), "texts null joined");
  EXPECT_EQ(ShownShape("fenced_without_tools"), "texts null joined");
  EXPECT_EQ(ShownShape("sections"), "texts null joined");
  EXPECT_EQ(ShownShape("dsml"), "objects empty joined");
  EXPECT_EQ(ShownShape("python_tag"), "objects null joined");
  EXPECT_EQ(ShownShape("bare_keys"), "objects empty parts");
  EXPECT_EQ(ShownShape("channels"), "objects empty parts");
  EXPECT_EQ(ShownShape("messages_with_channels"), "objects null joined");
}

// A conversation as OpenAI's clients send it.
ordered_json Conversation() {
  ordered_json calls = Message("assistant", nullptr);
  calls["tool_calls"] = ordered_json::array({Call("1", "f", R"({"a":  "x", "n": 1})")});
  ordered_json result = Message("tool", "ok");
  result["tool_call_id"] = "1";
  const ordered_json parts = {{{"type", "text"}, {"text", "one"}},
                              {{"type", "text"}, {"text", "two"}}};
  return ordered_json::array({Message("user", parts), calls, result});
}

std::string RenderedConversation(const char* name) {
  ordered_json messages = Conversation();
  NormaliseMessages(FindMessageShape(Source(name)), &messages);
  return Render(Source(name), {{"messages", messages}}).text;
}

TEST(MessageShapes, FitMessagesToTheirTemplates) {
  EXPECT_EQ(RenderedConversation("hermes_thinking"),
            "<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
            "{\"name\": \"f\", \"arguments\": {\"a\":  \"x\", \"n\": 1}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n");
  EXPECT_THAT(RenderedConversation("hermes_objects"),
              HasSubstr("\"arguments\": {\"a\": \"x\", \"n\": 1}}\n</tool_call>"));
  EXPECT_THAT(
      RenderedConversation("fenced"),
      HasSubstr("<｜tool▁sep｜>f\n```json\n{\"a\":  \"x\", \"n\": 1}\n```<｜tool▁call▁end｜>"));
  EXPECT_THAT(RenderedConversation("sections"),
              HasSubstr("f<｜tool▁sep｜>{\"a\":  \"x\", \"n\": 1}<"));
  EXPECT_THAT(RenderedConversation("dsml"),
              HasSubstr("<｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜parameter>\n"
                        "<｜DSML｜parameter name=\"n\" string=\"false\">1</｜DSML｜parameter>"));
  EXPECT_THAT(RenderedConversation("python_tag"),
              HasSubstr("{\"name\": \"f\", \"parameters\": {\"a\": \"x\", \"n\": 1}}<|eot_id|>"));
  EXPECT_EQ(RenderedConversation("bare_keys"),
            "<bos><start_of_turn>user\nonetwo<end_of_turn>\n<start_of_turn>model\n"
            "<start_function_call>call:f{a:<escape>x<escape>,n:1}<end_function_call><end_of_turn>\n"
            "<start_function_response>response:f{value:<escape>ok<escape>}<end_function_response>");
}

TEST(MessageShapes, LeaveWhatIsNoSuchMessage) {
  const ordered_json image = {{"type", "image_url"}, {"image_url", "data:"}};
  ordered_json messages = ordered_json::array(
      {1, "text", Message("user", ordered_json::array({image})), Message("user", "plain")});
  ordered_json calls = Message("assistant", "with text");
  calls["tool_calls"] = ordered_json::array(
      {Call("1", "f", "no json"), Call("2", "f", "[1]"), 3, {{"function", "f"}}, {{"id", 4}}});
  messages.push_back(calls);
  const ordered_json before = messages;
  NormaliseMessages({}, &messages);
  EXPECT_EQ(messages, before);
}

TEST(MessageShapes, SetContentThatIsAbsent) {
  ordered_json call = Message("assistant", "");
  call["tool_calls"] = ordered_json::array({Call("1", "f", "{}")});
  ordered_json messages =
      ordered_json::array({call, {{"role", "assistant"}}, Message("assistant", nullptr)});
  NormaliseMessages({.no_content = MessageShape::kAbsent}, &messages);
  EXPECT_FALSE(messages[0].contains("content"));
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], ordered_json::object());
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[2]["content"], "");
  NormaliseMessages({.no_content = MessageShape::kNull}, &messages);
  EXPECT_TRUE(messages[0]["content"].is_null());
}

}  // namespace
}  // namespace pagefuse
