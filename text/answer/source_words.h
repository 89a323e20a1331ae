// SPDX-License-Identifier: Apache-2.0
// What the source of a chat template says.
#pragma once

#include <string_view>

namespace pagefuse {

inline bool Mentions(std::string_view source, std::string_view words) {
  return source.find(words) != std::string_view::npos;
}

}  // namespace pagefuse
