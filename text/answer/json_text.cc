// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/json_text.h"

#include "nlohmann/json.hpp"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/answer/json_scanner.h"

namespace pagefuse {
namespace {

// Of a string, a list or an object.
bool IsWholeJson(std::string_view text) {
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Read read = scanner.Add(text[i]);
    if (read != JsonScanner::Read::kMore) {
      return read == JsonScanner::Read::kDone && i + 1 == text.size();
    }
  }
  return false;
}

}  // namespace

std::string_view TrimJsonSpace(std::string_view text) {
  while (!text.empty() && IsJsonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::string JsonEscaped(std::string_view text) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const size_t named = kNamed.find(c);
    if (named != std::string_view::npos) {
      escaped += {'\\', kNames[named]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      StrAppend(&escaped, "\\u00", c >> 4 ? "1" : "0", std::string(1, kHexDigits[c & 15]));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string JsonQuoted(std::string_view text) { return StrCat("\"", JsonEscaped(text), "\""); }

std::string JsonOfBareValue(std::string_view bare) {
  if (bare == "True") return "true";
  if (bare == "False") return "false";
  if (bare == "None") return "null";
  const bool is_string = bare.starts_with('"');
  const bool is_scalar = !bare.empty() && bare.find_first_of("[]{},\"") == std::string_view::npos;
  const std::string value = is_string ? std::string(bare) : StrCat("[", bare, "]");
  return (is_string || is_scalar) && IsWholeJson(value) ? std::string(bare) : JsonQuoted(bare);
}

std::string TextOfJsonString(const std::string& quoted) {
  const auto json = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : std::string();
}

}  // namespace pagefuse
