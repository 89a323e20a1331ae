// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/grammar_stacks.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pagefuse {
namespace {

uint64_t MixedHash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 32;
}

}  // namespace

GrammarStacks::GrammarStacks(const Automaton& automaton) : automaton_(&automaton) {
  nodes_.emplace_back();
}

GrammarPlaces GrammarStacks::Begin() {
  const uint32_t start = automaton_->start();
  const uint32_t first = automaton_->rule(automaton_->callee(start).rule).first;
  // Nothing has been read, and the rule may be one that reads nothing: it may return at once.
  return Expand({{first, 0, kBottom}});
}

// Characters of a string behind an edge; nothing if its bounds do not allow the edge.
std::optional<uint32_t> GrammarStacks::CountBehind(const GrammarPlace& place,
                                                   Counted counted) const {
  if (counted == Counted::kNo) return place.count;
  const Callee bounds = place.stack == kBottom ? Callee() : callee(place.stack);
  if (counted == Counted::kEnd) {
    return place.count < bounds.least ? std::nullopt : std::optional<uint32_t>(0);
  }
  if (place.count >= bounds.most) return std::nullopt;
  // Without an upper bound, more than the least is all the same.
  return bounds.most == kUnbounded ? std::min(place.count + 1, bounds.least) : place.count + 1;
}

GrammarPlaces GrammarStacks::Read(const GrammarPlaces& from, uint8_t byte) {
  std::vector<GrammarPlace> seeds;
  for (const GrammarPlace& place : from.places) {
    for (const Automaton::Edge& edge : automaton_->edges(place.state)) {
      if (byte < edge.low || byte > edge.high) continue;
      const auto count = CountBehind(place, edge.counted);
      if (count) seeds.push_back({edge.to, *count, place.stack});
    }
  }
  return Expand(std::move(seeds));
}

GrammarPlaces GrammarStacks::After(uint32_t stack) {
  std::vector<GrammarPlace> seeds;
  for (const Return& back : nodes_[stack].returns) seeds.push_back({back.state, 0, back.stack});
  return Expand(std::move(seeds));
}

void GrammarStacks::Push(const GrammarPlace& place) {
  if (seen_.size() >= 16 * kMaxPlaces) return;
  if (seen_.insert({place.state, {place.count, place.stack}}).second) work_.push_back(place);
}

void GrammarStacks::AddCall(const Automaton::Call& call, uint32_t stack) {
  const uint32_t rule = automaton_->callee(call.callee).rule;
  std::vector<Return>& returns = calls_[{automaton_->rule(rule).rank, call.callee}];
  if (stack == kBottom || !automaton_->only_accepts(call.to)) {
    returns.push_back({call.to, stack});
    return;
  }
  // A call that ends its rule returns to where the rule itself does: stacks do not grow in lists
  // that are written as recursion.
  const std::vector<Return>& outer = nodes_[stack].returns;
  returns.insert(returns.end(), outer.begin(), outer.end());
}

void GrammarStacks::Visit(const GrammarPlace& place, bool may_return, GrammarPlaces& made) {
  const Automaton& a = *automaton_;
  if (!a.edges(place.state).empty()) made.places.push_back(place);
  for (const uint32_t to : a.empties(place.state)) Push({to, place.count, place.stack});
  for (const Automaton::Call& call : a.calls(place.state)) AddCall(call, place.stack);
  if (!may_return || !a.accepts(place.state)) return;
  if (place.stack == kBottom) {
    made.accepts = true;
    return;
  }
  // By index: a visit adds no node, but pushes to `work_`.
  for (const Return& back : nodes_[place.stack].returns) Push({back.state, 0, back.stack});
}

GrammarPlaces GrammarStacks::Expand(std::vector<GrammarPlace> seeds) {
  GrammarPlaces made;
  work_.clear();
  seen_.clear();
  calls_.clear();
  for (const GrammarPlace& seed : seeds) Push(seed);
  while (!work_.empty()) {
    const GrammarPlace place = work_.back();
    work_.pop_back();
    Visit(place, /*may_return=*/true, made);
  }
  // Calls that are made here: rules in the order in which they call each other, so that a node has
  // all its returns when it is made. A rule that reads nothing returns by the empty edge beside its
  // call, not here.
  while (!calls_.empty()) {
    const auto call = calls_.extract(calls_.begin());
    const uint32_t callee = call.key().second;
    const uint32_t stack = NodeOf(callee, std::move(call.mapped()));
    Push({automaton_->rule(automaton_->callee(callee).rule).first, 0, stack});
    while (!work_.empty()) {
      const GrammarPlace place = work_.back();
      work_.pop_back();
      Visit(place, /*may_return=*/false, made);
    }
  }
  std::sort(made.places.begin(), made.places.end());
  if (made.places.size() > kMaxPlaces) made.places.resize(kMaxPlaces);
  return made;
}

uint32_t GrammarStacks::NodeOf(uint32_t callee, std::vector<Return> returns) {
  std::sort(returns.begin(), returns.end());
  returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
  if (returns.size() > kMaxPlaces) returns.resize(kMaxPlaces);
  uint64_t hash = callee;
  for (const Return& back : returns) {
    hash = MixedHash(hash, uint64_t{back.state} << 32 | back.stack);
  }
  uint32_t& first = by_hash_[hash];
  for (uint32_t node = first; node != kBottom; node = nodes_[node].next_of_hash) {
    if (nodes_[node].callee == callee && nodes_[node].returns == returns) return node;
  }
  nodes_.push_back({callee, first, std::move(returns)});
  first = static_cast<uint32_t>(nodes_.size() - 1);
  return first;
}

void GrammarStacks::KeepOnly(GrammarPlaces& places) {
  std::vector<Node> old = std::exchange(nodes_, std::vector<Node>(1));
  by_hash_.clear();
  // A node returns to older ones only: those stay in front of it.
  std::vector<bool> needed(old.size());
  for (const GrammarPlace& place : places.places) needed[place.stack] = true;
  for (size_t i = old.size(); i-- > 1;) {
    if (!needed[i]) continue;
    for (const Return& back : old[i].returns) needed[back.stack] = true;
  }
  std::vector<uint32_t> ids(old.size(), kBottom);
  for (size_t i = 1; i < old.size(); ++i) {
    if (!needed[i]) continue;
    for (Return& back : old[i].returns) back.stack = ids[back.stack];
    ids[i] = NodeOf(old[i].callee, std::move(old[i].returns));
  }
  for (GrammarPlace& place : places.places) place.stack = ids[place.stack];
  std::sort(places.places.begin(), places.places.end());
}

}  // namespace pagefuse
