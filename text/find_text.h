// SPDX-License-Identifier: Apache-2.0
// Searches a text in time that grows with its length alone: std::string::find takes the product of both lengths where nearly every place
// of a text begins as what is wanted.
#pragma once

#include <cstring>
#include <string_view>

namespace pagefuse {

// As text.find(wanted, from).
inline size_t FindText(std::string_view text, std::string_view wanted, size_t from = 0) {
  if (from > text.size() || wanted.size() > text.size() - from) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace pagefuse
