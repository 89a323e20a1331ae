// SPDX-License-Identifier: Apache-2.0
// Answers as the Responses API writes them.
#include "pagefuse/serve/responses_answer.h"

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
std::shared_ptr<FakeReply> Responses(bool stream, const std::vector<AnswerDelta>& deltas,
                                     const AnswerEnd& end) {
  const auto reply = std::make_shared<FakeReply>();
  ResponsesAnswer answer(reply, {.id = "resp_1", .model = "m", .stream = stream}, {});
  answer.Begin();
  for (const AnswerDelta& delta : deltas) answer.OnDelta(delta);
  answer.OnEnd(end);
  answer.Begin();  // a second one changes nothing
  return reply;
}

TEST(ResponsesStream, TellsEachItemFromItsBeginningToItsEnd) {
  const auto reply = Responses(true, kAllKinds, EndOf(AnswerFinish::kCalls));
  EXPECT_THAT(reply->Names(),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.delta", "response.reasoning_text.done",
                          "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.content_part.added",
                          "response.output_text.delta", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.output_item.added",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done",
                          "response.output_item.added", "response.function_call_arguments.done",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(reply->ends, 1);
  EXPECT_EQ(reply->ping, ": ping\n\n");
}

TEST(ResponsesStream, CountsItsEventsAndNamesThemTwice) {
  const auto reply = Responses(true, kAllKinds, EndOf(AnswerFinish::kCalls));
  int64_t next = 0;
  for (const auto& [name, data] : reply->Events()) {
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], next++);
  }
}

// Joined by item, as a client does it.
TEST(ResponsesStream, JoinedDeltasAreTheItemsOfTheEnd) {
  const auto reply = Responses(true, kAllKinds, EndOf(AnswerFinish::kCalls));
  std::vector<std::string> ids, texts, last;
  for (const auto& [name, data] : reply->Events()) {
    if (name == "response.output_item.added") {
      EXPECT_EQ(data["output_index"], ids.size());
      ids.push_back(data["item"]["id"]);
      texts.emplace_back();
    }
    if (name.ends_with(".delta")) {
      EXPECT_EQ(data["item_id"], ids.back());
      texts.back() += data["delta"].get<std::string>();
    }
    if (name != "response.completed") continue;
    for (const Json& item : data["response"]["output"]) {
      last.push_back(item.contains("content") ? item["content"][0]["text"] : item["arguments"]);
    }
  }
  EXPECT_THAT(texts, ElementsAre("Let me see.", "Well, \"yes\"\n", "{\"a\":1}", ""));
  EXPECT_EQ(last, texts);
}

TEST(ResponsesReply, IsTheResponseOfTheLastEvent) {
  const auto end = EndOf(AnswerFinish::kCalls);
  Json whole = Responses(false, kAllKinds, end)->Whole();
  Json last = Responses(true, kAllKinds, end)->Events().back().second["response"];
  for (Json* json : {&whole, &last}) {
    for (const char* time : {"created_at", "completed_at"}) json->erase(time);
    for (Json& item : (*json)["output"]) {
      EXPECT_TRUE(item["id"].is_string());
      EXPECT_EQ(item["status"], "completed");
      for (const char* id : {"id", "call_id"}) item.erase(id);
    }
  }
  EXPECT_EQ(whole, last);
  EXPECT_EQ(whole["usage"].dump(),
            R"({"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":7,)"
            R"("output_tokens_details":{"reasoning_tokens":2},"total_tokens":17})");
}

TEST(ResponsesReply, SaysThatItWasCutOff) {
  const Json whole =
      Responses(false, {Reasoning("a"), Content("b")}, EndOf(AnswerFinish::kLength))->Whole();
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "completed");
  EXPECT_EQ(whole["output"][1]["status"], "incomplete");
}

TEST(ResponsesReply, OfNothingHasNoItems) {
  const Json whole = Responses(false, {}, EndOf(AnswerFinish::kStop))->Whole();
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"], Json::array());
}

TEST(ResponsesReply, HasLogprobsOfTextAlone) {
  const auto reply = std::make_shared<FakeReply>();
  const auto tokenizer = Tokenizer::OfBytes();
  ASSERT_TRUE(tokenizer.ok());
  ResponsesAnswer answer(reply, {.id = "r", .model = "m", .tokenizer = *tokenizer}, {});
  AnswerDelta reasoning = Reasoning("a"), content = Content("b"), nothing;
  const TokenLogprobs logprobs = {.logprob = -0.5, .top = {{98, -0.5}, {99, -1.5}}};
  for (AnswerDelta* delta : {&reasoning, &content, &nothing}) {
    delta->tokens.push_back({.token = 98, .bytes = "b", .logprobs = logprobs});
    answer.OnDelta(*delta);
  }
  answer.OnEnd(EndOf(AnswerFinish::kStop));
  const Json part = reply->Whole()["output"][1]["content"][0];
  EXPECT_EQ(
      part["logprobs"].dump(),
      R"([{"token":"b","logprob":-0.5,"bytes":[98],"top_logprobs":[)"
      R"({"token":"b","logprob":-0.5,"bytes":[98]},{"token":"c","logprob":-1.5,"bytes":[99]}]}])");
}

TEST(ResponsesStream, ThatFailsEndsWithWhatCameAndWhy) {
  for (const AnswerEnd& end : {Failed(), EndOf(AnswerFinish::kCancelled)}) {
    const auto reply = Responses(true, {Content("ab")}, end);
    const auto [name, data] = reply->Events().back();
    EXPECT_EQ(name, "response.failed");
    EXPECT_EQ(data["sequence_number"], reply->Events().size() - 1);
    EXPECT_EQ(data["response"]["status"], "failed");
    EXPECT_EQ(data["response"]["error"]["code"], "server_error");
    EXPECT_EQ(data["response"]["output"][0]["content"][0]["text"], "ab");
    EXPECT_EQ(reply->ends, 1);
  }
}

TEST(ResponsesReply, ThatFailsIsAnError) {
  const auto reply = Responses(false, {Content("ab")}, Failed());
  EXPECT_EQ(reply->status, 500);
  EXPECT_EQ(reply->Whole()["error"]["message"], "node \"x\" broke");
  EXPECT_EQ(Responses(false, {}, EndOf(AnswerFinish::kCancelled))->status, 503);
}

}  // namespace
}  // namespace pagefuse::serve
