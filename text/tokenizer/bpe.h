// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: merges the characters of a word, always the pair of the lowest rank, until no
// merge applies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/text/tokenizer/token_table.h"

namespace pagefuse {

// "model" of tokenizer.json, but for its vocabulary.
struct BpeOptions {
  std::string unknown;         // token for characters that have none; empty: they vanish
  bool fuse_unknown = false;   // one token for a run of them
  bool byte_fallback = false;  // instead: tokens <0x00> to <0xFF> for the bytes of such a character
  bool ignore_merges = false;  // a word that is a token is that token
};

class Bpe {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;
  // Merges in the order of their ranks. InvalidArgument for a merge whose parts or result are no
  // tokens. `tokens` must outlive this.
  static absl::StatusOr<Bpe> Create(const TokenTable* tokens, const std::vector<Merge>& merges,
                                    const BpeOptions& options);

  // Appends the tokens of a word. `word` is UTF-8. Takes n log n for n characters.
  void Encode(std::string_view word, std::vector<int64_t>& ids) const;

 private:
  static constexpr int32_t kNone = TokenTable::kNone;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  explicit Bpe(const TokenTable* tokens) : tokens_(tokens) {}
  absl::Status ReadMerges(const std::vector<Merge>& merges);
  void FindByteTokens();
  bool MarkBeginsWords() const;
  void EncodePart(std::string_view word, std::vector<int64_t>& ids) const;
  std::vector<int32_t> Characters(std::string_view word) const;
  int32_t CharacterToken(std::string_view character) const;
  bool AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const;
  uint32_t Rank(int32_t left, int32_t right) const;
  void MergeShort(std::vector<int32_t>& symbols) const;
  void MergeLong(std::vector<int32_t>& symbols) const;

  const TokenTable* tokens_;
  BpeOptions options_;
  int32_t unknown_ = kNone;
  std::vector<int32_t> byte_tokens_;               // empty without byte_fallback
  std::vector<int32_t> character_tokens_;          // of the first code points
  absl::flat_hash_map<uint64_t, uint32_t> ranks_;  // by the two tokens of a pair
  std::vector<int32_t> results_;                   // by rank
  bool cuts_at_mark_ = false;
};

}  // namespace pagefuse
