// SPDX-License-Identifier: Apache-2.0
// Runs an automaton whose rules call each other: all ways to read a text at once.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/text/grammar/automaton.h"

namespace pagefuse {

// Where a text may be read on: a state with edges of bytes, and what it returns to.
struct GrammarPlace {
  uint32_t state = 0;
  uint32_t count = 0;  // characters read so far, in the rule of JSON strings
  uint32_t stack = 0;
  auto operator<=>(const GrammarPlace&) const = default;
};

struct GrammarPlaces {
  std::vector<GrammarPlace> places;  // ascending
  bool accepts = false;              // the text may end here
  bool operator==(const GrammarPlaces&) const = default;
  bool dead() const { return places.empty() && !accepts; }
};

// Stacks share their lower parts, and stacks of one call share one node: a node says all places that
// the call may return to (a graph-structured stack, as in generalised LR parsers). Equal nodes are one
// node, so that equal places mean equal continuations. Nodes are never removed but by KeepOnly.
class GrammarStacks {
 public:
  // Below all calls: what returns to it has ended.
  static constexpr uint32_t kBottom = 0;
  // More places than this are cut off. What is read then is still right, but not all that is right
  // can be read.
  static constexpr size_t kMaxPlaces = 1024;

  // The automaton must live as long as this.
  explicit GrammarStacks(const Automaton& automaton);

  GrammarPlaces Begin();
  GrammarPlaces Read(const GrammarPlaces& from, uint8_t byte);
  // What follows once the call of this node has returned; not of the bottom.
  GrammarPlaces After(uint32_t stack);
  const Callee& callee(uint32_t stack) const { return automaton_->callee(nodes_[stack].callee); }
  size_t size() const { return nodes_.size(); }
  // Forgets nodes that these places do not need, and numbers the others anew.
  void KeepOnly(GrammarPlaces& places);

 private:
  struct Return {
    uint32_t state;
    uint32_t stack;
    auto operator<=>(const Return&) const = default;
  };
  struct Node {
    uint32_t callee = 0;
    uint32_t next_of_hash = 0;  // the bottom: none
    std::vector<Return> returns;
  };
  // By the callee's rank: those before it are known completely when it is come to.
  using Calls = std::map<std::pair<uint32_t, uint32_t>, std::vector<Return>>;

  std::optional<uint32_t> CountBehind(const GrammarPlace& place, Counted counted) const;
  uint32_t NodeOf(uint32_t callee, std::vector<Return> returns);
  GrammarPlaces Expand(std::vector<GrammarPlace> seeds);
  void Visit(const GrammarPlace& place, bool may_return, GrammarPlaces& made);
  void Push(const GrammarPlace& place);
  void AddCall(const Automaton::Call& call, uint32_t stack);

  const Automaton* automaton_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> by_hash_;
  // Of one Expand.
  std::vector<GrammarPlace> work_;
  absl::flat_hash_set<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>> seen_;
  Calls calls_;
};

}  // namespace pagefuse
