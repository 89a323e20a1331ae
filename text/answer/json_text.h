// SPDX-License-Identifier: Apache-2.0
// Writes values that a model wrote in another syntax as JSON.
#pragma once

#include <string>
#include <string_view>

namespace pagefuse {

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
// Without the white space at both ends.
std::string_view TrimJsonSpace(std::string_view text);

// What stands between the quotes of a string of JSON. A text may be escaped in parts.
std::string JsonEscaped(std::string_view text);
std::string JsonQuoted(std::string_view text);

// A value without quotes of its own: itself where it is a number, true, false, null or a string of
// JSON; true, false and null for Python's True, False and None; else a string.
std::string JsonOfBareValue(std::string_view bare);

// The string that a whole one of JSON says; empty for one that says no UTF-8.
std::string TextOfJsonString(const std::string& quoted);

}  // namespace pagefuse
