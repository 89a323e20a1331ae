// SPDX-License-Identifier: Apache-2.0
#include "tools/run/server_stream.h"

#include <utility>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

// Empty where there is none.
std::string TextIn(const Json& json, const char* name) {
  const Json* text = MemberOf(json, name);
  return text != nullptr && text->is_string() ? text->get<std::string>() : std::string();
}

// `{"error": {"message": "..."}}`, and what other servers make of it.
std::string SaidIn(const Json& json) {
  const Json* error = MemberOf(json, "error");
  for (const Json* place : {error, &json}) {
    if (place == nullptr) continue;
    if (place->is_string()) return place->get<std::string>();
    for (const char* name : {"message", "detail"}) {
      std::string message = TextIn(*place, name);
      if (!message.empty()) return message;
    }
  }
  return "";
}

}  // namespace

const Json* MemberOf(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(name);
  return it == json.end() ? nullptr : &*it;
}

Json ParseReply(const std::string& text) {
  if (IsNestedTooDeeply(text)) return {};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

absl::Status ErrorOfReply(int status, const std::string& body) {
  constexpr int kUnauthorized = 401, kTooMany = 429, kUnavailable = 503;
  std::string said = SaidIn(ParseReply(body));
  if (said.empty()) said = StrCat("status ", status);
  if (status == kUnauthorized) {
    return absl::UnauthenticatedError(
        "expected a key that the server knows, by --api-key-file or PAGEFUSE_API_KEY");
  }
  const std::string text = StrCat("the server refused this: ", said);
  if (status == kTooMany || status == kUnavailable) return absl::UnavailableError(text);
  return absl::InvalidArgumentError(text);
}

void ServerStream::Take(std::string_view piece) {
  rest_ += piece;
  size_t begin = 0;
  while (true) {
    const size_t end = rest_.find('\n', begin);
    if (end == std::string::npos) break;
    std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    TakeLine(line);
    begin = end + 1;
  }
  rest_.erase(0, begin);
}

// Each event of these servers is one line of data.
void ServerStream::TakeLine(std::string_view line) {
  constexpr std::string_view kData = "data:";
  if (!line.starts_with(kData) || ended_ || !error_.ok()) return;
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (line == "[DONE]") {
    ended_ = true;
    return;
  }
  const Json event = ParseReply(std::string(line));
  if (MemberOf(event, "error") != nullptr) {
    error_ = absl::InternalError(StrCat("the server failed: ", SaidIn(event)));
    return;
  }
  const Json* choices = MemberOf(event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return;
  const Json* delta = MemberOf(choices->front(), "delta");
  if (delta == nullptr) return;
  // The two names are of the same text.
  std::string thought = TextIn(*delta, "reasoning");
  if (thought.empty()) thought = TextIn(*delta, "reasoning_content");
  if (!thought.empty()) think_(thought);
  const std::string text = TextIn(*delta, "content");
  text_ += text;
  if (!text.empty()) show_(text);
}

}  // namespace pagefuse::tools
