// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/json_rules.h"

#include <cstdint>
#include <limits>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/regex.h"

namespace pagefuse {
namespace {

constexpr std::string_view kNumberRegex =
    "-?(0|[1-9][0-9]{0,19})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?|"
    "-?[0-9](\\.[0-9]{1,20})?[eE]([+-]?([0-2][0-9][0-9]|30[0-7])|-3[0-9][0-9])";

// The states of what follows the opening quote of a string, deterministic.
class StringRest {
 public:
  RuleNfa Make() {
    for (uint32_t i = 1; i < kNumStates; ++i) rule_.AddState();
    rule_.Accept(kClosed);
    Begin('"', '"', kClosed, Counted::kEnd);
    Begin(0x20, 0x21, kBody);
    Begin(0x23, 0x5B, kBody);
    Begin(0x5D, 0x7F, kBody);
    Begin('\\', '\\', kEscape);
    AddUtf8();
    AddEscapes();
    rule_.MarkFinal();
    return std::move(rule_);
  }

 private:
  enum State : uint32_t {
    kBody,
    kClosed,
    kOneMore,  // bytes of a character
    kTwoMore,
    kAfterE0,
    kAfterEd,
    kAfterF0,
    kAfterF4,
    kEscape,
    kUnicode,  // behind "\u"
    kThreeHex,
    kTwoHex,
    kOneHex,
    kUnicodeD,  // behind "\uD"
    kHigh,      // behind "\uD8", the first half of a pair
    kHighHex,
    kHighEnd,
    kLowEscape,
    kLowU,
    kLowD,
    kThreeMore,
    kNumStates,
  };

  void Begin(uint8_t low, uint8_t high, State to, Counted counted = Counted::kCharacter) {
    rule_.AddBytes(kBody, {low, high}, to, counted);
  }
  void Go(State from, uint8_t low, uint8_t high, State to) {
    rule_.AddBytes(from, {low, high}, to);
  }
  void Hex(State from, State to) {
    Go(from, '0', '9', to);
    Go(from, 'A', 'F', to);
    Go(from, 'a', 'f', to);
  }

  // Overlong forms, surrogates and points past U+10FFFF are excluded by what follows some bytes.
  void AddUtf8() {
    Begin(0xC2, 0xDF, kOneMore);
    Begin(0xE0, 0xE0, kAfterE0);
    Begin(0xE1, 0xEC, kTwoMore);
    Begin(0xED, 0xED, kAfterEd);
    Begin(0xEE, 0xEF, kTwoMore);
    Begin(0xF0, 0xF0, kAfterF0);
    Begin(0xF1, 0xF3, kThreeMore);
    Begin(0xF4, 0xF4, kAfterF4);
    Go(kAfterE0, 0xA0, 0xBF, kOneMore);
    Go(kAfterEd, 0x80, 0x9F, kOneMore);
    Go(kAfterF0, 0x90, 0xBF, kTwoMore);
    Go(kAfterF4, 0x80, 0x8F, kTwoMore);
    Go(kThreeMore, 0x80, 0xBF, kTwoMore);
    Go(kTwoMore, 0x80, 0xBF, kOneMore);
    Go(kOneMore, 0x80, 0xBF, kBody);
  }

  // "\uD800" to "\uDBFF" stand before "\uDC00" to "\uDFFF", those nowhere else.
  void AddEscapes() {
    for (const char c : std::string_view("\"\\/bfnrt")) {
      Go(kEscape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), kBody);
    }
    Go(kEscape, 'u', 'u', kUnicode);
    Go(kUnicode, '0', '9', kThreeHex);
    for (const char base : {'A', 'a'}) {
      const auto a = static_cast<uint8_t>(base);
      Go(kUnicode, a, a + 2, kThreeHex);
      Go(kUnicode, a + 3, a + 3, kUnicodeD);
      Go(kUnicode, a + 4, a + 5, kThreeHex);
      Go(kUnicodeD, a, a + 1, kHigh);
      Go(kLowU, a + 3, a + 3, kLowD);
      Go(kLowD, a + 2, a + 5, kTwoHex);
    }
    Go(kUnicodeD, '0', '7', kTwoHex);
    Go(kUnicodeD, '8', '9', kHigh);
    Hex(kThreeHex, kTwoHex);
    Hex(kTwoHex, kOneHex);
    Hex(kOneHex, kBody);
    Hex(kHigh, kHighHex);
    Hex(kHighHex, kHighEnd);
    Go(kHighEnd, '\\', '\\', kLowEscape);
    Go(kLowEscape, 'u', 'u', kLowU);
  }

  RuleNfa rule_;
};

class JsonRules {
 public:
  RuleSet Make() {
    set_.Add(StringRest().Make());
    RuleNfa string;
    const uint32_t rest = string.AddState(), end = string.AddState();
    string.AddBytes(0, {'"', '"'}, rest);
    string.AddCall(rest, set_.CalleeOf(kJsonStringRest), end);
    string.Accept(end);
    set_.Add(std::move(string));
    set_.Add(
        IntegersBetween(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
    set_.Add(Numbers());
    set_.Add(Texts({"true", "false"}));
    set_.Add(Texts({"null"}));
    set_.Add(Values());
    set_.Add(Objects());
    set_.Add(Arrays());
    RuleNfa any;
    any.AddCharacters(0, {0, kMaxCodePoint}, 0);
    any.Accept(0);
    set_.Add(std::move(any));
    return std::move(set_);
  }

 private:
  static RuleNfa Numbers() {
    const GrammarBudget budget;
    RuleNfa rule;
    const uint32_t end = rule.AddState();
    rule.Accept(end);
    const auto dfa = ParseRegex(kNumberRegex, RegexMatch::kWhole, budget);
    PF_CHECK(dfa.ok() && AddCharDfa(*dfa, Spelling::kPlain, {0, end}, rule, budget).ok());
    return rule;
  }

  static RuleNfa Texts(std::initializer_list<std::string_view> texts) {
    RuleNfa rule;
    for (const std::string_view text : texts) rule.Accept(rule.AddText(0, text));
    return rule;
  }

  RuleNfa Values() {
    RuleNfa rule;
    const uint32_t end = rule.AddState();
    rule.Accept(end);
    for (const JsonRule one :
         {kJsonString, kJsonNumber, kJsonBoolean, kJsonNull, kJsonObject, kJsonArray}) {
      rule.AddCall(0, set_.CalleeOf(one), end);
    }
    return rule;
  }

  static void AddBlank(RuleNfa& rule, uint32_t from, uint32_t to) {
    rule.AddEmpty(from, to);
    rule.AddBytes(from, {' ', ' '}, to);
  }

  RuleNfa Objects() {
    RuleNfa rule;
    const uint32_t open = rule.AddText(0, "{"), name = rule.AddText(open, "\"");
    const uint32_t named = rule.AddState(), value = rule.AddState(), valued = rule.AddState();
    const uint32_t next = rule.AddState(), end = rule.AddText(valued, "}");
    rule.AddTextTo(open, "}", end);
    rule.AddCall(name, set_.CalleeOf(kJsonStringRest), named);
    AddBlank(rule, rule.AddText(named, ":"), value);
    rule.AddCall(value, set_.CalleeOf(kJsonValue), valued);
    AddBlank(rule, rule.AddText(valued, ","), next);
    rule.AddTextTo(next, "\"", name);
    rule.Accept(end);
    return rule;
  }

  RuleNfa Arrays() {
    RuleNfa rule;
    const uint32_t open = rule.AddText(0, "["), valued = rule.AddState();
    const uint32_t next = rule.AddState(), end = rule.AddText(valued, "]");
    rule.AddTextTo(open, "]", end);
    rule.AddCall(open, set_.CalleeOf(kJsonValue), valued);
    AddBlank(rule, rule.AddText(valued, ","), next);
    rule.AddCall(next, set_.CalleeOf(kJsonValue), valued);
    rule.Accept(end);
    return rule;
  }

  RuleSet set_;
};

}  // namespace

RuleSet SharedRules() {
  static const RuleSet* const kRules = new RuleSet(JsonRules().Make());
  return *kRules;
}

}  // namespace pagefuse
