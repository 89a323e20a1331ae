// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/token_mask.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/next_bytes.h"
#include "pagefuse/text/grammar/place_table.h"
#include "pagefuse/text/grammar/rule_mask_cache.h"
#include "pagefuse/text/grammar/string_masks.h"
#include "pagefuse/text/grammar/trie_walk.h"

namespace pagefuse {
namespace {

// Sets of places that are remembered; with more, all but the current one are forgotten.
constexpr size_t kManySets = 4096;

void SetTokens(std::span<const uint32_t> tokens, std::span<uint64_t> bits) {
  for (const uint32_t id : tokens) bits[id / 64] |= uint64_t{1} << id % 64;
}

}  // namespace

struct TokenMask::Impl {
  Impl(Grammar::Ptr given, std::shared_ptr<const TokenTrie> tree, std::vector<int64_t> ends,
       int64_t num_tokens)
      : grammar(std::move(given)),
        trie(std::move(tree)),
        end_tokens(std::move(ends)),
        table(grammar->automaton()),
        now(table.Begin()) {
    num_tokens = std::max(num_tokens, trie->num_tokens());
    std::erase_if(end_tokens, [](int64_t id) { return id < 0; });
    for (const int64_t id : end_tokens) num_tokens = std::max(num_tokens, id + 1);
    bits.resize(static_cast<size_t>((num_tokens + 63) / 64));
  }

  bool IsEnd(int64_t token) const {
    return std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end();
  }

  // Tokens that can be read from this place, and where the rule around it ends within some.
  void AddPlace(const GrammarPlace& place) {
    const Automaton& automaton = grammar->automaton();
    if (automaton.rule_of(place.state) == kJsonStringRest) {
      const Callee whole =
          place.stack == GrammarStacks::kBottom ? Callee() : table.callee(place.stack);
      const uint32_t least = whole.least > place.count ? whole.least - place.count : 0;
      const uint32_t most = whole.most == kUnbounded ? kUnbounded : whole.most - place.count;
      string_ends.clear();
      trie->string_masks().AddTo(place.state, {least, most}, bits, string_ends);
      AddBehind(place.stack, string_ends);
      return;
    }
    const auto mask = MaskOf(place.state);
    mask->tokens.AddTo(bits);
    AddBehind(place.stack, mask->ends);
  }

  std::shared_ptr<const RuleMask> MaskOf(uint32_t state) {
    const Automaton& automaton = grammar->automaton();
    const uint32_t index = automaton.rule_of(state);
    if (index < kNumSharedRules) return trie->json_masks().Of(automaton, state, *trie, state);
    if (automaton.rule(index).has_calls) return grammar->masks().Of(automaton, state, *trie, state);
    std::shared_ptr<SharedRuleMasks::Rule>& shared = shared_masks[index];
    if (shared == nullptr) shared = trie->shared_masks().Of(automaton, index, *trie);
    return shared->Of(automaton, state, *trie);
  }

  // Tokens below the nodes at which a rule has ended: those that what has called it goes on with.
  void AddBehind(uint32_t stack, const std::vector<uint32_t>& ends) {
    if (stack == GrammarStacks::kBottom || ends.empty()) return;
    const uint32_t after = table.After(stack);
    if (!table.reads(after)) return;
    TrieWalk walk(*trie, table);
    for (const uint32_t node : ends) {
      walk.Below(node, after, [this](uint32_t below, uint32_t) {
        SetTokens(trie->tokens(below), bits);
        return true;
      });
    }
  }

  absl::Status WorkOut() {
    std::fill(bits.begin(), bits.end(), 0);
    // A copy: the table grows while it is walked.
    const std::vector<GrammarPlace> places =
        ended ? std::vector<GrammarPlace>() : table.places(now).places;
    for (const GrammarPlace& place : places) AddPlace(place);
    for (const int64_t id : end_tokens) {
      const uint64_t bit = uint64_t{1} << id % 64;
      bits[id / 64] = table.accepts(now) ? bits[id / 64] | bit : bits[id / 64] & ~bit;
    }
    worked_out = now;
    if (table.accepts(now)) return absl::OkStatus();
    const bool any = std::any_of(bits.begin(), bits.end(), [](uint64_t word) { return word != 0; });
    if (any) return absl::OkStatus();
    worked_out = PlaceTable::kDead;
    return absl::FailedPreconditionError(
        StrCat("the vocabulary: expected a token that begins with one of the bytes ",
               NextBytesText(grammar->automaton(), table.places(now)), ", got none"));
  }

  Grammar::Ptr grammar;
  std::shared_ptr<const TokenTrie> trie;
  std::vector<int64_t> end_tokens;
  PlaceTable table;
  uint32_t now;  // in `table`
  bool ended = false;
  std::vector<uint64_t> bits;
  uint32_t worked_out = PlaceTable::kDead;  // the set that `bits` belong to
  absl::flat_hash_map<uint32_t, std::shared_ptr<SharedRuleMasks::Rule>> shared_masks;  // by rule
  std::vector<uint32_t> string_ends;                                                   // room
};

TokenMask::TokenMask(Grammar::Ptr grammar, std::shared_ptr<const TokenTrie> trie,
                     std::vector<int64_t> end_tokens, int64_t num_tokens)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(trie), std::move(end_tokens),
                                   num_tokens)) {}
TokenMask::TokenMask(const TokenMask& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
TokenMask::TokenMask(TokenMask&& other) noexcept = default;
TokenMask& TokenMask::operator=(const TokenMask& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
TokenMask& TokenMask::operator=(TokenMask&& other) noexcept = default;
TokenMask::~TokenMask() = default;

absl::StatusOr<std::span<const uint64_t>> TokenMask::Allowed() {
  if (impl_->worked_out != impl_->now) {
    if (const absl::Status status = impl_->WorkOut(); !status.ok()) return status;
  }
  return std::span<const uint64_t>(impl_->bits);
}

absl::Status TokenMask::Accept(int64_t token) {
  Impl& impl = *impl_;
  if (impl.ended) {
    return absl::FailedPreconditionError(
        StrCat("token ", token, ": expected nothing behind an end token"));
  }
  const auto wrong = [&](std::string_view expected) {
    return absl::InvalidArgumentError(StrCat("token ", token, ": expected ", expected));
  };
  if (impl.IsEnd(token)) {
    if (!accepts()) return wrong("that the answer may end here");
    impl.ended = true;
    impl.worked_out = PlaceTable::kDead;
    return absl::OkStatus();
  }
  const std::string_view bytes = impl.trie->bytes_of(token);
  if (bytes.empty()) return wrong("a token with text");
  uint32_t now = impl.now;
  for (const char byte : bytes) now = impl.table.Next(now, static_cast<uint8_t>(byte));
  if (now == PlaceTable::kDead) return wrong("one that the grammar allows");
  impl.now = now;
  if (impl.table.size() > kManySets) {
    impl.now = impl.table.KeepOnly(now);
    impl.worked_out = PlaceTable::kDead;
  }
  return absl::OkStatus();
}

bool TokenMask::accepts() const { return impl_->table.accepts(impl_->now); }
bool TokenMask::finished() const {
  return impl_->ended || (accepts() && !impl_->table.reads(impl_->now));
}
int64_t TokenMask::num_words() const { return static_cast<int64_t>(impl_->bits.size()); }

}  // namespace pagefuse
