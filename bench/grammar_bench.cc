// SPDX-License-Identifier: Apache-2.0
// grammar_bench: what masks of a grammar cost over a made-up vocabulary of 262144 tokens: the first one at a place of an answer, by a
// grammar that is new, and later ones; seconds of the processor. And what grammars cost to make.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "random_answer.h"
#include "vocabulary.h"

#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/token_mask.h"

namespace {

using pagefuse::Grammar;
using pagefuse::TokenMask;
using pagefuse::TokenTrie;

constexpr int64_t kTokens = 262144;
constexpr const char* kObject =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "code": {"type": "string", "pattern": "^[a-z]{1,40}$"},
        "note": {"type": "string", "maxLength": 40}, "unit": {"enum": ["celsius", "fahrenheit"]}, "n": {"type": "number"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14}, "more": {}}, "additionalProperties": {"type": "string"}})";

template <typename Run>
double Milliseconds(const Run& run) {
  timespec begin = {}, end = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  run();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) * 1e3 +
         static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e6;
}

struct Times {
  double sum = 0, worst = 0;
  int count = 0;
  void Add(double ms) {
    sum += ms;
    worst = std::max(worst, ms);
    ++count;
  }
};

Grammar::Ptr Made(const char* schema) {
  auto grammar = Grammar::OfJsonSchema(nlohmann::ordered_json::parse(schema));
  if (!grammar.ok()) std::cerr << grammar.status() << "\n";
  return *grammar;
}

// An object of optional members whose names begin alike.
Grammar::Ptr ManyMembers(int count) {
  nlohmann::ordered_json properties;
  for (int i = 0; i < count; ++i) {
    properties["property_" + std::to_string(i)] = {{"type", "string"}};
  }
  return *Grammar::OfJsonSchema({{"type", "object"}, {"properties", properties}});
}

TokenMask Behind(const Grammar::Ptr& grammar, const std::shared_ptr<const TokenTrie>& trie,
                 std::string_view prefix) {
  TokenMask mask(grammar, trie, {kTokens});
  for (const char byte : prefix) {
    if (!mask.Accept(static_cast<uint8_t>(byte)).ok())
      std::cerr << "not allowed: " << prefix << "\n";
  }
  return mask;
}

// The mask behind a prefix: of a new grammar, of a second answer under the same one, and again.
template <typename Make>
void Place(const char* name, const Make& make, std::string_view prefix,
           const std::shared_ptr<const TokenTrie>& trie) {
  Times first, second, again;
  for (int i = 0; i < 20; ++i) {
    const Grammar::Ptr grammar = make();
    TokenMask mask = Behind(grammar, trie, prefix);
    first.Add(Milliseconds([&] { (void)mask.Allowed(); }));
    for (int k = 0; k < 5; ++k) {
      TokenMask other = Behind(grammar, trie, prefix);
      second.Add(Milliseconds([&] { (void)other.Allowed(); }));
      again.Add(Milliseconds([&] { (void)other.Allowed(); }));
    }
  }
  std::printf("%-26s first %6.3f, worst %6.3f  warm %6.3f, worst %6.3f  same place %7.4f ms\n",
              name, first.sum / first.count, first.worst, second.sum / second.count, second.worst,
              again.sum / again.count);
}

// Whole random answers: every mask that they need, and what the tokens cost.
void Answers(const char* name, const Grammar::Ptr& grammar,
             const std::shared_ptr<const TokenTrie>& trie) {
  std::mt19937 random(1);
  Times masks, accepts;
  for (int i = 0; i < 30; ++i) {
    TokenMask mask(grammar, trie, {kTokens});
    for (int k = 0; k < 60; ++k) {
      std::vector<int64_t> tokens;
      masks.Add(Milliseconds([&] { (void)mask.Allowed(); }));
      tokens = pagefuse::TokensIn(*mask.Allowed());
      const int64_t token = pagefuse::DrawToken(tokens, *trie, kTokens, random() % 5 == 0, random);
      accepts.Add(Milliseconds([&] { (void)mask.Accept(token); }));
      if (token == kTokens) break;
    }
  }
  std::printf("%-26s %5d masks, mean %6.3f, worst %6.3f ms; a token %7.4f, worst %6.3f ms\n", name,
              masks.count, masks.sum / masks.count, masks.worst, accepts.sum / accepts.count,
              accepts.worst);
}

}  // namespace

int main() {
  const auto vocabulary = pagefuse::MadeUpVocabulary(kTokens);
  std::shared_ptr<const TokenTrie> trie;
  std::printf("tree: %.1f ms\n", Milliseconds([&] { trie = TokenTrie::Of(vocabulary); }));
  std::printf("object: %.2f ms to make\n", Milliseconds([] { (void)Made(kObject); }));
  const auto object = [] { return Made(kObject); };
  Place("begin", object, "", trie);
  Place("behind {", object, "{", trie);
  Place("in a string", object, R"({"city":"Be)", trie);
  Place("behind an escape", object, R"({"city":"Be\)", trie);
  Place("in a bounded string", object, R"({"note":"ab)", trie);
  Place("at a bounded string's end", object, R"({"note":"abcdefghijklmnopqrstuvwxyzabcdefghijkl)",
        trie);
  Place("in a pattern", object, R"({"code":"ab)", trie);
  Place("further in a pattern", object, R"({"code":"abcdefg)", trie);
  Place("in an enum", object, R"({"unit":"c)", trie);
  Place("in a number", object, R"({"n":12)", trie);
  Place("in an integer", object, R"({"days":1)", trie);
  Place("at any value", object, R"({"more":)", trie);
  Place("at any name", object, R"({"days":12,")", trie);
  Place("in another name", object, R"({"x)", trie);
  Place("within any values", object, R"({"more":{"a":[1,{"b":)", trie);
  Place(
      "any object, in a string", [] { return Grammar::OfAnyJsonObject(); }, R"({"a":"b)", trie);
  const auto members = [] { return ManyMembers(100); };
  Place("100 optional members", members, "{", trie);
  Place("in one of their names", members, "{\"", trie);
  const auto reasoning = [] {
    return *Grammar::Sequence({*Grammar::Until("</think>"), Grammar::OfAnyJsonObject()});
  };
  Place("before a mark", reasoning, "so", trie);
  Answers("answers, object", Made(kObject), trie);
  Answers("answers, any object", Grammar::OfAnyJsonObject(), trie);
  Answers("answers, before a mark", reasoning(), trie);
  return 0;
}
