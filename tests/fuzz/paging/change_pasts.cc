// SPDX-License-Identifier: Apache-2.0
// Pasts and presents that belong to others, that are scaled, read twice or not at all.
#include <algorithm>

#include "change_parts.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

// Two different ones of the same type; false if there are none.
struct Two {
  Value* first = nullptr;
  Value* second = nullptr;
};
bool PickTwo(const DecoderCase& decoder, Random& random, Two& two) {
  std::vector<Value*> pasts = PastsOf(decoder);
  if (pasts.size() < 2) return false;
  two.first = PickOne(pasts, random);
  std::erase(pasts, two.first);
  two.second = PickOne(pasts, random);
  return two.first->dtype() == two.second->dtype();
}

// Where names do not tell which past a present becomes, the graph does: the exchanged ones.
void ExchangePairs(DecoderCase& decoder, const Two& two) {
  const bool told = two.first->name().find("past") != std::string::npos;
  const auto first = decoder.presents.find(two.first->name());
  const auto second = decoder.presents.find(two.second->name());
  if (told || first == decoder.presents.end() || second == decoder.presents.end()) return;
  std::swap(first->second, second->second);
}

// What reads a past for its length alone would change nothing.
std::vector<Use> ReadersOf(const Value& past) {
  std::vector<Use> readers;
  for (const Use& use : past.uses()) {
    if (!use.node->Is("Shape")) readers.push_back(use);
  }
  return readers;
}

bool ExchangePasts(DecoderCase& decoder, Random& random) {
  Two two;
  if (!PickTwo(decoder, random, two)) return false;
  const std::vector<Use> firsts = ReadersOf(*two.first), seconds = ReadersOf(*two.second);
  for (const Use& use : firsts) use.node->SetInput(use.index, two.second);
  for (const Use& use : seconds) use.node->SetInput(use.index, two.first);
  ExchangePairs(decoder, two);
  return !firsts.empty() && !seconds.empty();
}

bool ReadAnotherPast(DecoderCase& decoder, Random& random) {
  Two two;
  if (!PickTwo(decoder, random, two)) return false;
  const std::vector<Use> readers = ReadersOf(*two.first);
  if (readers.empty()) return false;
  const Use& use = PickOne(readers, random);
  use.node->SetInput(use.index, two.second);
  return true;
}

// Each is called as the other was.
bool ExchangePresents(DecoderCase& decoder, Random& random) {
  Two two;
  if (!PickTwo(decoder, random, two)) return false;
  Value* first = PresentOf(decoder, *two.first);
  Value* second = PresentOf(decoder, *two.second);
  if (!first || !second || first == second) return false;
  Graph& graph = *decoder.model.graph;
  const std::string name = first->name(), other = second->name();
  graph.Rename(first, graph.UniqueName("exchanged"));
  graph.Rename(second, name);
  graph.Rename(first, other);
  ExchangePairs(decoder, two);
  return true;
}

// One present is the other one as well.
bool DoublePresent(DecoderCase& decoder, Random& random) {
  Two two;
  if (!PickTwo(decoder, random, two)) return false;
  Value* first = PresentOf(decoder, *two.first);
  Value* second = PresentOf(decoder, *two.second);
  if (!first || !second || first == second || first->dtype() != second->dtype()) return false;
  Graph& graph = *decoder.model.graph;
  const auto& outputs = graph.outputs();
  const auto index = std::ranges::find(outputs, first) - outputs.begin();
  const std::string name = first->name();
  Value* twice = graph.AddValue(graph.UniqueName("twice"), second->dtype());
  graph.AddNode("", "Identity", {second}, {twice});
  graph.ReplaceOutput(static_cast<int>(index), twice);
  graph.Rename(first, graph.UniqueName("unread"));
  graph.Rename(twice, name);
  return true;
}

using Make = Value* (*)(Rewriter& rewriter, Value* value);

Value* Halved(Rewriter& rewriter, Value* value) {
  return rewriter.Add("Mul", {value, NumberLike(rewriter, *value, 0.5)});
}
Value* Negated(Rewriter& rewriter, Value* value) { return rewriter.Add("Neg", {value}); }
Value* Nothing(Rewriter& rewriter, Value* value) { return rewriter.Add("Sub", {value, value}); }
Value* Shifted(Rewriter& rewriter, Value* value) {
  return rewriter.Add("Add", {value, NumberLike(rewriter, *value, 0.25)});
}
Value* Rounded(Rewriter& rewriter, Value* value) {
  return rewriter.Cast(rewriter.Cast(value, DataType::kFloat16), value->dtype());
}
Value* Clipped(Rewriter& rewriter, Value* value) {
  return rewriter.Add(
      "Clip", {value, NumberLike(rewriter, *value, -0.5), NumberLike(rewriter, *value, 0.5)});
}
Value* TokensReversed(Rewriter& rewriter, Value* value) {
  return ReversedAlong(rewriter, value, testing::RankOf(value) - 2);
}
Value* HeadsReversed(Rewriter& rewriter, Value* value) { return ReversedAlong(rewriter, value, 1); }
Value* ChannelsReversed(Rewriter& rewriter, Value* value) {
  return ReversedAlong(rewriter, value, testing::RankOf(value) - 1);
}

// One reader, or all, of a past.
Change OfPast(const std::string& name, Make make) {
  const auto change = [make](DecoderCase& decoder, Random& random) {
    const std::vector<Value*> pasts = PastsOf(decoder);
    if (pasts.empty()) return false;
    Value* past = PickOne(pasts, random);
    std::vector<Use> readers = ReadersOf(*past);
    if (readers.empty() || !testing::IsFloat(past)) return false;
    if (random() % 2 == 0) readers = {PickOne(readers, random)};
    // Before everything that reads it.
    Rewriter rewriter(*decoder.model.graph->nodes().front());
    Value* changed = make(rewriter, past);
    for (const Use& use : readers) use.node->SetInput(use.index, changed);
    return true;
  };
  return {"pasts", "a past " + name, nullptr, change};
}

// A present, which attention reads as it was.
Change OfPresent(const std::string& name, Make make) {
  const auto change = [make](DecoderCase& decoder, Random& random) {
    const std::vector<Value*> pasts = PastsOf(decoder);
    if (pasts.empty()) return false;
    Value* present = PresentOf(decoder, *PickOne(pasts, random));
    if (!present || !testing::IsFloat(present)) return false;
    Graph& graph = *decoder.model.graph;
    const auto& outputs = graph.outputs();
    const auto index = std::ranges::find(outputs, present) - outputs.begin();
    const std::string name_before = present->name();
    Value* last = graph.AddValue(graph.UniqueName("changed"), present->dtype());
    Node* node = graph.AddNode("", "Identity", {present}, {last});
    Rewriter rewriter(*node);
    node->SetInput(0, make(rewriter, present));
    graph.ReplaceOutput(static_cast<int>(index), last);
    graph.Rename(present, graph.UniqueName("read"));
    graph.Rename(last, name_before);
    return true;
  };
  return {"pasts", "a present " + name, nullptr, change};
}

// The node that joins a past to what is new, as its first input; null if none does.
Node* JoinOf(const Value& past) {
  for (const Use& use : past.uses()) {
    if (use.node->Is("Concat") && use.node->num_inputs() == 2 && use.index == 0) return use.node;
  }
  return nullptr;
}

// What is as wide as past and new together, between keys and their softmax, becomes as wide as what
// is new.
void CutBesides(Value* from, const Dim& total, Value* length) {
  std::vector<Value*> path = {from};
  for (size_t i = 0; i < path.size(); ++i) {
    const std::vector<Use> readers = path[i]->uses();
    for (const Use& use : readers) {
      Node& node = *use.node;
      if (testing::IsOneOf(node, {"Softmax", "LogSoftmax", "Shape"})) continue;
      if (node.num_outputs() != 1 || std::ranges::count(path, node.output(0)) > 0) continue;
      path.push_back(node.output(0));
      for (int other = 0; other < node.num_inputs(); ++other) {
        Value* value = node.input(other);
        const bool wide = other != use.index && testing::RankOf(value) >= 1 &&
                          ProvablyEqual(value->shape()->back(0), total) &&
                          std::ranges::count(path, value) == 0;
        if (!wide) continue;
        Rewriter rewriter(node);
        Value* begin = rewriter.Add("Neg", {length});
        node.SetInput(other, rewriter.Add("Slice", {value, begin, rewriter.Ints({INT64_MAX}),
                                                    rewriter.Ints({-1})}));
      }
    }
  }
}

// A layer that sees the keys of the step alone. Its presents are as before.
bool LayerWithoutPast(DecoderCase& decoder, Random& random) {
  const std::vector<Value*> pasts = PastsOf(decoder);
  if (pasts.size() < 2) return false;
  const size_t layer = random() % (pasts.size() / 2);
  Node* keys = JoinOf(*pasts[2 * layer]);
  Node* values = JoinOf(*pasts[2 * layer + 1]);
  if (!keys || !values || testing::RankOf(keys->output(0)) != 4) return false;
  const Dim total = (*keys->output(0)->shape())[2];
  Rewriter rewriter(*keys);
  Value* shape = rewriter.Add("Shape", {keys->input(1)});
  Value* length = rewriter.AddInt("Gather", {shape, rewriter.Ints({2})}, "axis", 0);
  CutBesides(keys->output(0), total, length);
  for (Node* join : {keys, values}) {
    const std::vector<Use> readers = join->output(0)->uses();
    for (const Use& use : readers) {
      const bool present = use.node->Is("Identity") && use.node->output(0)->is_output();
      if (!present) use.node->SetInput(use.index, join->input(1));
    }
  }
  return true;
}

// What is new is read without the past, where the past is joined to it.
bool Unjoined(DecoderCase& decoder, Random& random) {
  const std::vector<Value*> pasts = PastsOf(decoder);
  Node* join = pasts.empty() ? nullptr : JoinOf(*PickOne(pasts, random));
  if (!join) return false;
  const std::vector<Use> readers = join->output(0)->uses();
  for (const Use& reader : readers) reader.node->SetInput(reader.index, join->input(1));
  return !readers.empty();
}

// New keys first.
bool JoinedBackwards(DecoderCase& decoder, Random& random) {
  const std::vector<Value*> pasts = PastsOf(decoder);
  if (pasts.empty()) return false;
  const Value* past = PickOne(pasts, random);
  if (past->uses().empty()) return false;
  Node& join = *PickOne(past->uses(), random).node;
  if (!join.Is("Concat") || join.num_inputs() != 2) return false;
  Value* first = join.input(0);
  join.SetInput(0, join.input(1));
  join.SetInput(1, first);
  return true;
}

}  // namespace

std::vector<Change> PastChanges() {
  std::vector<Change> changes = {
      {"pasts", "pasts exchanged", nullptr, ExchangePasts},
      {"pasts", "another past read", nullptr, ReadAnotherPast},
      {"pasts", "presents exchanged", nullptr, ExchangePresents},
      {"pasts", "one present in place of another", nullptr, DoublePresent},
      {"pasts", "new keys or values without a past", nullptr, Unjoined},
      {"pasts", "a layer without its past", nullptr, LayerWithoutPast},
      {"pasts", "a past behind what is new", nullptr, JoinedBackwards}};
  const std::pair<const char*, Make> makes[] = {{"halved", Halved},
                                                {"negated", Negated},
                                                {"of 0", Nothing},
                                                {"shifted", Shifted},
                                                {"rounded", Rounded},
                                                {"clipped", Clipped},
                                                {"with tokens in reverse", TokensReversed},
                                                {"with heads in reverse", HeadsReversed},
                                                {"with channels in reverse", ChannelsReversed}};
  for (const auto& [name, make] : makes) {
    changes.push_back(OfPast(name, make));
    changes.push_back(OfPresent(name, make));
  }
  return changes;
}

}  // namespace pagefuse::fuzz
