// SPDX-License-Identifier: Apache-2.0
// An automaton with stacks as a deterministic one, made as far as it is walked.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/grammar_stacks.h"

namespace pagefuse {

// Sets of places, numbered; what a byte leads to is worked out once.
class PlaceTable {
 public:
  // Nothing can be read there, and the text may not end.
  static constexpr uint32_t kDead = 0;

  explicit PlaceTable(const Automaton& automaton);

  uint32_t Begin() { return IdOf(stacks_.Begin()); }
  uint32_t IdOf(GrammarPlaces places);
  uint32_t Next(uint32_t id, uint8_t byte) {
    const uint32_t known = next_[id * classes_ + automaton_->byte_class(byte)];
    return known != kUnknown ? known : WorkOut(id, byte);
  }
  // Where it goes on when the call of this stack node has returned.
  uint32_t After(uint32_t stack);

  const GrammarPlaces& places(uint32_t id) const { return sets_[id]; }
  bool accepts(uint32_t id) const { return flags_[id] & kAccepts; }
  bool reads(uint32_t id) const { return flags_[id] & kReads; }
  const Callee& callee(uint32_t stack) const { return stacks_.callee(stack); }
  size_t size() const { return sets_.size(); }
  // Forgets all sets but this one; its new number.
  uint32_t KeepOnly(uint32_t id);

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  enum : uint8_t { kAccepts = 1, kReads = 2 };

  struct PlacesHash {
    size_t operator()(const GrammarPlaces& places) const;
  };

  uint32_t WorkOut(uint32_t id, uint8_t byte);
  void Clear();

  const Automaton* automaton_;
  size_t classes_;
  GrammarStacks stacks_;
  std::deque<GrammarPlaces> sets_;
  absl::flat_hash_map<GrammarPlaces, uint32_t, PlacesHash> ids_;
  std::vector<uint8_t> flags_;
  std::vector<uint32_t> next_;  // by set and class of bytes
  absl::flat_hash_map<uint32_t, uint32_t> after_;
};

}  // namespace pagefuse
