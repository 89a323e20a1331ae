// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/api.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/json_input.h"

namespace pagefuse::serve {
namespace {

// "application/json; charset=utf-8"
bool IsJson(std::string_view type) {
  const std::string first = absl::AsciiStrToLower(AbslView(type.substr(0, type.find(';'))));
  return absl::StripAsciiWhitespace(first) == "application/json";
}

// Names come from clients: a header is no place for what ends its line.
std::string HeaderText(const std::vector<std::string>& names) {
  constexpr size_t kMost = 256;
  std::string text;
  for (const std::string& name : names) {
    if (text.size() > kMost) return text.substr(0, kMost) + "...";
    if (!text.empty()) text += ", ";
    for (const char c : name) {
      const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                         std::string_view("_-.[]").find(c) != std::string_view::npos;
      text += plain ? c : '?';
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<Json> BodyOf(const HttpRequest& request) {
  if (!IsJson(request.Header("content-type"))) {
    return WithHttp(absl::InvalidArgumentError("Content-Type: expected application/json"), 415);
  }
  PF_ASSIGN_OR_RETURN(Json body, ParseJson(request.body));
  if (!body.is_object()) {
    return absl::InvalidArgumentError(StrCat("body: expected an object, got ", Found(body)));
  }
  return body;
}

std::string NewId(std::string_view prefix) {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return StrCat(prefix, absl::StrFormat("%016x%08x", random(), random() >> 32));
}

absl::StatusOr<Headers> IgnoredHeaders(const Api& api, std::string_view id,
                                       const std::vector<std::string>& ignored) {
  if (ignored.empty()) return Headers{};
  if (api.strict) return BadParam(ignored[0], "expected a parameter that is known (--strict)");
  const std::string text = HeaderText(ignored);
  api.log->Add("ignored", {{"id", id}, {"fields", text}});
  return Headers{{"Pagefuse-Ignored", text}};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiReply::ApiReply(std::shared_ptr<HttpReply> reply, bool stream, std::string id, Headers headers,
                   std::string ping)
    : reply_(std::move(reply)),
      stream_(stream),
      id_(std::move(id)),
      headers_(std::move(headers)),
      ping_(std::move(ping)) {}

Headers ApiReply::Common(std::string_view type) const {
  Headers headers = headers_;
  headers.emplace_back("Content-Type", type);
  headers.emplace_back("X-Request-Id", id_);
  return headers;
}

void ApiReply::BeginLocked() {
  if (std::exchange(begun_, true)) return;
  Headers headers = Common("text/event-stream; charset=utf-8");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");  // proxies pass each event on
  reply_->Begin(200, std::move(headers), ping_);
}

void ApiReply::Begin() {
  const std::lock_guard lock(mutex_);
  if (stream_) BeginLocked();
}

void ApiReply::Write(std::string piece) {
  const std::lock_guard lock(mutex_);
  BeginLocked();
  reply_->Write(std::move(piece));
}

void ApiReply::End() { reply_->End(); }

void ApiReply::Send(int status, std::string body) {
  reply_->Send(status, Common("application/json"), std::move(body));
}

void ApiReply::Fail(const ErrorReply& error, std::string event) {
  const std::lock_guard lock(mutex_);
  if (begun_) {
    reply_->Write(std::move(event));
    return reply_->End();
  }
  begun_ = true;
  Headers headers = error.headers;
  headers.emplace_back("X-Request-Id", id_);
  reply_->Send(error.status, std::move(headers), error.body);
}

absl::Status ErrorOf(const AnswerEnd& end) {
  if (end.finish == AnswerFinish::kCancelled) {
    return WithCode(absl::UnavailableError("the answer was ended by the server"), "cancelled");
  }
  if (end.finish != AnswerFinish::kFailed) return absl::OkStatus();
  return WithHttp(absl::InternalError(end.error.message()), 500);
}

absl::Status StartAll(const Api& api, std::vector<GenerationRequest> requests,
                      const std::vector<std::shared_ptr<GenerationClient>>& clients,
                      HttpReply& reply) {
  std::vector<std::shared_ptr<Generation>> started;
  const auto cancel = [generations = api.generations](const auto& all) {
    for (const auto& generation : all) generations->Cancel(generation);
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    auto generation = api.generations->Start(std::move(requests[i]), clients[i]);
    if (!generation.ok()) {
      cancel(started);
      return generation.status();
    }
    started.push_back(*std::move(generation));
  }
  reply.OnGone([cancel, started] { cancel(started); });
  return absl::OkStatus();
}

}  // namespace pagefuse::serve
