// SPDX-License-Identifier: Apache-2.0
// A conversation of `pagefuse generate --chat`: its messages, and files of them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

// Messages as chat templates take them, `{"role": "user", "content": "..."}`: first what the model is
// told (role "system"), if anything, then turns, each a question and its answer.
class Conversation {
 public:
  explicit Conversation(std::string_view system) { SetSystem(system); }

  const nlohmann::ordered_json& messages() const { return messages_; }
  std::string system() const;
  // Replaces what the model is told; nothing if the text is empty.
  void SetSystem(std::string_view text);
  void Ask(std::string_view question) { Add("user", question); }
  void Answer(std::string_view answer) { Add("assistant", answer); }

  // Questions.
  int turns() const;
  // Takes the last question back, and what came behind it. The question; empty if there is none.
  std::string Undo();
  // Drops the oldest question and its answer, unless it is the only one. Whether it did.
  bool DropOldest();
  // All turns go; what the model is told stays.
  void Clear();

  // `{"messages": [...]}`, or the list alone. InvalidArgument with the path, naming the message and what
  // was expected.
  static absl::StatusOr<Conversation> Load(const std::string& path);
  // Replaces a file only if that holds a conversation too: InvalidArgument otherwise.
  absl::Status Save(const std::string& path) const;

 private:
  void Add(const char* role, std::string_view content);
  size_t FirstTurn() const;

  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace pagefuse::tools
