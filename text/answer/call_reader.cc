// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/call_reader.h"

#include "pagefuse/text/answer/json_text.h"

namespace pagefuse {

CallReader::Read CallReader::Broken() {
  unread_.clear();
  return Read::kBroken;
}

CallReader::Read CallReader::Broken(char last) {
  unread_.assign(1, last);
  return Read::kBroken;
}

CallReader::Read CallReader::ReadLiteral(std::span<const std::string_view> literals, char c,
                                         size_t* which) {
  if (read_.empty() && IsJsonSpace(c)) return Read::kMore;
  read_ += c;
  bool may_be = false;
  for (size_t i = 0; i < literals.size(); ++i) {
    if (literals[i] == read_) {
      *which = i;
      read_.clear();
      return Read::kDone;
    }
    may_be = may_be || literals[i].starts_with(read_);
  }
  if (may_be) return Read::kMore;
  unread_ = read_;
  read_.clear();
  return Read::kBroken;
}

CallReader::Read CallReader::ReadLiteral(std::string_view literal, char c) {
  size_t which = 0;
  return ReadLiteral({&literal, 1}, c, &which);
}

CallReader::Read CallReader::ReadWord(char c, std::string* word) {
  if (word->empty() && IsJsonSpace(c)) return Read::kMore;
  const bool ends = IsJsonSpace(c) || std::string_view("<>{}`\"").find(c) != std::string_view::npos;
  if (!ends && !IsTooLong(*word, c)) {
    *word += c;
    return Read::kMore;
  }
  return ends && !word->empty() ? Read::kDone : Broken(c);
}

}  // namespace pagefuse
