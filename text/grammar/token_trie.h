// SPDX-License-Identifier: Apache-2.0
// The bytes of all tokens of a vocabulary as a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse {

class RuleMaskCache;
class SharedRuleMasks;
class StringMasks;

// Made once for a model. Immutable and thread-safe; what TokenMask finds out about rules that
// several grammars have, strings of JSON first of all, is kept here.
//
// Nodes stand in depth-first order: the children of node n begin at n + 1, and `skip(n)` is the first
// node behind all that is below n. Node 0 is the root, which reads nothing.
class TokenTrie {
 public:
  // Token i has the bytes tokens[i]; none if it is never to be said.
  static std::shared_ptr<const TokenTrie> Of(const std::vector<std::string>& tokens);
  // Without special tokens but for those in `spelled`, which stand for their names: the marks of
  // calls and of reasoning, where a grammar is to say them. Within other text, a grammar that allows
  // their characters allows them.
  static std::shared_ptr<const TokenTrie> Of(const Tokenizer& tokenizer,
                                             std::span<const int64_t> spelled = {});
  ~TokenTrie();

  // One more than the largest id.
  int64_t num_tokens() const { return num_tokens_; }
  uint32_t size() const { return static_cast<uint32_t>(bytes_.size()); }
  uint8_t byte(uint32_t node) const { return bytes_[node]; }
  uint32_t skip(uint32_t node) const { return skips_[node]; }
  bool has_children(uint32_t node) const { return skips_[node] > node + 1; }
  // Tokens whose bytes end here; those of a node and of all below it lie behind each other.
  std::span<const uint32_t> tokens(uint32_t node) const { return TokensOf(node, node + 1); }
  std::span<const uint32_t> tokens_below(uint32_t node) const {
    return TokensOf(node + 1, skips_[node]);
  }
  // The bytes of a token; none if it has no place here.
  std::string_view bytes_of(int64_t token) const;
  // The longest token.
  size_t max_bytes() const { return max_bytes_; }

  uint64_t serial() const { return serial_; }  // no two have the same
  StringMasks& string_masks() const { return *string_masks_; }
  RuleMaskCache& json_masks() const { return *json_masks_; }
  SharedRuleMasks& shared_masks() const { return *shared_masks_; }

 private:
  TokenTrie();
  void Build(std::vector<std::string> tokens);
  std::span<const uint32_t> TokensOf(uint32_t begin, uint32_t end) const {
    return std::span(ids_).subspan(first_ids_[begin], first_ids_[end] - first_ids_[begin]);
  }

  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> skips_;
  std::vector<uint32_t> first_ids_;  // of each node, in ids_; one more behind the last
  std::vector<uint32_t> ids_;
  std::string text_;  // all tokens
  std::vector<uint32_t> begins_;
  int64_t num_tokens_ = 0;
  size_t max_bytes_ = 0;
  uint64_t serial_;
  std::unique_ptr<StringMasks> string_masks_;
  std::unique_ptr<RuleMaskCache> json_masks_;
  std::unique_ptr<SharedRuleMasks> shared_masks_;
};

}  // namespace pagefuse
