// SPDX-License-Identifier: Apache-2.0
// Answers of tokens that a mask allows, drawn at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/token_mask.h"

namespace pagefuse {

inline std::vector<int64_t> TokensIn(std::span<const uint64_t> mask) {
  std::vector<int64_t> tokens;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint64_t rest = mask[word]; rest != 0; rest &= rest - 1) {
      tokens.push_back(static_cast<int64_t>(word * 64) + __builtin_ctzll(rest));
    }
  }
  return tokens;
}

// One of the tokens, of which the end token is the last, as a rule any; `closing`: one that comes
// nearer to the end of a document.
inline int64_t DrawToken(const std::vector<int64_t>& tokens, const TokenTrie& trie,
                         int64_t end_token, bool closing, std::mt19937& random) {
  if (!closing) return tokens[random() % tokens.size()];
  const auto find = [&](std::string_view text) {
    return std::find_if(tokens.begin(), tokens.end(),
                        [&](int64_t token) { return trie.bytes_of(token) == text; });
  };
  if (tokens.back() == end_token) return end_token;
  // Both brackets at once: within a string.
  const bool in_string = find("}") != tokens.end() && find("]") != tokens.end();
  for (const char* next : {in_string ? "\"" : "}", "]", "\"", "0", "1", "n", ",", ":"}) {
    if (const auto found = find(next); found != tokens.end()) return *found;
  }
  std::vector<int64_t> others;
  for (const int64_t token : tokens) {
    const char first = trie.bytes_of(token)[0];
    if (first != '{' && first != '[') others.push_back(token);
  }
  const std::vector<int64_t>& from = others.empty() ? tokens : others;
  return from[random() % from.size()];
}

// A whole answer; nothing if it has not ended after very many tokens. `hints`: characters that may be
// needed to come to an end, such as those of a schema's expressions.
inline absl::StatusOr<std::optional<std::string>> DrawAnswer(TokenMask mask, const TokenTrie& trie,
                                                             int64_t end_token,
                                                             std::string_view hints,
                                                             std::mt19937& random) {
  std::string text;
  const uint32_t soon = random() % 60;
  for (uint32_t i = 0; i < 5000; ++i) {
    PF_ASSIGN_OR_RETURN(const auto allowed, mask.Allowed());
    std::vector<int64_t> tokens = TokensIn(allowed);
    const bool closing = random() % 4 < (i > soon ? 2u : 1u);
    if (i > soon && !closing) {
      std::vector<int64_t> hinted;
      for (const int64_t token : tokens) {
        const std::string_view bytes = trie.bytes_of(token);
        if (bytes.size() == 1 && hints.find(bytes) != hints.npos) hinted.push_back(token);
      }
      if (!hinted.empty()) tokens = std::move(hinted);
    }
    const int64_t token = DrawToken(tokens, trie, end_token, closing, random);
    PF_RETURN_IF_ERROR(mask.Accept(token));
    if (token == end_token) return std::optional(text);
    text += trie.bytes_of(token);
  }
  return std::optional<std::string>();
}

}  // namespace pagefuse
