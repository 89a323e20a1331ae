// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/rule_graph.h"

#include <utility>

namespace pagefuse {
namespace {

// States from which the end can be reached.
std::vector<bool> LiveRuleStates(const RuleGraph& rule, const std::vector<bool>& may_call) {
  std::vector<std::vector<uint32_t>> before(rule.states.size());
  std::vector<uint32_t> work;
  std::vector<bool> live(rule.states.size());
  for (uint32_t i = 0; i < rule.states.size(); ++i) {
    const RuleGraph::State& state = rule.states[i];
    for (const Automaton::Edge& edge : state.edges) before[edge.to].push_back(i);
    for (const uint32_t to : state.empties) before[to].push_back(i);
    for (const Automaton::Call& call : state.calls) {
      if (may_call[call.callee]) before[call.to].push_back(i);
    }
    if (state.accepts) work.push_back(i);
    live[i] = state.accepts;
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

}  // namespace

RuleGraph RuleGraph::Of(const RuleNfa& rule) {
  RuleGraph graph;
  graph.place = rule.place();
  graph.is_final = rule.is_final();
  graph.states.resize(rule.size());
  for (uint32_t i = 0; i < rule.size(); ++i) graph.states[i].accepts = rule.accepts(i);
  for (const RuleNfa::ByteEdge& edge : rule.byte_edges()) {
    graph.states[edge.from].edges.push_back({edge.to, edge.low, edge.high, edge.counted});
  }
  for (const auto& [from, to] : rule.empty_edges()) graph.states[from].empties.push_back(to);
  for (const RuleNfa::CallEdge& edge : rule.call_edges()) {
    graph.states[edge.from].calls.push_back({edge.callee, edge.to});
  }
  return graph;
}

std::vector<bool> RuleGraph::Reachable(const std::vector<bool>& may_call, bool reads) const {
  std::vector<bool> reached(states.size());
  std::vector<uint32_t> work;
  const auto reach = [&](uint32_t state) {
    if (!reached[state]) work.push_back(state);
    reached[state] = true;
  };
  reach(0);
  while (!work.empty()) {
    const State& state = states[work.back()];
    work.pop_back();
    for (const uint32_t to : state.empties) reach(to);
    for (const Automaton::Call& call : state.calls) {
      if (may_call[call.callee]) reach(call.to);
    }
    if (!reads) continue;
    for (const Automaton::Edge& edge : state.edges) reach(edge.to);
  }
  return reached;
}

bool RuleGraph::ReachesEnd(const std::vector<bool>& may_call, bool reads) const {
  const std::vector<bool> reached = Reachable(may_call, reads);
  for (size_t i = 0; i < states.size(); ++i) {
    if (reached[i] && states[i].accepts) return true;
  }
  return false;
}

void RuleGraph::Trim(const std::vector<bool>& may_call) {
  const std::vector<bool> reached = Reachable(may_call, /*reads=*/true);
  std::vector<bool> kept = LiveRuleStates(*this, may_call);
  for (size_t i = 0; i < states.size(); ++i) kept[i] = (kept[i] && reached[i]) || i == 0;
  std::vector<uint32_t> ids(states.size());
  uint32_t next = 0;
  for (size_t i = 0; i < states.size(); ++i) ids[i] = kept[i] ? next++ : 0;
  std::vector<State> all = std::exchange(states, {});
  for (size_t i = 0; i < all.size(); ++i) {
    if (!kept[i]) continue;
    State state;
    state.accepts = all[i].accepts;
    for (Automaton::Edge edge : all[i].edges) {
      if (!kept[edge.to]) continue;
      edge.to = ids[edge.to];
      state.edges.push_back(edge);
    }
    for (const uint32_t to : all[i].empties) {
      if (kept[to]) state.empties.push_back(ids[to]);
    }
    for (const Automaton::Call& call : all[i].calls) {
      if (kept[call.to] && may_call[call.callee])
        state.calls.push_back({call.callee, ids[call.to]});
    }
    states.push_back(std::move(state));
  }
}

}  // namespace pagefuse
