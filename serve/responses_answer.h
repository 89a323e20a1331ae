// SPDX-License-Identifier: Apache-2.0
// An answer as the Responses API has it: a list of items, told whole or as typed events.
#pragma once

#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/serve/api.h"
#include "pagefuse/serve/generation.h"

namespace pagefuse::serve {

struct ResponsesHead {
  std::string id;
  std::string model;
  Json echo = Json::object();  // members of the response that repeat the request
  bool stream = false;
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // of logprobs; null: none are asked for
};

// Thread-safe.
class ResponsesAnswer final : public GenerationClient {
 public:
  ResponsesAnswer(std::shared_ptr<HttpReply> reply, ResponsesHead head, Headers headers);

  // The first events, before anything has come: from then on a quiet stream gets pings.
  void Begin();
  void OnDelta(const AnswerDelta& delta) override;
  void OnEnd(const AnswerEnd& end) override;

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };
  // The item that is being told.
  struct Item {
    Kind kind = Kind::kNone;
    std::string id = {}, call_id = {}, name = {};
    std::string text = {};  // or arguments
    Json logprobs = Json::array();
  };

  void BeginLocked();
  void AddText(Kind kind, const std::string& text, Json logprobs);
  void AddArguments(const CallDelta& call);
  void Open(Kind kind, std::string name);
  void Close(std::string_view status);
  void CloseText();

  void Event(std::string_view type, Json members);
  Json Place() const;  // members that say of which item an event is
  Json Part() const;
  Json ItemJson(std::string_view status) const;
  Json Response(std::string_view status) const;
  void Fail(const absl::Status& error);
  void SetUsage(const AnswerEnd& end);

  ResponsesHead head_;
  ApiReply reply_;
  std::time_t created_;
  std::mutex mutex_;
  bool begun_ = false, ended_ = false;
  int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are whole
  Item item_;
  Json usage_, error_, incomplete_;
};

}  // namespace pagefuse::serve
