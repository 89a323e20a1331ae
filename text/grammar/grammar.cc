// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/grammar.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/automaton.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/json_schema.h"
#include "pagefuse/text/grammar/regex.h"
#include "pagefuse/text/grammar/rule_mask_cache.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {

class GrammarMaker {
 public:
  using Ptr = Grammar::Ptr;

  static absl::StatusOr<Ptr> Make(RuleSet set, const GrammarBudget& budget) {
    PF_ASSIGN_OR_RETURN(Automaton automaton, Automaton::Of(std::move(set), budget));
    return Ptr(new Grammar(std::move(automaton)));
  }

  // One rule beside the shared ones.
  static absl::StatusOr<Ptr> OfRule(RuleNfa rule, const GrammarBudget& budget) {
    RuleSet set = SharedRules();
    set.start = set.Add(std::move(rule));
    return Make(std::move(set), budget);
  }

  static absl::StatusOr<Ptr> OfCharacters(const CharDfa& dfa, const GrammarBudget& budget) {
    RuleNfa rule;
    const uint32_t begin = rule.AddState(), end = rule.AddState();
    rule.AddEmpty(0, begin);
    rule.Accept(end);
    PF_RETURN_IF_ERROR(AddCharDfa(dfa, Spelling::kPlain, {begin, end}, rule, budget));
    return OfRule(std::move(rule), budget);
  }

  static Ptr OfShared(JsonRule rule) {
    RuleSet set = SharedRules();
    set.start = rule;
    auto made = Make(std::move(set), GrammarBudget::Unbounded());
    PF_CHECK(made.ok());
    return *std::move(made);
  }

  // The rules of the parts, and a callee for each.
  static std::vector<uint32_t> AddParts(const std::vector<Ptr>& parts, RuleSet& set) {
    std::vector<uint32_t> callees;
    std::vector<std::pair<const Grammar*, uint32_t>> added;
    for (const Ptr& part : parts) {
      uint32_t callee = kUnbounded;
      for (const auto& [grammar, known] : added) {
        if (grammar == part.get()) callee = known;
      }
      if (callee == kUnbounded) {
        callee = set.CalleeOf(part->automaton().AppendTo(set, kNumSharedRules));
        added.push_back({part.get(), callee});
      }
      callees.push_back(callee);
    }
    return callees;
  }
};

namespace {

absl::Status CheckMark(std::string_view mark) {
  if (mark.empty()) {
    return absl::InvalidArgumentError("the mark: expected a text, got an empty one");
  }
  if (FirstBrokenByte(mark)) return absl::InvalidArgumentError("the mark: expected UTF-8");
  return absl::OkStatus();
}

}  // namespace

Grammar::Grammar(Automaton automaton)
    : automaton_(std::make_unique<Automaton>(std::move(automaton))),
      masks_(std::make_unique<RuleMaskCache>()) {}
Grammar::~Grammar() = default;

absl::StatusOr<Grammar::Ptr> Grammar::OfJsonSchema(const nlohmann::ordered_json& schema) {
  const GrammarBudget budget;
  PF_ASSIGN_OR_RETURN(RuleSet set, JsonSchemaRules(schema, budget));
  return GrammarMaker::Make(std::move(set), budget);
}

Grammar::Ptr Grammar::OfAnyJsonObject() {
  static const Ptr* const kObject = new Ptr(GrammarMaker::OfShared(kJsonObject));
  return *kObject;
}

Grammar::Ptr Grammar::AnyText() {
  static const Ptr* const kText = new Ptr(GrammarMaker::OfShared(kAnyUtf8));
  return *kText;
}

absl::StatusOr<Grammar::Ptr> Grammar::OfChoice(const std::vector<std::string>& choices) {
  if (choices.empty()) {
    return absl::InvalidArgumentError("the choices: expected one at least, got none");
  }
  const GrammarBudget budget;
  RuleNfa rule;
  for (const std::string& choice : choices) {
    PF_RETURN_IF_ERROR(budget.Check(rule.size() + choice.size()));
    rule.Accept(rule.AddText(0, choice));
  }
  return GrammarMaker::OfRule(std::move(rule), budget);
}

absl::StatusOr<Grammar::Ptr> Grammar::OfRegex(std::string_view regex) {
  const GrammarBudget budget;
  PF_ASSIGN_OR_RETURN(const CharDfa dfa, ParseRegex(regex, RegexMatch::kWhole, budget));
  return GrammarMaker::OfCharacters(dfa, budget);
}

absl::StatusOr<Grammar::Ptr> Grammar::OfText(std::string_view text) {
  return OfChoice({std::string(text)});
}

absl::StatusOr<Grammar::Ptr> Grammar::TextWithout(std::string_view mark) {
  PF_RETURN_IF_ERROR(CheckMark(mark));
  CharDfa dfa = FirstOccurrence(mark);
  const auto found = static_cast<uint32_t>(dfa.states.size() - 1);
  dfa.states.pop_back();
  for (CharDfa::State& state : dfa.states) {
    state.accepts = true;
    std::erase_if(state.edges, [&](const CharEdge& edge) { return edge.to == found; });
  }
  return GrammarMaker::OfCharacters(dfa, GrammarBudget());
}

absl::StatusOr<Grammar::Ptr> Grammar::Until(std::string_view mark) {
  PF_RETURN_IF_ERROR(CheckMark(mark));
  return GrammarMaker::OfCharacters(FirstOccurrence(mark), GrammarBudget());
}

absl::StatusOr<Grammar::Ptr> Grammar::Sequence(const std::vector<Ptr>& parts) {
  const GrammarBudget budget;
  RuleSet set = SharedRules();
  RuleNfa rule;
  uint32_t at = 0;
  for (const uint32_t callee : GrammarMaker::AddParts(parts, set)) {
    const uint32_t next = rule.AddState();
    rule.AddCall(at, callee, next);
    at = next;
  }
  rule.Accept(at);
  set.start = set.Add(std::move(rule));
  return GrammarMaker::Make(std::move(set), budget);
}

absl::StatusOr<Grammar::Ptr> Grammar::AnyOf(const std::vector<Ptr>& parts) {
  const GrammarBudget budget;
  RuleSet set = SharedRules();
  RuleNfa rule;
  const uint32_t end = rule.AddState();
  rule.Accept(end);
  for (const uint32_t callee : GrammarMaker::AddParts(parts, set)) rule.AddCall(0, callee, end);
  set.start = set.Add(std::move(rule));
  return GrammarMaker::Make(std::move(set), budget);
}

absl::StatusOr<Grammar::Ptr> Grammar::Repeat(const Ptr& part, int least, int most) {
  if (least < 0 || (most != -1 && most < least)) {
    return absl::InvalidArgumentError(
        StrCat("the repetition: expected 0 <= least <= most, got ", least, " and ", most));
  }
  const GrammarBudget budget;
  PF_RETURN_IF_ERROR(budget.Check(static_cast<size_t>(std::max(least, most)) + 1));
  RuleSet set = SharedRules();
  const uint32_t callee = GrammarMaker::AddParts({part}, set)[0];
  RuleNfa rule;
  uint32_t at = 0;
  for (int i = 0; i < std::max(least, most); ++i) {
    if (i >= least) rule.Accept(at);
    const uint32_t next = rule.AddState();
    rule.AddCall(at, callee, next);
    at = next;
  }
  rule.Accept(at);
  if (most == -1) rule.AddCall(at, callee, at);
  set.start = set.Add(std::move(rule));
  return GrammarMaker::Make(std::move(set), budget);
}

}  // namespace pagefuse
