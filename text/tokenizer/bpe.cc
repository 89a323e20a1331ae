// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

constexpr char32_t kTableEnd = 0x3000;  // code points whose tokens are looked up in an array

// SentencePiece writes a space as this mark.
constexpr std::string_view kMark = "\xE2\x96\x81";

// Up to so many symbols, looking through all pairs for each merge costs less than a queue.
constexpr size_t kShort = 32;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Where a mark follows something else than a mark, from `at` on.
size_t NextCut(std::string_view text, size_t at) {
  for (at = text.find(kMark, at); at != std::string_view::npos; at = text.find(kMark, at + 3)) {
    if (at > 0 && !text.substr(0, at).ends_with(kMark)) return at;
  }
  return at;
}

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(const TokenTable* tokens, const std::vector<Merge>& merges,
                                const BpeOptions& options) {
  Bpe bpe(tokens);
  bpe.options_ = options;
  if (!options.unknown.empty()) {
    bpe.unknown_ = tokens->Find(options.unknown);
    if (bpe.unknown_ == kNone) {
      return absl::InvalidArgumentError(
          StrCat("model.unk_token: \"", options.unknown, "\" is not in the vocabulary"));
    }
  }
  PF_RETURN_IF_ERROR(bpe.ReadMerges(merges));
  for (char32_t point = 0; point < kTableEnd; ++point) {
    std::string character;
    AppendCodePoint(&character, point);
    bpe.character_tokens_.push_back(tokens->Find(character));
  }
  if (options.byte_fallback) bpe.FindByteTokens();
  bpe.cuts_at_mark_ = bpe.MarkBeginsWords();
  return bpe;
}

absl::Status Bpe::ReadMerges(const std::vector<Merge>& merges) {
  ranks_.reserve(merges.size());
  results_.reserve(merges.size());
  std::string joined;
  for (const auto& [left, right] : merges) {
    const uint32_t rank = static_cast<uint32_t>(results_.size());
    joined.assign(left).append(right);
    const int32_t ids[] = {tokens_->Find(left), tokens_->Find(right), tokens_->Find(joined)};
    const std::string_view texts[] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      if (ids[i] != kNone) continue;
      return absl::InvalidArgumentError(
          StrCat("model.merges[", rank, "]: \"", texts[i], "\" is not in the vocabulary"));
    }
    ranks_[PairKey(ids[0], ids[1])] = rank;
    results_.push_back(ids[2]);
  }
  return absl::OkStatus();
}

void Bpe::FindByteTokens() {
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_.push_back(tokens_->Find(absl::StrFormat("<0x%02X>", byte)));
  }
}

// True if no merge joins something with a mark behind it: then a word may be cut in front of marks,
// which changes no token and makes short words of long texts.
bool Bpe::MarkBeginsWords() const {
  if (tokens_->Find(kMark) == kNone) return false;
  return std::all_of(results_.begin(), results_.end(), [&](int32_t token) {
    return NextCut(tokens_->Text(token), 0) == std::string_view::npos;
  });
}

void Bpe::Encode(std::string_view word, std::vector<int64_t>& ids) const {
  if (options_.ignore_merges) {
    if (const int32_t whole = tokens_->Find(word); whole != kNone) {
      ids.push_back(whole);
      return;
    }
  }
  size_t first = 0;
  while (cuts_at_mark_ && first < word.size()) {
    const size_t cut = NextCut(word, first + 1);
    if (cut == std::string_view::npos) break;
    EncodePart(word.substr(first, cut - first), ids);
    first = cut;
  }
  EncodePart(word.substr(first), ids);
}

void Bpe::EncodePart(std::string_view word, std::vector<int64_t>& ids) const {
  std::vector<int32_t> symbols = Characters(word);
  symbols.size() <= kShort ? MergeShort(symbols) : MergeLong(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

int32_t Bpe::CharacterToken(std::string_view character) const {
  size_t at = 0;
  const char32_t point = NextCodePoint(character, at);
  return point < kTableEnd ? character_tokens_[point] : tokens_->Find(character);
}

bool Bpe::AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const {
  if (byte_tokens_.empty()) return false;
  const auto token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  for (char byte : character) {
    if (token(byte) == kNone) return false;
  }
  for (char byte : character) symbols.push_back(token(byte));
  return true;
}

std::vector<int32_t> Bpe::Characters(std::string_view word) const {
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t first = at;
    NextCodePoint(word, at);
    const std::string_view character = word.substr(first, at - first);
    const int32_t token = CharacterToken(character);
    if (token != kNone) {
      symbols.push_back(token);
    } else if (!AppendBytes(character, symbols)) {
      if (unknown_ == kNone) continue;
      if (!(after_unknown && options_.fuse_unknown)) symbols.push_back(unknown_);
      after_unknown = true;
      continue;
    }
    after_unknown = false;
  }
  return symbols;
}

uint32_t Bpe::Rank(int32_t left, int32_t right) const {
  const auto found = ranks_.find(PairKey(left, right));
  return found == ranks_.end() ? kNoRank : found->second;
}

void Bpe::MergeShort(std::vector<int32_t>& symbols) const {
  uint32_t ranks[kShort];  // ranks[i]: of the pair that begins at i
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = Rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t best = std::min_element(ranks, ranks + count - 1) - ranks;
    if (ranks[best] == kNoRank) break;
    symbols[best] = results_[ranks[best]];
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(ranks + best + 1, ranks + count - 1, ranks + best);
    --count;
    if (best > 0) ranks[best - 1] = Rank(symbols[best - 1], symbols[best]);
    if (best + 1 < count) ranks[best] = Rank(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

// Pairs wait in a queue by rank, then place. A merge changes the pairs on both sides of it; what
// waits of them is out of date, which the rank that is kept of each place tells.
void Bpe::MergeLong(std::vector<int32_t>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  struct Links {
    int32_t before, after;
    uint32_t rank;  // of the pair that begins here
  };
  std::vector<Links> links(count);
  std::vector<uint64_t> waiting;
  waiting.reserve(count);
  for (int32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    links[i] = {i - 1, last ? kNone : i + 1, last ? kNoRank : Rank(symbols[i], symbols[i + 1])};
    if (links[i].rank != kNoRank) waiting.push_back(uint64_t{links[i].rank} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(waiting));
  const auto renew = [&](int32_t place) {
    if (place == kNone) return;
    const int32_t after = links[place].after;
    links[place].rank = after == kNone ? kNoRank : Rank(symbols[place], symbols[after]);
    if (links[place].rank != kNoRank) queue.push(uint64_t{links[place].rank} << 32 | place);
  };
  while (!queue.empty()) {
    const auto place = static_cast<int32_t>(queue.top() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    queue.pop();
    if (links[place].rank != rank) continue;
    const int32_t joined = links[place].after, after = links[joined].after;
    symbols[place] = results_[rank];
    symbols[joined] = kNone;
    links[joined].rank = kNoRank;
    links[place].after = after;
    if (after != kNone) links[after].before = place;
    renew(links[place].before);
    renew(place);
  }
  std::erase(symbols, kNone);
}

}  // namespace pagefuse
