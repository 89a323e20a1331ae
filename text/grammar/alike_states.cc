// SPDX-License-Identifier: Apache-2.0
// Moore's refinement of an automaton's states, as many rounds as a token has bytes.
#include "pagefuse/text/grammar/alike_states.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace pagefuse {
namespace {

// Steps of the refinement, edges times rounds: about what a walk of a vocabulary takes.
constexpr size_t kMaxSteps = 200'000;

// What a state does: whether it accepts, and ranges of bytes with the class that they lead to.
using StateText = std::vector<uint32_t>;

StateText TextOfState(const Automaton& automaton, uint32_t first, uint32_t state,
                      const std::vector<uint32_t>& classes) {
  std::vector<Automaton::Edge> edges(automaton.edges(state).begin(), automaton.edges(state).end());
  std::sort(edges.begin(), edges.end(),
            [](const Automaton::Edge& a, const Automaton::Edge& b) { return a.low < b.low; });
  StateText text = {automaton.accepts(state) ? 1u : 0u};
  for (const Automaton::Edge& edge : edges) {
    const uint32_t to = classes[edge.to - first];
    const bool joined =
        text.size() > 1 && text.back() == to && (text[text.size() - 2] & 0xFF) + 1 == edge.low;
    if (joined) {
      text[text.size() - 2] += edge.high - (text[text.size() - 2] & 0xFF);
    } else {
      text.push_back(uint32_t{edge.low} << 8 | edge.high);
      text.push_back(to);
    }
  }
  return text;
}

}  // namespace

std::vector<uint32_t> AlikeStates(const Automaton& automaton, uint32_t rule, size_t max_bytes) {
  const Automaton::Rule& r = automaton.rule(rule);
  std::vector<uint32_t> classes(r.end - r.first);
  size_t edges = classes.size();
  bool has_empties = false;
  for (uint32_t state = r.first; state < r.end; ++state) {
    edges += automaton.edges(state).size();
    has_empties |= !automaton.empties(state).empty();
  }
  if (has_empties || edges * std::min(max_bytes, classes.size()) > kMaxSteps) {
    std::iota(classes.begin(), classes.end(), 0);
    return classes;
  }
  size_t num_classes = 0;
  for (size_t round = 0; round <= max_bytes; ++round) {
    // A class is called after its first state.
    absl::flat_hash_map<StateText, uint32_t> known;
    std::vector<uint32_t> next(classes.size());
    for (uint32_t state = r.first; state < r.end; ++state) {
      next[state - r.first] =
          known.try_emplace(TextOfState(automaton, r.first, state, classes), state - r.first)
              .first->second;
    }
    classes = std::move(next);
    if (known.size() == num_classes) break;
    num_classes = known.size();
  }
  return classes;
}

}  // namespace pagefuse
