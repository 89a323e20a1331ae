// SPDX-License-Identifier: Apache-2.0
// Expressions, choices, marks and what is put together from them.
#include "pagefuse/text/grammar/grammar.h"

#include <regex>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

bool Accepts(const Grammar::Ptr& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.Advance(text) && state.accepts();
}
bool Begins(const Grammar::Ptr& grammar, std::string_view text) {
  return GrammarState(grammar).Advance(text);
}
Grammar::Ptr Text(std::string_view text) { return Must(Grammar::OfText(text)); }

std::string RegexError(std::string_view regex) {
  return std::string(StdView(Grammar::OfRegex(regex).status().message()));
}

TEST(Grammar, OfRegexMatchesWholeTexts) {
  const auto regex = Must(Grammar::OfRegex("a(b|cd)*[x-z]{1,2}"));
  for (const char* text : {"ax", "abz", "acdbcdxy"}) EXPECT_TRUE(Accepts(regex, text)) << text;
  for (const char* text : {"", "a", "acx", "abxyz", "axb"})
    EXPECT_FALSE(Accepts(regex, text)) << text;
}

// All texts of up to five of these characters, for expressions of both libraries.
TEST(Grammar, OfRegexIsTheStandardLibrarys) {
  const std::string letters = "ab1-\n";
  for (const char* regex : {"a*b+", "(a|b|ab)*1?", "[^a]{2,3}", "(?:a{2}|b){1,2}-?", "\\w+\\W?",
                            "\\d?[a-b1]*", "(a*)*b", "^ab$|^b", "a?a?a?aaa", ".{3}", "[ab-]+",
                            "(a|b)*a(a|b)(a|b)", "\\s*a\\S", "(|a)b", "a{0}b"}) {
    SCOPED_TRACE(regex);
    const auto ours = Must(Grammar::OfRegex(regex));
    const std::regex theirs(regex, std::regex::ECMAScript);
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(Accepts(ours, texts[i]), std::regex_match(texts[i], theirs)) << texts[i];
      if (texts[i].size() == 5) continue;
      for (const char letter : letters) texts.push_back(texts[i] + letter);
    }
  }
}

TEST(Grammar, RegexCharactersAreCodePoints) {
  const auto two = Must(Grammar::OfRegex(".{2}"));
  EXPECT_TRUE(Accepts(two, "é😀"));
  EXPECT_FALSE(Accepts(two, "😀"));
  EXPECT_FALSE(Begins(two, "\xFF"));
  EXPECT_FALSE(Begins(two, "\xED\xA0"));        // a surrogate
  EXPECT_FALSE(Begins(two, "\xC0"));            // overlong
  EXPECT_FALSE(Accepts(two, "a\xE2\x80\xA8"));  // a line end
  EXPECT_TRUE(Accepts(Must(Grammar::OfRegex("[а-я]+\\u{1F600}\\uD83D\\uDE00\\x41")), "привет😀😀A"));
}

TEST(Grammar, RefusesWhatIsNotRegular) {
  EXPECT_EQ(
      RegexError("(a)\\1"),
      "at byte 4 of the pattern: expected no reference back, which is not regular, got \"1\"");
  EXPECT_THAT(RegexError("(?=a)b"), HasSubstr("a group, not an assertion"));
  EXPECT_THAT(RegexError("(?<!a)b"), HasSubstr("a group, not an assertion"));
  EXPECT_THAT(RegexError("a\\b"), HasSubstr("no assertion but"));
  EXPECT_THAT(RegexError("\\p{L}"), HasSubstr("not a Unicode property"));
  for (const char* regex :
       {"(a", "a)", "[a", "a**", "*a", "a{3,2}", "[z-a]", "\\", "\\q", "a{2}{3}"}) {
    EXPECT_THAT(RegexError(regex), HasSubstr("of the pattern: expected")) << regex;
  }
  EXPECT_TRUE(Grammar::OfRegex("(?<year>\\d+)").ok());
}

TEST(Grammar, RegexesHaveLimits) {
  EXPECT_THAT(RegexError("(a{1000}){1000}"), HasSubstr("at most 100000 states"));
  EXPECT_EQ(Grammar::OfRegex("(.*a.{24}){1,9}").status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(RegexError(std::string(10'000, '(')), HasSubstr("nested up to 100"));
}

TEST(Grammar, OfChoiceIsOneOfThem) {
  const auto choice = Must(Grammar::OfChoice({"yes", "yesterday", "no", ""}));
  for (const char* text : {"yes", "yesterday", "no", ""})
    EXPECT_TRUE(Accepts(choice, text)) << text;
  for (const char* text : {"ye", "yesno", "n"}) EXPECT_FALSE(Accepts(choice, text)) << text;
  EXPECT_FALSE(Grammar::OfChoice({}).ok());
}

TEST(Grammar, SequencesRepeatAndChoose) {
  const auto ab = Must(Grammar::AnyOf({Text("a"), Text("b")}));
  const auto some = Must(Grammar::Repeat(ab, 1, 3));
  const auto all =
      Must(Grammar::Sequence({Text("<"), some, Must(Grammar::Optional(Text("!"))), Text(">")}));
  for (const char* text : {"<a>", "<bab>", "<ab!>"}) EXPECT_TRUE(Accepts(all, text)) << text;
  for (const char* text : {"<>", "<abab>", "<a!!>", "<a"}) EXPECT_FALSE(Accepts(all, text)) << text;
  const auto many = Must(Grammar::Repeat(all, 2, -1));
  EXPECT_TRUE(Accepts(many, "<a><b!><a>"));
  EXPECT_FALSE(Accepts(many, "<a>"));
  EXPECT_FALSE(Grammar::Repeat(ab, 2, 1).ok());
}

TEST(Grammar, RepeatsOfWhatMayBeEmptyEnd) {
  const auto empty = Must(Grammar::Optional(Text("a")));
  const auto many = Must(Grammar::Repeat(Must(Grammar::Repeat(empty, 0, -1)), 3, -1));
  EXPECT_TRUE(Accepts(many, ""));
  EXPECT_TRUE(Accepts(many, "aaaaaaa"));
  EXPECT_FALSE(Begins(many, "b"));
}

TEST(Grammar, UntilEndsWithTheFirstMark) {
  const auto until = Must(Grammar::Until("aab"));
  EXPECT_TRUE(Accepts(until, "aab"));
  EXPECT_TRUE(Accepts(until, "xaaaab"));
  EXPECT_FALSE(Accepts(until, "aabaab"));
  EXPECT_FALSE(Accepts(until, "aa"));
  GrammarState state(until);
  ASSERT_TRUE(state.Advance("é aaab"));
  EXPECT_TRUE(state.finished());
  EXPECT_FALSE(Grammar::Until("").ok());
  EXPECT_FALSE(Grammar::Until("\xFF").ok());
}

TEST(Grammar, TextWithoutAMarkNeverHasIt) {
  const auto text = Must(Grammar::TextWithout("abab"));
  EXPECT_TRUE(Accepts(text, ""));
  EXPECT_TRUE(Accepts(text, "aba abba"));
  EXPECT_FALSE(Begins(text, "xababa"));
  EXPECT_FALSE(Begins(text, "abaabab"));
  EXPECT_FALSE(Accepts(text, "\xC3"));
}

TEST(Grammar, FreeTextMayTurnIntoACall) {
  const auto call = Must(Grammar::Sequence(
      {Must(Grammar::Until("<call>")), Grammar::OfAnyJsonObject(), Text("</call>")}));
  const auto answer = Must(Grammar::AnyOf({Must(Grammar::TextWithout("<call>")), call}));
  EXPECT_TRUE(Accepts(answer, "Hello <b> there"));
  EXPECT_TRUE(Accepts(answer, "So: <call>{\"a\":1}</call>"));
  EXPECT_FALSE(Accepts(answer, "So: <call>{\"a\":1}"));
  EXPECT_FALSE(Begins(answer, "So: <call>text"));
  EXPECT_FALSE(Begins(answer, "<call>{}</call> and"));
}

TEST(Grammar, ASchemaMayBindOnlyWhatFollows) {
  const auto answer =
      Must(Grammar::Sequence({Must(Grammar::Until("</think>")), Grammar::OfAnyJsonObject()}));
  EXPECT_TRUE(Accepts(answer, "well { </think>{\"a\": [1, 2]}"));
  EXPECT_FALSE(Begins(answer, "well</think> {"));
}

TEST(Grammar, AnyJsonObjectIsCompactJson) {
  const auto any = Grammar::OfAnyJsonObject();
  for (const char* text :
       {"{}", R"({"a":null,"b":[true,false,-0.5e+10,"x"],"":{"c":{}}})", R"({"a": 1, "b": []})",
        R"({"\u00e9\"\\\/\b\f\n\r\t":"\ud83d\ude00"})", "{\"a\":[1e307,-0,12.5E-3,0.25]}"}) {
    EXPECT_TRUE(Accepts(any, text)) << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  for (const char* text : {"",
                           "[]",
                           "{",
                           "{\"a\"}",
                           "{\"a\":1,}",
                           "{ }",
                           "{\"a\" :1}",
                           "{\"a\":  1}",
                           "{\"a\":01}",
                           "{\"a\":.5}",
                           "{\"a\":+1}",
                           "{\"a\":[1,]}",
                           "{\"a\":\"\n\"}",
                           R"({"a":"\x"})",
                           R"({"a":"\ud83d"})",
                           R"({"a":"\ude00"})",
                           R"({"a":"\ud83d\u0041"})",
                           "{\"a\":\"\xFF\"}",
                           "{\"a\":1e999}",
                           "{}{}"}) {
    EXPECT_FALSE(Accepts(any, text)) << text;
  }
}

TEST(Grammar, StatesAreValues) {
  GrammarState state(Text("abc"));
  ASSERT_TRUE(state.Advance('a'));
  GrammarState copy = state;
  EXPECT_FALSE(state.Advance("bx"));  // none of it
  EXPECT_TRUE(state.Advance("bc"));
  EXPECT_TRUE(state.finished());
  EXPECT_FALSE(copy.accepts());
  EXPECT_EQ(copy.NextBytes(), "'b'");
  EXPECT_TRUE(copy.Advance("bc"));
}

TEST(Grammar, DeepDocumentsAndLongListsAreRead) {
  GrammarState state(Grammar::OfAnyJsonObject());
  ASSERT_TRUE(state.Advance("{\"a\":"));
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(state.Advance("["));
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(state.Advance("1,2"));
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(state.Advance("]"));
  EXPECT_TRUE(state.Advance("}"));
  EXPECT_TRUE(state.finished());
}

}  // namespace
}  // namespace pagefuse
