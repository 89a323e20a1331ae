// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/grammar_state.h"

#include <utility>

#include "pagefuse/text/grammar/grammar_stacks.h"
#include "pagefuse/text/grammar/next_bytes.h"

namespace pagefuse {
namespace {

// Nodes of stacks: with more, those that are no longer needed are forgotten.
constexpr size_t kManyNodes = 4096;

}  // namespace

struct GrammarState::Impl {
  explicit Impl(Grammar::Ptr given)
      : grammar(std::move(given)), stacks(grammar->automaton()), places(stacks.Begin()) {}

  void ForgetOld() {
    if (stacks.size() < forget_at) return;
    stacks.KeepOnly(places);
    forget_at = 2 * stacks.size() + kManyNodes;
  }

  Grammar::Ptr grammar;
  GrammarStacks stacks;
  GrammarPlaces places;
  size_t forget_at = kManyNodes;
};

GrammarState::GrammarState(Grammar::Ptr grammar)
    : impl_(std::make_unique<Impl>(std::move(grammar))) {}
GrammarState::GrammarState(const GrammarState& other)
    : impl_(std::make_unique<Impl>(*other.impl_)) {}
GrammarState::GrammarState(GrammarState&& other) noexcept = default;
GrammarState& GrammarState::operator=(const GrammarState& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
GrammarState& GrammarState::operator=(GrammarState&& other) noexcept = default;
GrammarState::~GrammarState() = default;

bool GrammarState::Advance(uint8_t byte) {
  return Advance(std::string_view(reinterpret_cast<const char*>(&byte), 1));
}

bool GrammarState::Advance(std::string_view bytes) {
  GrammarPlaces places = impl_->places;
  for (const char byte : bytes) {
    places = impl_->stacks.Read(places, static_cast<uint8_t>(byte));
    if (places.dead()) return false;
  }
  impl_->places = std::move(places);
  impl_->ForgetOld();
  return true;
}

bool GrammarState::accepts() const { return impl_->places.accepts; }

bool GrammarState::finished() const { return accepts() && impl_->places.places.empty(); }

std::string GrammarState::NextBytes() const {
  return NextBytesText(impl_->grammar->automaton(), impl_->places);
}

}  // namespace pagefuse
