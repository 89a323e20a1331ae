// SPDX-License-Identifier: Apache-2.0
// Requests of the Responses API and the Messages API as the messages and rules that they become.
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/messages_input.h"
#include "pagefuse/serve/responses_input.h"

namespace pagefuse::serve {
namespace {

using testing::ElementsAre;

ServedModel Model() {
  ServedModel model;
  model.name = "m";
  model.tokenizer = *Tokenizer::OfBytes();
  model.config.end_tokens = {3};
  return model;
}

// A body with these members besides "model" and what is needed.
Json Body(std::string_view members, std::string_view usual) {
  Json body = Json::parse(usual);
  body["model"] = "m";
  body.update(Json::parse(members));
  return body;
}

absl::StatusOr<ResponsesRequest> Response(std::string_view members) {
  return ReadResponses(Model(), Body(members, R"({"input": "hi"})"));
}

absl::StatusOr<Conversation> Message(std::string_view members) {
  return ReadMessages(
      Model(),
      Body(members, R"({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})"),
      /*counts=*/false);
}

std::string ParamOfResponse(std::string_view members) {
  return ParamOf(Response(members).status());
}
std::string ParamOfMessage(std::string_view members) { return ParamOf(Message(members).status()); }

TEST(ResponsesInput, ATextIsAUsers) {
  const auto found = Response(R"({"input": "hi", "instructions": "Be kind."})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->conversation.input.messages.dump(),
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}])");
}

TEST(ResponsesInput, ItemsOfOneAnswerAreOneMessage) {
  const auto found = Response(R"({"instructions": "a", "input": [
    {"role": "developer", "content": "b"},
    {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "e"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "f"}]},
    {"type": "function_call", "call_id": "1", "name": "g", "arguments": "{\"x\":1}"},
    {"type": "function_call", "call_id": "2", "name": "h", "arguments": ""},
    {"type": "function_call_output", "call_id": "2", "output": "i"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "j"}]}]})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->conversation.input.messages, Json::parse(R"([
    {"role": "system", "content": "a\n\nb"},
    {"role": "user", "content": "cd"},
    {"role": "assistant", "reasoning_content": "e", "content": "f", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "g", "arguments": "{\"x\":1}"}},
      {"id": "2", "type": "function", "function": {"name": "h", "arguments": "{}"}}]},
    {"role": "tool", "content": "i", "tool_call_id": "2", "name": "h"},
    {"role": "tool", "content": "j", "tool_call_id": "1", "name": "g"}])"));
}

TEST(ResponsesInput, SummariesStandForReasoningThatIsNotThere) {
  const auto found = Response(R"({"input": [{"role": "user", "content": "a"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "b"}]},
    {"role": "user", "content": "c"}]})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->conversation.input.messages[1].dump(),
            R"({"role":"assistant","reasoning_content":"b","content":""})");
}

TEST(ResponsesInput, ToolsAndFormatAreThoseOfChatCompletions) {
  const auto found = Response(R"({"parallel_tool_calls": false,
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "s", "schema": {"type": "string"}, "strict": true}}})");
  ASSERT_TRUE(found.ok()) << found.status();
  const AnswerRulesInput& rules = found->conversation.rules;
  EXPECT_EQ(rules.tools, Json::parse(R"([{"type": "function", "function": {"name": "f",
    "description": "d", "parameters": {"type": "object"}, "strict": true}}])"));
  EXPECT_EQ(rules.tool_choice, Json::parse(R"({"type": "function", "function": {"name": "f"}})"));
  EXPECT_EQ(rules.response_format, Json::parse(R"({"type": "json_schema", "json_schema":
    {"name": "s", "schema": {"type": "string"}, "strict": true}})"));
  EXPECT_FALSE(rules.parallel);
  EXPECT_THAT(found->conversation.ignored, ElementsAre("text.verbosity"));
  EXPECT_EQ(found->echo["tools"][0]["name"], "f");
}

TEST(ResponsesInput, ReasoningGoesToTheTemplate) {
  EXPECT_EQ(Response(R"({"reasoning": {"effort": "low", "summary": "auto"}})")
                ->conversation.input.template_fields.dump(),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(
      Response(R"({"reasoning": {"effort": "none"}})")->conversation.input.template_fields.dump(),
      R"({"enable_thinking":false})");
}

TEST(ResponsesInput, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"store": true})", "store"},
      {R"({"previous_response_id": "x"})", "previous_response_id"},
      {R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].name"},
      {R"({"tool_choice": {"type": "mcp"}})", "tool_choice.type"},
      {R"({"include": ["x"]})", "include[0]"},
      {R"({"text": {"format": {"type": "json_schema", "name": "x"}}})", "text.format.schema"},
      {R"({"input": [{"type": "reasoning", "content": [{"type": "image"}]}]})",
       "input[0].content[0].type"},
      {R"({"input": [{"type": "function_call", "call_id": "1"}]})", "input[0].name"},
      {R"({"input": [5]})", "input[0]"},
      {R"({"input": []})", "input"},
      {R"({"reasoning": {"summary": "long"}})", "reasoning.summary"}};
  for (const auto& [members, param] : cases) EXPECT_EQ(ParamOfResponse(members), param) << members;
}

TEST(MessagesInput, BlocksBecomeMessages) {
  const auto found =
      Message(R"({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "messages": [
      {"role": "user", "content": "b"},
      {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "e", "signature": "s"},
        {"type": "redacted_thinking", "data": "?"},
        {"type": "text", "text": "f"},
        {"type": "tool_use", "id": "1", "name": "g", "input": {"x": 1}},
        {"type": "tool_use", "id": "2", "name": "h", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": "i"},
        {"type": "tool_result", "tool_use_id": "2", "is_error": true, "content": [{"type": "text", "text": "j"}]},
        {"type": "text", "text": "k"}]}]})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->input.messages, Json::parse(R"([
    {"role": "system", "content": "a"},
    {"role": "user", "content": "b\n\ncd"},
    {"role": "assistant", "reasoning_content": "e", "content": "f", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "g", "arguments": "{\"x\":1}"}},
      {"id": "2", "type": "function", "function": {"name": "h", "arguments": "{}"}}]},
    {"role": "tool", "content": "i", "tool_call_id": "1", "name": "g"},
    {"role": "tool", "content": "Error: j", "tool_call_id": "2", "name": "h"},
    {"role": "user", "content": "k"}])"));
}

TEST(MessagesInput, ToolsAreThoseOfChatCompletions) {
  const auto found = Message(R"({"tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true}})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->rules.tools, Json::parse(R"([{"type": "function", "function":
    {"name": "f", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(found->rules.tool_choice, "required");
  EXPECT_FALSE(found->rules.parallel);
  EXPECT_EQ(Message(R"({"tool_choice": {"type": "tool", "name": "f"}})")->rules.tool_choice,
            Json::parse(R"({"type": "function", "function": {"name": "f"}})"));
}

TEST(MessagesInput, ThinkingGoesToTheTemplate) {
  EXPECT_EQ(Message(R"({"thinking": {"type": "enabled", "budget_tokens": 1024}})")
                ->input.template_fields.dump(),
            R"({"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(Message(R"({"thinking": {"type": "disabled"}})")->input.template_fields.dump(),
            R"({"enable_thinking":false,"thinking":false})");
  EXPECT_EQ(Message("{}")->input.template_fields.dump(), "{}");
}

TEST(MessagesInput, EndsAtStopSequencesAndTheModelsOwnTokens) {
  const auto found = Message(R"({"stop_sequences": ["x"], "top_k": 5, "odd": 1})");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->fields.stops, ElementsAre("x"));
  EXPECT_THAT(found->fields.stop_tokens, ElementsAre(3));
  EXPECT_EQ(found->fields.sampling.top_k, 5);
  EXPECT_THAT(found->ignored, ElementsAre("odd"));
}

TEST(MessagesInput, CountsWithoutALength) {
  const Json body = Json::parse(R"({"messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_TRUE(ReadMessages(Model(), body, /*counts=*/true).ok());
  EXPECT_EQ(ParamOf(ReadMessages(Model(), body, /*counts=*/false).status()), "max_tokens");
}

TEST(MessagesInput, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature": 1.1})", "temperature"},
      {R"({"tools": [{"type": "bash_20250124", "name": "bash"}]})", "tools[0].type"},
      {R"({"tools": [{"name": "f"}]})", "tools[0].input_schema"},
      {R"({"tool_choice": {"type": "tool"}})", "tool_choice.name"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_result"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]})",
       "messages[0].content[0].tool_use_id"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       "messages"},
      {R"({"system": [{"type": "image"}]})", "system[0].type"},
      {R"({"output_config": {"format": {"type": "json_schema"}}})", "output_config.format.schema"}};
  for (const auto& [members, param] : cases) EXPECT_EQ(ParamOfMessage(members), param) << members;
}

}  // namespace
}  // namespace pagefuse::serve
