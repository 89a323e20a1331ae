// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/place_table.h"

#include <utility>

namespace pagefuse {

PlaceTable::PlaceTable(const Automaton& automaton)
    : automaton_(&automaton),
      classes_(static_cast<size_t>(automaton.num_byte_classes())),
      stacks_(automaton) {
  Clear();
}

size_t PlaceTable::PlacesHash::operator()(const GrammarPlaces& places) const {
  uint64_t hash = places.accepts ? 1 : 0;
  for (const GrammarPlace& place : places.places) {
    hash = (hash ^ (uint64_t{place.state} << 32 | place.stack)) * 0x9E3779B97F4A7C15;
    hash = (hash ^ hash >> 29) + place.count;
  }
  return hash ^ hash >> 32;
}

void PlaceTable::Clear() {
  sets_.clear();
  ids_.clear();
  flags_.clear();
  next_.clear();
  after_.clear();
  IdOf({});
}

uint32_t PlaceTable::IdOf(GrammarPlaces places) {
  const auto [place, added] = ids_.try_emplace(places, static_cast<uint32_t>(sets_.size()));
  if (!added) return place->second;
  const uint32_t id = place->second;
  flags_.push_back((places.accepts ? kAccepts : 0) | (places.places.empty() ? 0 : kReads));
  sets_.push_back(std::move(places));
  next_.resize(sets_.size() * classes_, id == kDead ? kDead : kUnknown);
  return id;
}

uint32_t PlaceTable::WorkOut(uint32_t id, uint8_t byte) {
  const uint32_t next = IdOf(stacks_.Read(sets_[id], byte));
  next_[id * classes_ + automaton_->byte_class(byte)] = next;
  return next;
}

uint32_t PlaceTable::After(uint32_t stack) {
  if (const auto known = after_.find(stack); known != after_.end()) return known->second;
  const uint32_t id = IdOf(stacks_.After(stack));
  after_[stack] = id;
  return id;
}

uint32_t PlaceTable::KeepOnly(uint32_t id) {
  GrammarPlaces kept = sets_[id];
  stacks_.KeepOnly(kept);
  Clear();
  return IdOf(std::move(kept));
}

}  // namespace pagefuse
