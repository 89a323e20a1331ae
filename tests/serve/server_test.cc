// SPDX-License-Identifier: Apache-2.0
// The server over a tiny decoder: what it answers is what the engine gives, whatever happens meanwhile.
#include "pagefuse/serve/server.h"

#include <future>
#include <thread>

#include "must.h"
#include "raw_client.h"
#include "tiny_server.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kCompletions = "/v1/completions";

std::string TextOf(const std::vector<int64_t>& tokens) {
  return std::string(tokens.begin(), tokens.end());  // of bytes, as long as they are ASCII
}

std::vector<Completion> Alone(const Request& request) {
  return Must(TinyEngine()->Generate({request}));
}

// The texts of the choices, of a whole reply or of a stream.
std::vector<std::string> Texts(const TinyReply& reply, size_t choices) {
  std::vector<std::string> texts(choices);
  const auto add = [&texts](const TestJson& json) {
    for (const TestJson& choice : json["choices"]) {
      texts.at(choice["index"].get<size_t>()) += choice["text"].get<std::string>();
    }
  };
  if (reply.events.empty()) add(reply.json);
  for (const TestJson& event : reply.events) add(event);
  return texts;
}

TestJson With(TestJson body, const TestJson& more) {
  body.update(more);
  return body;
}

TEST(ServeAnswers, TokensAreThoseOfTheEngineWholeAndStreamed) {
  TinyServer server;
  const TestJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 12}};
  const std::string expected = TextOf(Alone({.prompt = {1, 2, 3}, .max_new_tokens = 12})[0].tokens);
  ASSERT_EQ(expected.size(), 12u);
  for (const bool stream : {false, true}) {
    const TinyReply reply = server.Post(kCompletions, With(body, {{"stream", stream}}));
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(Texts(reply, 1), ElementsAre(expected));
    EXPECT_EQ(reply.done, stream);
    const TestJson& last = stream ? reply.events.back() : reply.json;
    EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  }
  EXPECT_TRUE(server.BecomesIdle());
}

TEST(ServeAnswers, SamplesAndPromptsAreChoicesOfTheirOwn) {
  TinyServer server;
  const SamplingOptions sampling = {.temperature = 1, .seed = 7};
  std::vector<std::string> expected;
  for (const int64_t last : {3, 4}) {
    const Request request = {
        .prompt = {1, 2, last}, .max_new_tokens = 10, .sampling = sampling, .samples = 3};
    for (const Completion& made : Alone(request)) expected.push_back(TextOf(made.tokens));
  }
  EXPECT_NE(expected[0], expected[1]);
  const TestJson body = {{"prompt", {{1, 2, 3}, {1, 2, 4}}},
                         {"max_tokens", 10},
                         {"n", 3},
                         {"temperature", 1},
                         {"seed", 7}};
  for (const bool stream : {false, true}) {
    const TinyReply reply = server.Post(
        kCompletions,
        stream ? With(body, {{"stream", true}, {"stream_options", {{"include_usage", true}}}})
               : body);
    EXPECT_EQ(Texts(reply, 6), expected) << stream;
    const TestJson& usage = (stream ? reply.events.back() : reply.json)["usage"];
    EXPECT_EQ(usage["completion_tokens"], 60);
    EXPECT_EQ(usage["prompt_tokens"], 6);
  }
}

TEST(ServeAnswers, AStopStringEndsTheAnswerBeforeIt) {
  TinyServer server;
  const std::string whole = TextOf(Alone({.prompt = {1, 2, 3}, .max_new_tokens = 40})[0].tokens);
  const std::string stop = whole.substr(5, 3);
  const std::string expected = whole.substr(0, whole.find(stop));
  const TestJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 40}, {"stop", stop}};
  for (const bool stream : {false, true}) {
    const TinyReply reply = server.Post(kCompletions, With(body, {{"stream", stream}}));
    EXPECT_EQ(Texts(reply, 1)[0], expected);
    const TestJson& last = stream ? reply.events.back() : reply.json;
    EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  }
  EXPECT_TRUE(server.BecomesIdle());
  // No token behind it was computed.
  EXPECT_EQ(server.Metric("generation_tokens_total"), 2 * (expected.size() + stop.size()));
  EXPECT_EQ(server.Post(kCompletions, With(body, {{"stop", "\x1f"}})).json["choices"][0]["text"],
            whole);
}

TEST(ServeAnswers, AStopTokenEndsTheAnswerWithIt) {
  TinyServer server;
  const std::vector<int64_t> whole = Alone({.prompt = {1, 2, 3}, .max_new_tokens = 40})[0].tokens;
  const int64_t stop = whole[4];
  const size_t first = std::ranges::find(whole, stop) - whole.begin();
  const TinyReply reply = server.Post(
      kCompletions, {{"prompt", {1, 2, 3}}, {"max_tokens", 40}, {"stop_token_ids", {stop}}});
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Texts(reply, 1)[0], TextOf(whole).substr(0, first));
  EXPECT_EQ(reply.json["usage"]["completion_tokens"], first + 1);
}

TEST(ServeAnswers, LogprobsAreThoseOfTheEngine) {
  TinyServer server;
  const Completion alone =
      Alone({.prompt = {1, 2, 3}, .max_new_tokens = 6, .sampling = {.logprobs = 2}})[0];
  const TestJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 6}, {"logprobs", 2}};
  for (const bool stream : {false, true}) {
    const TinyReply reply = server.Post(kCompletions, With(body, {{"stream", stream}}));
    std::vector<double> logprobs;
    const auto add = [&logprobs](const TestJson& json) {
      const TestJson& lists = json["choices"][0]["logprobs"];
      if (lists.is_null()) return;
      for (const TestJson& one : lists["token_logprobs"]) logprobs.push_back(one.get<double>());
    };
    if (!stream) add(reply.json);
    for (const TestJson& event : reply.events) add(event);
    ASSERT_EQ(logprobs.size(), 6u);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(logprobs[i], alone.logprobs[i].logprob) << i;
  }
}

TEST(ServeFailures, AFailedStepAnswersWithAnErrorAndTheServerLives) {
  TinyServer server;
  const TestJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 12}};
  const std::string expected = server.Post(kCompletions, body).json["choices"][0]["text"];
  server.gate().FailNext(1);
  const TinyReply failed = server.Post(kCompletions, body);
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.json["error"]["type"], "server_error");
  EXPECT_THAT(failed.json["error"]["message"].get<std::string>(), HasSubstr("told to fail"));
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_TRUE(server.BecomesIdle());
  EXPECT_EQ(server.Post(kCompletions, body).json["choices"][0]["text"], expected);
  EXPECT_EQ(server.Metric("request_success_total", ",finished_reason=\"error\""), 1);
}

TEST(ServeFailures, AStepThatFailsLaterEndsTheStreamWithAnEvent) {
  TinyServer server;
  RawClient client(server.port());
  server.gate().Close();
  client.Post(kCompletions, R"({"prompt":[1,2,3],"max_tokens":100,"stream":true})");
  ASSERT_TRUE(Becomes([&] { return server.gate().waits(); }));
  server.gate().Open();
  EXPECT_THAT(client.ReadTo("\n\n"), HasSubstr("text/event-stream"));
  server.gate().FailNext(1);
  const std::string rest = client.ReadTo("0\r\n\r\n");
  // Either it was over before, or it is told and ends as a stream does.
  if (rest.find("\"finish_reason\":\"length\"") == std::string::npos) {
    EXPECT_THAT(rest, HasSubstr("data: {\"error\":{\"message\":"));
    EXPECT_THAT(rest, HasSubstr("data: [DONE]\n\n"));
  }
  EXPECT_TRUE(server.BecomesIdle());
}

TEST(ServeFailures, StepsThatFailEndAllTheirRequestsAndNoOthers) {
  TinyServer server;
  server.gate().Close();
  std::vector<std::future<TinyReply>> replies;
  for (int i = 0; i < 8; ++i) {
    replies.push_back(std::async(std::launch::async, [&server, i] {
      return server.Post(kCompletions, {{"prompt", {1 + i, 2, 3}}, {"max_tokens", 5}});
    }));
  }
  ASSERT_TRUE(Becomes([&] {
    return server.Metric("num_requests_running") + server.Metric("num_requests_waiting") == 8;
  }));
  server.gate().FailNext(2);
  server.gate().Open();
  int failed = 0;
  for (auto& reply : replies) {
    const TinyReply got = reply.get();
    EXPECT_TRUE(got.status == 200 || got.status == 500) << got.text;
    failed += got.status == 500 ? 1 : 0;
  }
  server.gate().FailNext(0);
  EXPECT_GT(failed, 0);
  EXPECT_TRUE(server.BecomesIdle());
  EXPECT_EQ(server.Post(kCompletions, {{"prompt", {1}}}).status, 200);
}

// While a step stands still: one runs, so many wait, and the next is told to come again.
TEST(ServeQueue, MoreThanMayWaitAreToldToComeAgain) {
  TinyServer server({.limits = {.waiting_requests = 2}});
  server.gate().Close();
  const TestJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 3}};
  std::vector<std::future<TinyReply>> replies;
  const auto post = [&] {
    replies.push_back(
        std::async(std::launch::async, [&] { return server.Post(kCompletions, body); }));
  };
  post();
  ASSERT_TRUE(Becomes([&] { return server.gate().waits(); }));
  post();
  post();
  ASSERT_TRUE(Becomes([&] { return server.Metric("num_requests_waiting") == 2; }));
  const TinyReply full = server.Post(kCompletions, body);
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.headers, Contains(Pair("retry-after", "1")));
  EXPECT_EQ(full.json["error"]["code"], "queue_full");
  // Two prompts, of which one might have waited: none of them does.
  const TestJson two = With(body, {{"prompt", {{1}, {2}}}});
  EXPECT_EQ(server.Post(kCompletions, two).status, 429);
  EXPECT_EQ(server.Get("/health").status, 200);
  server.gate().Open();
  for (auto& reply : replies) EXPECT_EQ(reply.get().status, 200);
  EXPECT_TRUE(server.BecomesIdle());
  EXPECT_EQ(server.Post(kCompletions, two).status, 200);
}

TEST(ServeQueue, WhoLeavesIsNotAnswered) {
  TinyServer server;
  server.gate().Close();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Post(kCompletions,
                         StrCat(R"({"prompt":[1,2,)", i % 20, R"(],"max_tokens":150,"stream":)",
                                i % 2 == 0 ? "true" : "false", "}"));
  }
  ASSERT_TRUE(Becomes([&] {
    return server.Metric("num_requests_running") + server.Metric("num_requests_waiting") == 30;
  }));
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i % 3 == 0) clients[i]->Leave();
    if (i % 3 == 1) clients[i]->Reset();
    if (i % 3 == 2) clients[i]->EndWriting();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.gate().Open();
  EXPECT_TRUE(server.BecomesIdle());
  // One that is seen late may have been answered.
  const auto finished = [&server](std::string_view reason) {
    return server.Metric("request_success_total", StrCat(",finished_reason=\"", reason, "\""));
  };
  EXPECT_EQ(finished("abort") + finished("length"), 30);
  EXPECT_GT(finished("abort"), 0);
}

// Its client hears of it before there is a token, however long that takes.
TEST(ServeQueue, AStreamBeginsAndHasPingsWhileItWaits) {
  TinyServer server({.limits = {.ping = std::chrono::milliseconds(20)}});
  server.gate().Close();
  RawClient client(server.port());
  client.Post(kCompletions, R"({"prompt":[1,2,3],"max_tokens":3,"stream":true})");
  EXPECT_THAT(client.ReadTo("\r\n\r\n"), HasSubstr("HTTP/1.1 200 OK"));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(client.ReadTo(": ping"), HasSubstr(": ping"));
  server.gate().Open();
  EXPECT_THAT(client.ReadTo("[DONE]"), HasSubstr("\"finish_reason\":\"length\""));
}

TEST(ServeAnswers, ModelsAreFoundByNamesThatAreCoded) {
  TinyServer server;
  EXPECT_EQ(server.Get("/v1/models/t%69ny").json["id"], "tiny");
  for (const char* name : {"t%2Finy", "tiny%", "tiny%6", "tiny%zz"}) {
    EXPECT_EQ(server.Get(std::string("/v1/models/") + name).status, 404) << name;
  }
}

TEST(ServeQueue, OneThatLeavesAtOnceDoesNotStay) {
  TinyServer server;
  for (int i = 0; i < 200; ++i) {
    RawClient client(server.port());
    client.Post(kCompletions, R"({"prompt":[1,2,3],"max_tokens":190})");
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
  }
  EXPECT_TRUE(server.BecomesIdle());
}

TEST(ServeStart, PagesOfOneOtherOriginMayReadReplies) {
  TinyServer closed, open({.cors_origin = "https://a.example"});
  const auto origins = [](TinyServer& server) {
    std::string origins;
    for (const std::string path : {"/health", "/nothing", "/v1/models"}) {
      for (const auto& [name, value] : server.Get(path).headers) {
        if (name == "access-control-allow-origin") origins += value + ";";
      }
    }
    return origins;
  };
  EXPECT_EQ(origins(closed), "");
  EXPECT_EQ(origins(open), "https://a.example;https://a.example;https://a.example;");
  for (const auto& [server, status] : std::map<TinyServer*, int>{{&closed, 405}, {&open, 204}}) {
    RawClient client(server->port());
    client.Send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const RawReply reply = client.Read();
    EXPECT_EQ(reply.status, status);
    const size_t first = reply.head.find("Access-Control-Allow-Origin: https://a.example\r\n");
    EXPECT_EQ(first != std::string::npos, status == 204);
    if (status == 204) {
      EXPECT_EQ(reply.head.find("Access-Control-Allow-Origin", first + 1), std::string::npos);
    }
  }
}

TEST(ServeStart, AllButItsStateWaitsForTheModel) {
  Log log(Log::Form::kNone);
  const auto server = Must(Server::Listen({.port = 0}, &log));
  for (const auto& [path, status] : std::map<std::string, int>{{"/health", 503},
                                                               {"/v1/models", 503},
                                                               {"/metrics", 503},
                                                               {"/version", 200},
                                                               {"/nothing", 404}}) {
    RawClient client(server->port());
    client.Get(path);
    const RawReply reply = client.Read();
    EXPECT_EQ(reply.status, status) << path;
    const bool waits = status == 503 && path != "/health";
    EXPECT_EQ(reply.head.find("Retry-After: 1") != std::string::npos, waits) << path;
  }
}

TEST(ServeEnd, WhatRunsEndsWholeAndNothingNewBegins) {
  TinyServer server;
  server.gate().Close();
  RawClient client(server.port()), other(server.port());
  client.Post(kCompletions, R"({"prompt":[1,2,3],"max_tokens":20,"stream":true})");
  ASSERT_TRUE(Becomes([&] { return server.gate().waits(); }));
  std::thread drain([&] { server.server().Drain([] { return false; }); });
  ASSERT_TRUE(Becomes([&] { return server.Get("/health").status == 503; }));
  other.Post(kCompletions, R"({"prompt":[1,2,3]})");
  const RawReply refused = other.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("draining"));
  server.gate().Open();
  const RawReply reply = client.Read();
  EXPECT_TRUE(reply.whole);
  EXPECT_THAT(reply.body, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(reply.body, ::testing::EndsWith("data: [DONE]\n\n"));
  drain.join();
}

TEST(ServeEnd, WhatTakesTooLongIsTold) {
  TinyServer server({.limits = {.drain = std::chrono::milliseconds(50)}});
  server.gate().Close();
  RawClient client(server.port());
  client.Post(kCompletions, R"({"prompt":[1,2,3],"max_tokens":20})");
  ASSERT_TRUE(Becomes([&] { return server.gate().waits(); }));
  std::thread drain([&] { server.server().Drain([] { return false; }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  server.gate().Open();
  const RawReply reply = client.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("cancelled"));
  drain.join();
}

// Requests, refusals and cancellations whose figures are known.
TEST(Metrics, TotalsAreThoseOfTheLoad) {
  TinyServer server;
  int64_t prompt = 0, tokens = 0, requests = 0;
  for (int64_t i = 1; i <= 6; ++i) {
    std::vector<int64_t> ids(5 * i, i);
    const TinyReply reply =
        server.Post(kCompletions,
                    {{"prompt", ids}, {"max_tokens", 3 + i}, {"n", i % 2 + 1}, {"stream", i > 3}});
    EXPECT_EQ(reply.status, 200);
    prompt += 5 * i;
    tokens += (3 + i) * (i % 2 + 1);
    ++requests;
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(server.Post(kCompletions, {{"n", 0}}).status, 400);
  EXPECT_EQ(server.Post(kCompletions, {{"model", "x"}}).status, 404);
  server.gate().FailNext(1);
  EXPECT_EQ(server.Post(kCompletions, {{"prompt", {22, 21}}}).status, 500);
  server.gate().Close();
  {
    RawClient client(server.port());
    client.Post(kCompletions, R"({"prompt":[20,19,18],"max_tokens":5})");
    ASSERT_TRUE(Becomes([&] { return server.gate().waits(); }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.gate().Open();
  ASSERT_TRUE(server.BecomesIdle());
  EXPECT_EQ(server.Metric("prompt_tokens_total"), prompt + 2 + 3);
  const double written = server.Metric("generation_tokens_total");
  EXPECT_TRUE(written == tokens || written == tokens + 1) << written;  // the one that left
  EXPECT_EQ(server.Metric("request_success_total", ",finished_reason=\"length\""), requests);
  EXPECT_EQ(server.Metric("request_success_total", ",finished_reason=\"error\""), 1);
  EXPECT_EQ(server.Metric("request_success_total", ",finished_reason=\"abort\""), 1);
  EXPECT_EQ(server.Metric("refused_total", ",reason=\"400\""), 4);
  EXPECT_EQ(server.Metric("refused_total", ",reason=\"404\""), 1);
  EXPECT_EQ(server.Metric("e2e_request_latency_seconds_count"), requests + 2);
  EXPECT_EQ(server.Metric("time_to_first_token_seconds_count"), requests + (written - tokens));
  // Looked up: all prompts; found: those of the cache, as replies said.
  EXPECT_EQ(server.Metric("prefix_cache_hits_total"), server.Metric("prompt_tokens_cached_total"));
}

TEST(Metrics, CachedTokensAreThoseThatRepliesTell) {
  TinyServer server;
  std::vector<int64_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(7 * i % 23);
  int64_t cached = 0;
  for (int i = 0; i < 3; ++i) {
    const TinyReply reply = server.Post(kCompletions, {{"prompt", ids}, {"max_tokens", 2}});
    cached += reply.json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  }
  EXPECT_GT(cached, 60);
  EXPECT_EQ(server.Metric("prompt_tokens_cached_total"), cached);
  EXPECT_EQ(server.Metric("prefix_cache_hits_total"), cached);
  EXPECT_EQ(server.Metric("prefix_cache_queries_total"), 120);
}

}  // namespace
}  // namespace pagefuse::serve
