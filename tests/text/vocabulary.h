// SPDX-License-Identifier: Apache-2.0
// Vocabularies that are made up, for tests and measurements of masks.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "pagefuse/text/utf8.h"

namespace pagefuse {

// All bytes, what JSON has between its strings, numbers up to 999, and words of ASCII and other
// letters, some of which begin with a blank or end in quotes: no two tokens are the same.
inline std::vector<std::string> MadeUpVocabulary(size_t size, uint32_t seed = 1) {
  std::vector<std::string> tokens;
  std::unordered_set<std::string> known;
  const auto add = [&](const std::string& token) {
    if (tokens.size() < size && known.insert(token).second) tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* token :
       {"{\"",  "\":",   "\": ", "\":\"", "\": \"", "\",",    "\",\"", "\", \"", "\"}",
        "\"]",  "[{\"",  "}]",   "},{\"", "}}",     "]]",     "[[",    "],[",    ", ",
        ": ",   "true",  "fals", "false", "null",   "\\\"",   "\\n",   "\\u",    "\\u00",
        "\\ud", "ud83d", "\\\\", "\"\"",  "{}",     "[]",     "-1",    "0.",     "e+",
        "E-",   ".5",    "\",a", "a\":",  "x\"}",   "\":{\"", "  ",    "\n\n"}) {
    add(token);
  }
  for (int number = 10; number < 1000; ++number) add(std::to_string(number));
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t n) { return random() % n; };
  while (tokens.size() < size) {
    std::string word = below(3) == 0 ? " " : "";
    const bool ascii = below(4) != 0;
    const uint32_t letters = 2 + below(9);
    for (uint32_t i = 0; i < letters; ++i) {
      if (ascii) {
        word.push_back(static_cast<char>('a' + below(26)));
      } else {
        AppendCodePoint(&word, below(2) == 0 ? 0x430 + below(32) : 0x4E00 + below(2000));
      }
    }
    if (below(200) == 0) word += below(2) == 0 ? "\":" : "\",";
    if (below(200) == 0) word += "()";
    add(word);
  }
  return tokens;
}

}  // namespace pagefuse
