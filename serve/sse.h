// SPDX-License-Identifier: Apache-2.0
// Events of a stream, as browsers and clients read them.
//
// Source: WHATWG HTML, "Server-sent events".
#pragma once

#include <string>
#include <string_view>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {

// `data` has no line breaks, as JSON on one line has none; `name` may be empty.
inline std::string SseEvent(std::string_view name, std::string_view data) {
  const std::string first = name.empty() ? std::string() : StrCat("event: ", name, "\n");
  return StrCat(first, "data: ", data, "\n\n");
}

// What no client shows, and keeps a quiet stream alive.
inline std::string SseComment(std::string_view text) { return StrCat(": ", text, "\n\n"); }

}  // namespace pagefuse::serve
