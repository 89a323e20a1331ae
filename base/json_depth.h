// SPDX-License-Identifier: Apache-2.0
// How deeply a text of JSON is nested. What reads, copies and prints JSON calls itself for each level: it is looked at first.
#pragma once

#include <string_view>

namespace pagefuse {

// Files of models have a few levels.
inline constexpr int kMaxJsonDepth = 200;

// True if lists and objects are nested deeper than that; brackets in strings do not count.
inline bool IsNestedTooDeeply(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace pagefuse
