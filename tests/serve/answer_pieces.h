// SPDX-License-Identifier: Apache-2.0
// Answers in pieces as the engine gives them, and a reply that keeps what protocols make of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pagefuse/serve/generation.h"
#include "pagefuse/serve/http.h"

namespace pagefuse::serve {

// Keeps what is replied.
class FakeReply final : public HttpReply {
 public:
  void Send(int code, Headers, std::string whole) override {
    status = code;
    body = std::move(whole);
    ++ends;
  }
  void Begin(int code, Headers, std::string text) override {
    status = code;
    ping = std::move(text);
  }
  void Write(std::string piece) override { body += piece; }
  void End() override { ++ends; }
  void OnGone(std::function<void()>) override {}

  // Names and data of the stream's events; data that is no JSON is null.
  std::vector<std::pair<std::string, Json>> Events() const {
    std::vector<std::pair<std::string, Json>> events;
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      const std::string event = body.substr(at, end - at);
      const size_t line = event.find('\n');
      EXPECT_TRUE(event.starts_with("event: ")) << event;
      EXPECT_EQ(event.substr(line + 1, 6), "data: ") << event;
      events.emplace_back(event.substr(7, line - 7),
                          Json::parse(event.substr(line + 7), nullptr, false));
      at = end + 2;
    }
    return events;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, data] : Events()) names.push_back(name);
    return names;
  }
  Json Whole() const { return Json::parse(body, nullptr, false); }

  int status = 0, ends = 0;
  std::string body, ping;
};

inline AnswerDelta Content(std::string text) {
  AnswerDelta delta;
  delta.content = std::move(text);
  return delta;
}
inline AnswerDelta Reasoning(std::string text) {
  AnswerDelta delta;
  delta.reasoning = std::move(text);
  return delta;
}
inline AnswerDelta CallBegins(int64_t index, std::string name) {
  AnswerDelta delta;
  delta.calls.push_back({.index = index, .begins = true, .name = std::move(name), .arguments = ""});
  return delta;
}
inline AnswerDelta CallGoesOn(int64_t index, std::string arguments) {
  AnswerDelta delta;
  delta.calls.push_back({.index = index, .name = "", .arguments = std::move(arguments)});
  return delta;
}

inline AnswerEnd EndOf(AnswerFinish finish) {
  return {.finish = finish,
          .tokens = 7,
          .reasoning_tokens = 2,
          .prompt_tokens = 10,
          .cached_tokens = 4};
}

inline AnswerEnd Failed() {
  AnswerEnd end = EndOf(AnswerFinish::kFailed);
  end.error = absl::InternalError("node \"x\" broke");
  return end;
}

// Reasoning, text and two calls.
inline const std::vector<AnswerDelta> kAllKinds = {
    Reasoning("Let me "),     Reasoning("see."),     Content("Well, \""),    Content("yes\"\n"),
    CallBegins(0, "weather"), CallGoesOn(0, "{\"a"), CallGoesOn(0, "\":1}"), CallBegins(1, "time"),
};

}  // namespace pagefuse::serve
