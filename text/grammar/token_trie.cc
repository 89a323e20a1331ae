// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/token_trie.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "pagefuse/text/grammar/rule_mask_cache.h"
#include "pagefuse/text/grammar/string_masks.h"

namespace pagefuse {
namespace {

uint64_t NextTrieSerial() {
  static std::atomic<uint64_t> next = 1;
  return next++;
}

}  // namespace

TokenTrie::TokenTrie() : serial_(NextTrieSerial()) {}
TokenTrie::~TokenTrie() = default;

std::shared_ptr<const TokenTrie> TokenTrie::Of(const std::vector<std::string>& tokens) {
  const std::shared_ptr<TokenTrie> trie(new TokenTrie());
  trie->Build(tokens);
  return trie;
}

std::shared_ptr<const TokenTrie> TokenTrie::Of(const Tokenizer& tokenizer,
                                               std::span<const int64_t> spelled) {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.size()));
  for (int64_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.IsSpecial(id)) tokens[id] = tokenizer.Bytes(id);
  }
  for (const int64_t id : spelled) {
    if (id >= 0 && id < tokenizer.size()) {
      tokens[id] = tokenizer.Decode(std::span(&id, 1), /*special=*/true);
    }
  }
  const std::shared_ptr<TokenTrie> trie(new TokenTrie());
  trie->Build(std::move(tokens));
  return trie;
}

void TokenTrie::Build(std::vector<std::string> tokens) {
  num_tokens_ = static_cast<int64_t>(tokens.size());
  begins_.reserve(tokens.size() + 1);
  for (const std::string& token : tokens) {
    begins_.push_back(static_cast<uint32_t>(text_.size()));
    text_ += token;
    max_bytes_ = std::max(max_bytes_, token.size());
  }
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](uint32_t id) { return tokens[id].empty(); });
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return bytes_of(a) < bytes_of(b); });
  const auto add = [this](uint8_t byte) {
    bytes_.push_back(byte);
    skips_.push_back(0);
    first_ids_.push_back(static_cast<uint32_t>(ids_.size()));
  };
  add(0);
  std::vector<uint32_t> path = {0};  // the nodes of the token before, each below the last one
  std::string_view before;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) skips_[path.back()] = size();
  };
  for (const uint32_t id : order) {
    const std::string_view token = bytes_of(id);
    const auto same = static_cast<size_t>(
        std::mismatch(token.begin(), token.end(), before.begin(), before.end()).first -
        token.begin());
    leave(same);
    for (size_t i = same; i < token.size(); ++i) {
      path.push_back(size());
      add(static_cast<uint8_t>(token[i]));
    }
    ids_.push_back(id);
    before = token;
  }
  leave(0);
  skips_[0] = size();
  first_ids_.push_back(static_cast<uint32_t>(ids_.size()));
  string_masks_ = std::make_unique<StringMasks>(*this);
  json_masks_ = std::make_unique<RuleMaskCache>();
  shared_masks_ = std::make_unique<SharedRuleMasks>();
}

std::string_view TokenTrie::bytes_of(int64_t token) const {
  if (token < 0 || token >= num_tokens_) return {};
  return std::string_view(text_).substr(begins_[token], begins_[token + 1] - begins_[token]);
}

}  // namespace pagefuse
