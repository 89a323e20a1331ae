// SPDX-License-Identifier: Apache-2.0
// A conversation at a terminal, or with the lines of a pipe, with whoever answers: the decoder of this process or
// a server.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

// Tokens of an answer at most, where nothing is said of that.
inline constexpr int64_t kUsualAnswer = 1024;

// Who answers. Its calls come one at a time, but for Idle.
class ChatPartner {
 public:
  virtual ~ChatPartner() = default;
  // What is to be answered: messages as of a Conversation. Their tokens as a prompt, where that is known;
  // InvalidArgument with what the chat template says.
  virtual absl::StatusOr<std::optional<int64_t>> Take(const nlohmann::ordered_json& messages) = 0;
  // Tokens that prompt and answer may have together, if anything bounds them.
  virtual std::optional<int64_t> Context() const = 0;
  // Of these, tokens that an answer needs.
  virtual int64_t LeastAnswer() const = 0;
  // InvalidArgument where there is no room for an answer to what was taken.
  virtual absl::Status CheckRoom() = 0;
  // The answer, which goes to the output as it comes; Ctrl-C (InterruptCatcher) ends it.
  virtual absl::StatusOr<std::string> Answer() = 0;
  // While a question is typed, by a thread of its own.
  virtual void Idle(const std::stop_token&) {}
};

// Talks until the input ends. `system`: what the model is told first, or nothing.
absl::Status RunChat(ChatPartner& partner, std::string_view system);

}  // namespace pagefuse::tools
