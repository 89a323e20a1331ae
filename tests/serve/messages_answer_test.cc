// SPDX-License-Identifier: Apache-2.0
// Answers as the Messages API writes them.
#include "pagefuse/serve/messages_answer.h"

#include <memory>
#include <string>
#include <vector>

#include "answer_pieces.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagefuse::serve {
namespace {

using testing::ElementsAre;

// What the writer replies to these pieces.
std::shared_ptr<FakeReply> Messages(bool stream, const std::vector<AnswerDelta>& deltas,
                                    const AnswerEnd& end) {
  const auto reply = std::make_shared<FakeReply>();
  MessagesAnswer answer(reply,
                        {.id = "msg_1",
                         .model = "m",
                         .stream = stream,
                         .prompt_tokens = 10,
                         .stop_tokens = {{5, "<s>"}}},
                        {});
  answer.Begin();
  for (const AnswerDelta& delta : deltas) answer.OnDelta(delta);
  answer.OnEnd(end);
  answer.Begin();
  return reply;
}

TEST(MessagesStream, TellsEachBlockFromItsBeginningToItsEnd) {
  const auto reply = Messages(true, kAllKinds, EndOf(AnswerFinish::kCalls));
  std::vector<std::string> told;
  for (const auto& [name, data] : reply->Events()) {
    EXPECT_EQ(data["type"], name);
    const bool of_block = name.starts_with("content_block");
    const std::string kind = data.contains("delta") && of_block ? data["delta"]["type"] : Json("");
    told.push_back((kind.empty() ? name : kind) + (of_block ? data["index"].dump() : ""));
  }
  EXPECT_THAT(told, ElementsAre("message_start", "ping", "content_block_start0", "thinking_delta0",
                                "thinking_delta0", "signature_delta0", "content_block_stop0",
                                "content_block_start1", "text_delta1", "text_delta1",
                                "content_block_stop1", "content_block_start2", "input_json_delta2",
                                "input_json_delta2", "content_block_stop2", "content_block_start3",
                                "content_block_stop3", "message_delta", "message_stop"));
  EXPECT_EQ(reply->ends, 1);
  EXPECT_EQ(reply->ping, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
}

TEST(MessagesStream, BeginsWithoutContentAndEndsWithUsage) {
  const auto events = Messages(true, kAllKinds, EndOf(AnswerFinish::kCalls))->Events();
  const Json& message = events[0].second["message"];
  EXPECT_EQ(message["content"], Json::array());
  EXPECT_EQ(message["stop_reason"], Json());
  EXPECT_EQ(message["usage"]["input_tokens"], 10);
  EXPECT_EQ(events[events.size() - 2].second.dump(),
            R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)"
            R"("usage":{"input_tokens":6,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":4,"output_tokens":7}})");
}

TEST(MessagesReply, HasTheBlocks) {
  Json content = Messages(false, kAllKinds, EndOf(AnswerFinish::kCalls))->Whole()["content"];
  for (Json& block : content) block.erase("id");
  EXPECT_EQ(content.dump(),
            R"([{"type":"thinking","thinking":"Let me see.","signature":"unsigned"},)"
            R"({"type":"text","text":"Well, \"yes\"\n"},)"
            R"({"type":"tool_use","name":"weather","input":{"a":1}},)"
            R"({"type":"tool_use","name":"time","input":{}}])");
}

TEST(MessagesReply, KeepsWhatIsNoInput) {
  const Json whole =
      Messages(false, {CallBegins(0, "f"), CallGoesOn(0, "{\"a")}, EndOf(AnswerFinish::kLength))
          ->Whole();
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_EQ(whole["content"][0]["input"].dump(), R"({"INVALID_JSON":"{\"a"})");
}

TEST(MessagesReply, SaysWhyItEnded) {
  AnswerEnd end = EndOf(AnswerFinish::kStop);
  Json whole = Messages(false, {Content("a")}, end)->Whole();
  EXPECT_EQ(whole["stop_reason"], "end_turn");
  EXPECT_EQ(whole["stop_sequence"], Json());
  end.stop = "xyz";
  whole = Messages(false, {Content("a")}, end)->Whole();
  EXPECT_EQ(whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole["stop_sequence"], "xyz");
  end.stop = "";
  end.stop_token = 5;  // as which the sequence "<s>" came
  EXPECT_EQ(Messages(false, {}, end)->Whole()["stop_sequence"], "<s>");
  end.stop_token = 6;  // the model's own
  EXPECT_EQ(Messages(false, {}, end)->Whole()["stop_reason"], "end_turn");
}

TEST(MessagesStream, ThatFailsEndsWithAnError) {
  const auto reply = Messages(true, {Content("ab")}, Failed());
  const auto [name, data] = reply->Events().back();
  EXPECT_EQ(name, "error");
  EXPECT_EQ(data.dump(),
            R"({"type":"error","error":{"type":"api_error","message":"node \"x\" broke"}})");
  EXPECT_EQ(reply->ends, 1);
  const auto cancelled = Messages(true, {}, EndOf(AnswerFinish::kCancelled));
  EXPECT_EQ(cancelled->Events().back().second["error"]["type"], "overloaded_error");
}

TEST(MessagesReply, ThatFailsIsAnError) {
  const auto reply = Messages(false, {Content("ab")}, Failed());
  EXPECT_EQ(reply->status, 500);
  EXPECT_EQ(reply->Whole()["error"]["type"], "api_error");
}

}  // namespace
}  // namespace pagefuse::serve
