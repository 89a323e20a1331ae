// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/batch_input.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/json_input.h"

namespace pagefuse::serve {
namespace {

constexpr size_t kLongestLine = size_t{64} << 20;

// The body of a request is bounded again, as any is; a line has a level more, and a few names.
constexpr JsonLimits kLineLimits = {.depth = 66, .values = 101'000};

// There is one line only: its number is the file's, which stands elsewhere.
std::string WithoutLine(std::string message) {
  constexpr std::string_view kLine = "line 1, ";
  const size_t at = message.find(kLine);
  return at == std::string::npos ? message : message.erase(at, kLine.size());
}

BatchError BatchErrorOf(std::string_view code, const absl::Status& status) {
  return {std::string(code), std::string(StdView(status.message()))};
}

// What is posted under "/v1/".
const Route* BatchRouteAt(std::string_view url) {
  if (!url.starts_with("/v1/")) return nullptr;
  const auto found = std::ranges::find_if(
      Routes(), [&](const Route& route) { return route.serve != nullptr && route.IsAt(url); });
  return found == Routes().end() ? nullptr : &*found;
}

std::string BatchUrls() {
  std::string text;
  for (const Route& route : Routes()) {
    if (BatchRouteAt(route.path) != nullptr) {
      StrAppend(&text, text.empty() ? "" : ", ", "\"", route.path, "\"");
    }
  }
  return text;
}

std::optional<BatchError> ReadRequest(Fields& fields, BatchLine& line) {
  const auto method = fields.OneOf("method", {"POST"});
  if (!method.ok()) return BatchErrorOf("invalid_method", method.status());
  if (!*method) return BatchError{"invalid_method", "method: expected \"POST\", got none"};
  const auto url = fields.Text("url");
  if (!url.ok()) return BatchErrorOf("invalid_url", url.status());
  line.route = BatchRouteAt(url->value_or(""));
  if (line.route == nullptr) {
    return BatchError{"invalid_url", StrCat("url: expected one of ", BatchUrls(), ", got ",
                                            *url ? StrCat("\"", **url, "\"") : "none")};
  }
  auto body = fields.Object("body");
  if (!body.ok()) return BatchErrorOf("invalid_body", body.status());
  if (!*body) return BatchError{"invalid_body", "body: expected an object, got none"};
  const Json* json = fields.Find("body");
  if (const auto stream = json->find("stream"); stream != json->end() && *stream == true) {
    return BatchError{"stream_unsupported",
                      "body.stream: expected false: a line has its answer whole"};
  }
  const std::vector<std::string> unread = fields.Ignored();
  if (!unread.empty()) {
    return BatchError{"unknown_member",
                      StrCat(unread[0],
                             ": expected \"custom_id\", \"method\", \"url\" and \"body\" "
                             "alone")};
  }
  line.request = {.method = "POST",
                  .path = **url,
                  .query = "",
                  .headers = {{"content-type", "application/json"}},
                  .body = Dump(*json)};
  return std::nullopt;
}

}  // namespace

absl::StatusOr<BatchInput> BatchInput::Open(const std::string& path, const BatchShard& shard) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (there && !std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\": expected a file, which is read twice, got something else"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\": expected a file of requests, ",
               there ? "got one that cannot be read" : "got nothing of that name"));
  }
  return BatchInput(path, shard, std::move(file));
}

BatchInput::Got BatchInput::ReadLine(std::string& text) {
  text.clear();
  std::streambuf* const bytes = file_.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  int byte = bytes->sbumpc();
  if (byte == kEnd) return Got::kEnd;
  bool is_long = false;
  for (; byte != kEnd && byte != '\n'; byte = bytes->sbumpc()) {
    if (text.size() < kLongestLine) {
      text += static_cast<char>(byte);
    } else {
      is_long = true;
    }
  }
  return is_long ? Got::kLongLine : Got::kLine;
}

absl::StatusOr<std::optional<BatchLine>> BatchInput::Next() {
  std::string text;
  while (true) {
    const Got got = ReadLine(text);
    if (got == Got::kEnd) return std::nullopt;
    const bool is_ours = number_++ % shard_.count == shard_.index;
    if (got == Got::kLongLine) {
      if (!is_ours) continue;
      return BatchLine{.number = number_,
                       .error = BatchError{"line_too_long",
                                           StrCat("expected ", kLongestLine, " bytes at most")}};
    }
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    // Lines of other shards have ids too, which none of ours may have.
    BatchLine line = Read(text);
    if (is_ours) return line;
  }
}

BatchLine BatchInput::Read(const std::string& text) {
  BatchLine line = {.number = number_};
  const auto json = ParseJson(text, kLineLimits);
  if (!json.ok()) {
    line.error = {"invalid_json", WithoutLine(std::string(StdView(json.status().message())))};
    return line;
  }
  auto fields = Fields::Of(*json, "");
  if (!fields.ok()) {
    line.error = {"invalid_json", StrCat("expected an object, got ", Found(*json))};
    return line;
  }
  const auto id = fields->Text("custom_id");
  if (!id.ok() || !*id || (*id)->empty()) {
    line.error = {"missing_custom_id", id.ok() ? "custom_id: expected a text, got none"
                                               : std::string(StdView(id.status().message()))};
    return line;
  }
  line.custom_id = **id;
  line.repeats_id = !ids_.insert(**id).second;
  if (line.repeats_id) {
    line.error = {"duplicate_custom_id", StrCat("custom_id: expected one that no line before it "
                                                "has, got \"",
                                                **id, "\"")};
  } else {
    line.error = ReadRequest(*fields, line);
  }
  return line;
}

}  // namespace pagefuse::serve
