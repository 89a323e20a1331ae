// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

char32_t LastCodePoint(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return NextCodePoint(text, at);
}

size_t TrailingSpaces(std::string_view text) {
  const size_t whole = text.size();
  while (!text.empty() && WhiteSpace().Contains(LastCodePoint(text))) {
    std::string last;
    AppendCodePoint(&last, LastCodePoint(text));
    text.remove_suffix(last.size());
  }
  return whole - text.size();
}

size_t LeadingSpaces(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!WhiteSpace().Contains(NextCodePoint(text, at))) break;
  }
  return end;
}

bool InsideWord(std::string_view text, size_t first, size_t end) {
  size_t at = end;
  return (first > 0 && WordCharacters().Contains(LastCodePoint(text.substr(0, first)))) ||
         (end < text.size() && WordCharacters().Contains(NextCodePoint(text, at)));
}

}  // namespace

void AddedTokens::Add(const AddedToken& token) {
  if (token.content.empty()) return;
  uint32_t node = 0;
  for (char c : token.content) {
    const auto [edge, added] = edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c),
                                                  static_cast<uint32_t>(ends_.size()));
    if (added) ends_.push_back(-1);
    node = edge->second;
  }
  ends_[node] = static_cast<int32_t>(tokens_.size());
  begins_[static_cast<uint8_t>(token.content[0])] = true;
  tokens_.push_back(token);
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, size_t at,
                                         const std::vector<TextRange>& plain) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[end]));
    if (edge == edges_.end()) break;
    ++end;
    node = edge->second;
    if (ends_[node] < 0) continue;
    const AddedToken& token = tokens_[ends_[node]];
    if (!token.special || !Touches(plain, at, end)) longest = &token;
  }
  return longest;
}

std::vector<AddedTokens::Piece> AddedTokens::Split(std::string_view text,
                                                   const std::vector<TextRange>& plain) const {
  std::vector<Piece> pieces;
  size_t covered = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        begins_[static_cast<uint8_t>(text[at])] ? LongestAt(text, at, plain) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t first = at, end = at + token->content.size();
    at = end;
    if (token->single_word && InsideWord(text, first, end)) continue;
    if (token->left_strip) first -= TrailingSpaces(text.substr(0, first));
    if (token->right_strip) end += LeadingSpaces(text.substr(end));
    first = std::max(first, covered);
    if (first > covered) pieces.push_back({covered, first});
    pieces.push_back({first, end, token->id});
    covered = std::max(covered, end);
    at = std::max(at, covered);
  }
  if (covered < text.size()) pieces.push_back({covered, text.size()});
  return pieces;
}

}  // namespace pagefuse
