// SPDX-License-Identifier: Apache-2.0
// An answer as the Messages API has it: a list of blocks, told whole or as events.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pagefuse/serve/api.h"
#include "pagefuse/serve/generation.h"

namespace pagefuse::serve {

struct MessagesHead {
  std::string id;
  std::string model;
  bool stream = false;
  int64_t prompt_tokens = 0;
  // Stop sequences that are tokens, which have no text to be found in.
  std::vector<std::pair<int64_t, std::string>> stop_tokens = {};
};

// Thread-safe.
class MessagesAnswer final : public GenerationClient {
 public:
  MessagesAnswer(std::shared_ptr<HttpReply> reply, MessagesHead head, Headers headers);

  // The first events, before anything has come: from then on a quiet stream gets pings.
  void Begin();
  void OnDelta(const AnswerDelta& delta) override;
  void OnEnd(const AnswerEnd& end) override;

 private:
  enum class Kind { kNone, kThinking, kText, kUse };
  // The block that is being told.
  struct Block {
    Kind kind = Kind::kNone;
    std::string id = {}, name = {};
    std::string text = {};  // or the JSON of the input
  };

  void BeginLocked();
  void Add(Kind kind, const std::string& text);
  void AddUse(const CallDelta& call);
  void Open(Kind kind, std::string name);
  void Close();
  void Delta(Json delta);
  void Event(std::string_view type, const Json& members);
  Json BlockJson(bool begins) const;
  Json Message(Json reason, Json stop, Json usage) const;
  std::string StopOf(const AnswerEnd& end) const;

  MessagesHead head_;
  ApiReply reply_;
  std::mutex mutex_;
  bool begun_ = false, ended_ = false;
  Json content_ = Json::array();  // blocks that are whole
  Block block_;
};

}  // namespace pagefuse::serve
