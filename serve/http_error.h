// SPDX-License-Identifier: Apache-2.0
// Errors as replies: a status says what is wrong, and its payloads which parameter.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/serve/http.h"

namespace pagefuse::serve {

struct ErrorReply {
  int status = 500;
  Headers headers;  // with the content type
  std::string body;
};

// The status with the name of the parameter that is wrong, as OpenAI's clients show it:
// "messages[0].role". One that has a name keeps it.
absl::Status WithParam(absl::Status status, std::string_view param);
// With OpenAI's code: "model_not_found".
absl::Status WithCode(absl::Status status, std::string_view code);
// With the status of HTTP, where that of the error's code is not meant.
absl::Status WithHttp(absl::Status status, int http);
// With the methods that the path has: 405.
absl::Status WithAllow(absl::Status status, std::string_view methods);
std::string ParamOf(const absl::Status& error);

// InvalidArgument of a parameter.
absl::Status BadParam(std::string_view param, std::string_view what);

// 400 for InvalidArgument and FailedPrecondition, 401, 403, 404, 429 with Retry-After for
// ResourceExhausted, 503 for Unavailable, else 500.
int HttpOf(const absl::Status& error);
// `{"error": {"message", "type", "param", "code"}}`.
std::string OpenAiError(const absl::Status& error);
ErrorReply ReplyOf(const absl::Status& error);
// `{"type": "error", "error": {"type", "message"}}`, which Anthropic's clients read.
std::string AnthropicError(const absl::Status& error);
ErrorReply AnthropicReplyOf(const absl::Status& error);
// Of what never became a request.
ErrorReply ErrorOfHttp(int status, std::string_view message);

}  // namespace pagefuse::serve
