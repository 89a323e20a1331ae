// SPDX-License-Identifier: Apache-2.0
// absl's string functions for std::string_view, which Debian's absl (built as C++14) does not take.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pagefuse {

inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }

template <typename T>
decltype(auto) AbslPart(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(part);
  } else {
    return (part);
  }
}

// absl::StrCat and absl::StrAppend that take std::string_view too.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  return absl::StrCat(AbslPart(parts)...);
}
template <typename... Parts>
void StrAppend(std::string* text, const Parts&... parts) {
  absl::StrAppend(text, AbslPart(parts)...);
}

}  // namespace pagefuse
