// SPDX-License-Identifier: Apache-2.0
// What all protocols share: who answers, with what headers, and how a reply ends that cannot be given.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/generation.h"
#include "pagefuse/serve/http.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/served_model.h"

namespace pagefuse::serve {

// What a request is answered with. All of it outlives the requests.
struct Api {
  const ServedModel* model = nullptr;
  Generations* generations = nullptr;
  Log* log = nullptr;
  bool strict = false;  // members that nobody reads are errors
};

// A request that is to be answered. `error_reply` has the protocol's shape of error.
struct Call {
  const Api* api;
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  ErrorReply (*error_reply)(const absl::Status&) = nullptr;
};

// The body as an object. 415 unless it is application/json.
absl::StatusOr<Json> BodyOf(const HttpRequest& request);

// A name that no other request has: "chatcmpl-0123456789abcdef".
std::string NewId(std::string_view prefix);

// Tells in the log of members that nobody read; as the header Pagefuse-Ignored. BadParam where that is strict.
absl::StatusOr<Headers> IgnoredHeaders(const Api& api, std::string_view id,
                                       const std::vector<std::string>& ignored);

// One line, without what is no UTF-8.
std::string Dump(const Json& json);

// The reply of one call, whole or as a stream of events. Thread-safe; a protocol's writer has one.
class ApiReply {
 public:
  // `headers`: besides content type and request id. `ping`: what a quiet stream gets.
  ApiReply(std::shared_ptr<HttpReply> reply, bool stream, std::string id, Headers headers,
           std::string ping);

  bool streams() const { return stream_; }
  // Begins a stream that has no piece yet, so that its client hears of it, and of pings, while it waits.
  void Begin();
  // A piece of the stream; the first one begins it.
  void Write(std::string piece);
  void End();
  // Whole replies.
  void Send(int status, std::string body);
  // A failure: as a whole reply where none has begun, else `event` and the end of the stream.
  void Fail(const ErrorReply& error, std::string event);

 private:
  Headers Common(std::string_view type) const;
  void BeginLocked();

  std::mutex mutex_;  // pieces come behind the beginning, whoever begins
  std::shared_ptr<HttpReply> reply_;
  bool stream_;
  std::string id_;
  Headers headers_;
  std::string ping_;
  bool begun_ = false;
};

// Why an answer ended that did not end by itself.
absl::Status ErrorOf(const AnswerEnd& end);

// Starts generations that one reply tells of: all of them, or none. A client that leaves ends them.
absl::Status StartAll(const Api& api, std::vector<GenerationRequest> requests,
                      const std::vector<std::shared_ptr<GenerationClient>>& clients,
                      HttpReply& reply);

}  // namespace pagefuse::serve
