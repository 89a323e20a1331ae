// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/char_automaton.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

using CharStates = std::vector<uint32_t>;

// Turns sets of states of one automaton into states of another.
class CharSubsets {
 public:
  CharSubsets(const CharNfa& nfa, const GrammarBudget& budget) : nfa_(nfa), budget_(budget) {}

  absl::StatusOr<CharDfa> Run() {
    Add(Closure({nfa_.begin}, /*at_begin=*/true, /*at_end=*/false), /*at_begin=*/true);
    for (size_t i = 0; i < sets_.size(); ++i) {
      PF_RETURN_IF_ERROR(budget_.Check(sets_.size()));
      AddEdges(i);
    }
    return std::move(dfa_);
  }

 private:
  CharStates Closure(CharStates states, bool at_begin, bool at_end) {
    seen_.resize(nfa_.states.size());
    CharStates all;
    for (const uint32_t state : states) See(state, all);
    for (size_t i = 0; i < all.size(); ++i) {
      for (const CharNfa::EmptyEdge& edge : nfa_.states[all[i]].empty) {
        const bool open =
            edge.when == CharNfa::kAlways || (edge.when == CharNfa::kAtBegin ? at_begin : at_end);
        if (open) See(edge.to, all);
      }
    }
    for (const uint32_t state : all) seen_[state] = false;
    std::sort(all.begin(), all.end());
    return all;
  }
  void See(uint32_t state, CharStates& all) {
    if (seen_[state]) return;
    seen_[state] = true;
    all.push_back(state);
  }

  uint32_t Add(CharStates set, bool at_begin) {
    // What the automaton begins in is never found again: "^" holds there and nowhere else.
    if (!at_begin) {
      const auto [place, added] = ids_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
      if (!added) return place->second;
    }
    const CharStates ended = Closure(set, at_begin, /*at_end=*/true);
    CharDfa::State state;
    state.accepts = std::binary_search(ended.begin(), ended.end(), nfa_.end);
    dfa_.states.push_back(std::move(state));
    sets_.push_back(std::move(set));
    return static_cast<uint32_t>(sets_.size() - 1);
  }

  // Cuts the characters at all ends of ranges: within a part, all characters go to the same states.
  void AddEdges(size_t from) {
    std::vector<char32_t> cuts;
    for (const uint32_t state : sets_[from]) {
      for (const CharEdge& edge : nfa_.states[state].edges) {
        cuts.push_back(edge.range.low);
        cuts.push_back(edge.range.high + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<CharStates> targets(cuts.size());
    for (const uint32_t state : sets_[from]) {
      for (const CharEdge& edge : nfa_.states[state].edges) {
        auto part = std::lower_bound(cuts.begin(), cuts.end(), edge.range.low) - cuts.begin();
        for (; cuts[part] <= edge.range.high; ++part) targets[part].push_back(edge.to);
      }
    }
    std::vector<CharEdge> edges;
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      if (targets[part].empty()) continue;
      const uint32_t to =
          Add(Closure(std::move(targets[part]), /*at_begin=*/false, /*at_end=*/false), false);
      if (!edges.empty() && edges.back().to == to && edges.back().range.high + 1 == cuts[part]) {
        edges.back().range.high = cuts[part + 1] - 1;
      } else {
        edges.push_back({{cuts[part], cuts[part + 1] - 1}, to});
      }
    }
    dfa_.states[from].edges = std::move(edges);
  }

  const CharNfa& nfa_;
  const GrammarBudget& budget_;
  std::vector<bool> seen_;
  absl::flat_hash_map<CharStates, uint32_t> ids_;
  std::vector<CharStates> sets_;
  CharDfa dfa_;
};

std::vector<bool> LiveCharStates(const CharDfa& dfa) {
  std::vector<std::vector<uint32_t>> before(dfa.states.size());
  std::vector<uint32_t> work;
  std::vector<bool> live(dfa.states.size());
  for (uint32_t i = 0; i < dfa.states.size(); ++i) {
    for (const CharEdge& edge : dfa.states[i].edges) before[edge.to].push_back(i);
    if (dfa.states[i].accepts) work.push_back(i);
    live[i] = dfa.states[i].accepts;
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t from : before[state]) {
      if (!live[from]) work.push_back(from);
      live[from] = true;
    }
  }
  return live;
}

CharDfa TrimmedChars(CharDfa dfa) {
  const std::vector<bool> live = LiveCharStates(dfa);
  if (dfa.states.empty() || !live[0]) return {};
  std::vector<uint32_t> ids(dfa.states.size());
  CharDfa trimmed;
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    ids[i] = static_cast<uint32_t>(trimmed.states.size());
    if (live[i]) trimmed.states.push_back(std::move(dfa.states[i]));
  }
  for (CharDfa::State& state : trimmed.states) {
    std::erase_if(state.edges, [&](const CharEdge& edge) { return !live[edge.to]; });
    for (CharEdge& edge : state.edges) edge.to = ids[edge.to];
  }
  return trimmed;
}

// Characters that are not named lead to state 0.
void AddMarkEdges(const std::map<char32_t, uint32_t>& next, CharDfa::State& state) {
  CharacterSet named;
  for (const auto& [character, to] : next) {
    state.edges.push_back({{character, character}, to});
    named.Add(character, character);
  }
  const CharacterSet others = named.Complement();
  for (const CharacterRange& range : others.ranges()) state.edges.push_back({range, 0});
  std::sort(state.edges.begin(), state.edges.end(),
            [](const CharEdge& a, const CharEdge& b) { return a.range.low < b.range.low; });
}

}  // namespace

absl::StatusOr<CharDfa> Determinise(const CharNfa& nfa, const GrammarBudget& budget) {
  PF_ASSIGN_OR_RETURN(CharDfa dfa, CharSubsets(nfa, budget).Run());
  return TrimmedChars(std::move(dfa));
}

absl::StatusOr<CharDfa> Intersection(const CharDfa& a, const CharDfa& b,
                                     const GrammarBudget& budget) {
  if (a.states.empty() || b.states.empty()) return CharDfa();
  std::vector<std::pair<uint32_t, uint32_t>> pairs = {{0, 0}};
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> ids = {{{0, 0}, 0}};
  CharDfa both;
  for (size_t i = 0; i < pairs.size(); ++i) {
    PF_RETURN_IF_ERROR(budget.Check(pairs.size()));
    const CharDfa::State& x = a.states[pairs[i].first];
    const CharDfa::State& y = b.states[pairs[i].second];
    CharDfa::State state;
    state.accepts = x.accepts && y.accepts;
    for (const CharEdge& p : x.edges) {
      for (const CharEdge& q : y.edges) {
        const CharacterRange range = {std::max(p.range.low, q.range.low),
                                      std::min(p.range.high, q.range.high)};
        if (range.low > range.high) continue;
        const auto [place, added] =
            ids.try_emplace({p.to, q.to}, static_cast<uint32_t>(pairs.size()));
        if (added) pairs.push_back({p.to, q.to});
        state.edges.push_back({range, place->second});
      }
    }
    both.states.push_back(std::move(state));
  }
  return TrimmedChars(std::move(both));
}

absl::StatusOr<CharDfa> TextOfLength(uint32_t least, uint32_t most, const GrammarBudget& budget) {
  const uint32_t last = most == kUnbounded ? least : most;
  PF_RETURN_IF_ERROR(budget.Check(size_t{last} + 1));
  CharDfa dfa;
  dfa.states.resize(size_t{last} + 1);
  for (uint32_t i = 0; i <= last; ++i) {
    dfa.states[i].accepts = i >= least;
    if (i < last || most == kUnbounded) {
      dfa.states[i].edges.push_back({{0, kMaxCodePoint}, std::min(i + 1, last)});
    }
  }
  return dfa;
}

CharDfa FirstOccurrence(std::string_view mark) {
  std::u32string characters;
  for (size_t at = 0; at < mark.size();) characters.push_back(NextCodePoint(mark, at));
  CharDfa dfa;
  dfa.states.resize(characters.size() + 1);
  dfa.states.back().accepts = true;
  // As Knuth, Morris and Pratt do: where a character does not fit, the text read so far ends in a
  // shorter beginning of the mark, `shorter` of its characters, and goes on as that one does.
  std::vector<std::map<char32_t, uint32_t>> next(characters.size());
  uint32_t shorter = 0;
  for (uint32_t i = 0; i < characters.size(); ++i) {
    if (i > 0) {
      next[i] = next[shorter];
      const auto on = next[shorter].find(characters[i]);
      shorter = on == next[shorter].end() ? 0 : on->second;
    }
    next[i][characters[i]] = i + 1;
    AddMarkEdges(next[i], dfa.states[i]);
  }
  return dfa;
}

}  // namespace pagefuse
