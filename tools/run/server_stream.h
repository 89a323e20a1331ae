// SPDX-License-Identifier: Apache-2.0
// What a server of OpenAI's chat completions sends: an answer as a stream of events, and errors.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

// The member of an object; null where there is none.
const nlohmann::ordered_json* MemberOf(const nlohmann::ordered_json& json, const char* name);
// Null for what is no JSON, or nested too deeply.
nlohmann::ordered_json ParseReply(const std::string& text);
// What a reply says of why it is no answer: Unauthenticated naming --api-key-file, Unavailable, or
// InvalidArgument.
absl::Status ErrorOfReply(int status, const std::string& body);

// Takes an answer apart as it comes.
//
// Source: WHATWG HTML, "Server-sent events"; OpenAI's API reference, "Streaming".
class ServerStream {
 public:
  // Both are given text as it comes; `think` what leads to the answer, which is no part of it.
  ServerStream(std::function<void(const std::string&)> show,
               std::function<void(const std::string&)> think)
      : show_(std::move(show)), think_(std::move(think)) {}

  void Take(std::string_view piece);
  // All of the content that came.
  const std::string& text() const { return text_; }
  // The last event was there.
  bool ended() const { return ended_; }
  // What an event said went wrong.
  const absl::Status& error() const { return error_; }
  // What came that is no event: the body of a refusal.
  const std::string& rest() const { return rest_; }

 private:
  void TakeLine(std::string_view line);

  std::function<void(const std::string&)> show_, think_;
  std::string rest_, text_;
  bool ended_ = false;
  absl::Status error_;
};

}  // namespace pagefuse::tools
