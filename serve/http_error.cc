// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/http_error.h"

#include <utility>

#include "nlohmann/json.hpp"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kParam = "param", kCode = "code", kHttp = "http", kAllow = "allow";

std::string PayloadOf(const absl::Status& error, absl::string_view name) {
  const auto payload = error.GetPayload(name);
  return payload ? std::string(*payload) : std::string();
}

absl::Status WithPayload(absl::Status status, absl::string_view name, std::string_view value) {
  if (!status.ok() && !status.GetPayload(name))
    status.SetPayload(name, absl::Cord(AbslView(value)));
  return status;
}

// What is not UTF-8 is replaced: a message may repeat what was sent.
std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What the protocols call the errors of a status; of others one that is ours or the client's.
struct ErrorNames {
  int http;
  std::string_view openai, anthropic;
};
constexpr ErrorNames kNames[] = {
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_error"},
    {503, "service_unavailable_error", "overloaded_error"},
};

ErrorNames NamesOf(int http) {
  for (const ErrorNames& names : kNames) {
    if (names.http == http) return names;
  }
  if (http < 500) return {http, "invalid_request_error", "invalid_request_error"};
  return {http, "server_error", "api_error"};
}

ErrorReply Made(const absl::Status& error, std::string body) {
  const int status = HttpOf(error);
  ErrorReply reply = {
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = std::move(body)};
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  const std::string allow = PayloadOf(error, kAllow);
  if (!allow.empty()) reply.headers.emplace_back("Allow", allow);
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

absl::Status WithParam(absl::Status status, std::string_view param) {
  return WithPayload(std::move(status), kParam, param);
}
absl::Status WithCode(absl::Status status, std::string_view code) {
  return WithPayload(std::move(status), kCode, code);
}
absl::Status WithHttp(absl::Status status, int http) {
  return WithPayload(std::move(status), kHttp, StrCat(http));
}
absl::Status WithAllow(absl::Status status, std::string_view methods) {
  return WithHttp(WithPayload(std::move(status), kAllow, methods), 405);
}
std::string ParamOf(const absl::Status& error) { return PayloadOf(error, kParam); }

absl::Status BadParam(std::string_view param, std::string_view what) {
  return WithParam(absl::InvalidArgumentError(StrCat(param, ": ", what)), param);
}

int HttpOf(const absl::Status& error) {
  const std::string meant = PayloadOf(error, kHttp);
  if (!meant.empty()) return std::stoi(meant);
  switch (error.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

std::string OpenAiError(const absl::Status& error) {
  return Text({{"error",
                {{"message", std::string(error.message())},
                 {"type", NamesOf(HttpOf(error)).openai},
                 {"param", TextOrNull(ParamOf(error))},
                 {"code", TextOrNull(PayloadOf(error, kCode))}}}});
}

ErrorReply ReplyOf(const absl::Status& error) { return Made(error, OpenAiError(error)); }

std::string AnthropicError(const absl::Status& error) {
  return Text(
      {{"type", "error"},
       {"error",
        {{"type", NamesOf(HttpOf(error)).anthropic}, {"message", std::string(error.message())}}}});
}

ErrorReply AnthropicReplyOf(const absl::Status& error) {
  return Made(error, AnthropicError(error));
}

ErrorReply ErrorOfHttp(int status, std::string_view message) {
  return ReplyOf(WithHttp(absl::InvalidArgumentError(AbslView(message)), status));
}

}  // namespace pagefuse::serve
