// SPDX-License-Identifier: Apache-2.0
// Trees of tokens, and masks compared with each token tried alone.
#include "pagefuse/text/grammar/token_mask.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"
#include "random_answer.h"
#include "vocabulary.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Grammar::Ptr Schema(const char* text) {
  return Must(Grammar::OfJsonSchema(nlohmann::ordered_json::parse(text)));
}

TEST(TokenTrie, TokensStandInTheirOrderWithThoseBelow) {
  const auto trie = TokenTrie::Of(std::vector<std::string>{"b", "ab", "", "abc", "a", "ab"});
  ASSERT_EQ(trie->size(), 5);  // the root, a, ab, abc, b
  EXPECT_THAT(trie->tokens(0), IsEmpty());
  EXPECT_THAT(trie->tokens(1), ElementsAre(4));
  EXPECT_THAT(trie->tokens(2), ElementsAre(1, 5));
  EXPECT_THAT(trie->tokens_below(1), ElementsAre(1, 5, 3));
  EXPECT_EQ(trie->skip(1), 4);
  EXPECT_EQ(trie->byte(4), 'b');
  EXPECT_EQ(trie->bytes_of(3), "abc");
  EXPECT_EQ(trie->bytes_of(2), "");
  EXPECT_EQ(trie->bytes_of(-1), "");
  EXPECT_EQ(trie->bytes_of(6), "");
}

TEST(TokenTrie, SpecialTokensAreLeftOutUnlessTheyAreSpelled) {
  const auto tokenizer =
      Must(Tokenizer::Parse(R"({"added_tokens": [{"id": 2, "content": "<s>", "special": true},
      {"id": 3, "content": "<t>", "special": true}],
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2, "<t>": 3}, "merges": []}})"));
  const auto trie = TokenTrie::Of(*tokenizer, std::vector<int64_t>{3});
  EXPECT_EQ(trie->bytes_of(0), tokenizer->Bytes(0));
  EXPECT_EQ(trie->bytes_of(2), "");
  EXPECT_EQ(trie->bytes_of(3), "<t>");
  EXPECT_EQ(trie->num_tokens(), 4);
}

// Answers of random tokens; at 50 places of them, each token is tried alone.
void CompareWithEachToken(const Grammar::Ptr& grammar, const std::shared_ptr<const TokenTrie>& trie,
                          uint32_t seed) {
  const int64_t end = trie->num_tokens();
  std::mt19937 random(seed);
  for (int prefix = 0; prefix < 50; ++prefix) {
    TokenMask mask(grammar, trie, {end});
    GrammarState state(grammar);
    std::string text;
    for (uint32_t left = random() % 40; left > 0; --left) {
      const std::vector<int64_t> tokens = TokensIn(Must(mask.Allowed()));
      const int64_t token = DrawToken(tokens, *trie, end, random() % 3 == 0, random);
      if (token == end) break;
      Must(mask.Accept(token));
      ASSERT_TRUE(state.Advance(trie->bytes_of(token)));
      text += trie->bytes_of(token);
    }
    const auto allowed = Must(mask.Allowed());
    for (int64_t token = 0; token < trie->num_tokens(); ++token) {
      const bool expected =
          !trie->bytes_of(token).empty() && GrammarState(state).Advance(trie->bytes_of(token));
      ASSERT_EQ((allowed[token / 64] >> token % 64 & 1) != 0, expected)
          << "token \"" << trie->bytes_of(token) << "\" behind " << text;
    }
    ASSERT_EQ((allowed[end / 64] >> end % 64 & 1) != 0, state.accepts()) << text;
    ASSERT_EQ(mask.accepts(), state.accepts());
    ASSERT_EQ(mask.finished(), state.finished());
  }
}

TEST(TokenTrie, MasksAreWhatEachTokenAloneMayDo) {
  const auto trie = TokenTrie::Of(MadeUpVocabulary(1700));
  const Grammar::Ptr grammars[] = {
      Grammar::OfAnyJsonObject(),
      Grammar::AnyText(),
      Schema(
          R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "n": {"type": "integer",
              "minimum": -3, "maximum": 1200}, "tags": {"type": "array", "items": {"enum": ["a", "ab", "x\""]}}},
              "required": ["city"], "additionalProperties": {"type": "string", "minLength": 4}})"),
      Schema(
          R"({"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 2, "maxLength": 5}, {"type": "number"},
              {"type": "string", "pattern": "^[a-m]+$"}, {"$ref": "#"}]}})"),
      Schema(R"({"type": "string", "format": "date-time"})"),
      Schema(
          R"({"properties": {"a": {"type": "string"}, "b": {}, "c": {"type": "boolean"}, "d": {"type": ["string", "null"]}}})"),
      Must(Grammar::OfRegex("([a-z]{2,6}( |, )){3}|.*[0-9]")),
      Must(Grammar::OfRegex("[a-z ]{1,200}")),
      Must(Grammar::OfChoice({"true", "false", "falsehood", "\": \""})),
      Must(Grammar::AnyOf({Must(Grammar::TextWithout("}}")),
                           Must(Grammar::Sequence(
                               {Must(Grammar::Until("}}")), Schema(R"({"type": "integer"})")}))})),
      Must(Grammar::Sequence({Must(Grammar::TextWithout("},{\"")), Must(Grammar::OfText("},{\"x")),
                              Grammar::AnyText()})),
      Must(Grammar::Repeat(Grammar::OfAnyJsonObject(), 1, 3)),
  };
  uint32_t seed = 1;
  for (const Grammar::Ptr& grammar : grammars) {
    SCOPED_TRACE(seed);
    CompareWithEachToken(grammar, trie, seed++);
  }
}

TEST(TokenTrie, MasksDoNotDependOnWhatWasAskedBefore) {
  const auto trie = TokenTrie::Of(MadeUpVocabulary(1000));
  const auto grammar = Schema(R"({"type": "array", "items": {"type": "string", "maxLength": 3}})");
  TokenMask asked(grammar, trie, {}), silent(grammar, trie, {});
  for (const char byte : std::string_view("[\"ab\", \"c")) {
    (void)Must(asked.Allowed());
    Must(asked.Accept(static_cast<uint8_t>(byte)));
    Must(silent.Accept(static_cast<uint8_t>(byte)));
  }
  EXPECT_EQ(TokensIn(Must(asked.Allowed())), TokensIn(Must(silent.Allowed())));
  TokenMask copy = asked;
  Must(copy.Accept('"'));
  EXPECT_EQ(TokensIn(Must(asked.Allowed())), TokensIn(Must(silent.Allowed())));
}

TEST(TokenTrie, MasksOfLongAnswersStayRight) {
  const auto trie = TokenTrie::Of(MadeUpVocabulary(600));
  const auto grammar = Grammar::OfAnyJsonObject();
  TokenMask mask(grammar, trie, {});
  GrammarState state(grammar);
  const auto both = [&](std::string_view text) {
    for (const char byte : text) Must(mask.Accept(static_cast<uint8_t>(byte)));
    ASSERT_TRUE(state.Advance(text));
  };
  both("{\"a\":");
  for (int i = 0; i < 3000; ++i) both("[{\"b\":");
  const auto allowed = Must(mask.Allowed());
  for (int64_t token = 0; token < trie->num_tokens(); ++token) {
    ASSERT_EQ((allowed[token / 64] >> token % 64 & 1) != 0,
              GrammarState(state).Advance(trie->bytes_of(token)));
  }
}

TEST(TokenMask, EndTokensComeWhereTheAnswerMayEnd) {
  const auto trie = TokenTrie::Of(std::vector<std::string>{"a", "b", "ab"});
  TokenMask mask(Must(Grammar::OfRegex("a+b?")), trie, {3, 200});
  EXPECT_EQ(mask.num_words(), 4);
  EXPECT_THAT(TokensIn(Must(mask.Allowed())), ElementsAre(0, 2));
  Must(mask.Accept(0));
  EXPECT_THAT(TokensIn(Must(mask.Allowed())), ElementsAre(0, 1, 2, 3, 200));
  Must(mask.Accept(1));
  EXPECT_TRUE(mask.finished());
  EXPECT_THAT(TokensIn(Must(mask.Allowed())), ElementsAre(3, 200));
  Must(mask.Accept(200));
  EXPECT_EQ(mask.Accept(3).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TokenMask, RefusesTokensThatAreNotAllowed) {
  const auto trie = TokenTrie::Of(std::vector<std::string>{"a", "b", ""});
  TokenMask mask(Must(Grammar::OfText("ab")), trie, {3});
  EXPECT_EQ(StdView(mask.Accept(1).message()), "token 1: expected one that the grammar allows");
  EXPECT_EQ(StdView(mask.Accept(2).message()), "token 2: expected a token with text");
  EXPECT_EQ(StdView(mask.Accept(3).message()), "token 3: expected that the answer may end here");
  EXPECT_EQ(StdView(mask.Accept(-1).message()), "token -1: expected a token with text");
  Must(mask.Accept(0));
  Must(mask.Accept(1));
}

TEST(TokenMask, AVocabularyWithoutANeededByteIsNamed) {
  const auto trie = TokenTrie::Of(std::vector<std::string>{"a", "b"});
  TokenMask mask(Must(Grammar::OfRegex("a[c-e]")), trie, {2});
  Must(mask.Accept(0));
  const absl::Status status = mask.Allowed().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StdView(status.message()),
            "the vocabulary: expected a token that begins with one of the bytes 'c'-'e', got none");
}

// Answers drawn from masks end, and are documents of their schemas: the other way round is in
// JsonSchema.DocumentsAreJudgedAsElsewhere and, with another validator, in check_documents.py.
TEST(TokenMask, AnswersOfAnySchemaAreJson) {
  const auto trie = TokenTrie::Of(MadeUpVocabulary(1500));
  const auto grammar = Schema(R"({"type": "array", "items": {}, "minItems": 1})");
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const auto text = Must(DrawAnswer(TokenMask(grammar, trie, {1500}), *trie, 1500, "", random));
    ASSERT_TRUE(text.has_value());
    const auto document = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(document.is_array() && !document.empty()) << *text;
  }
}

}  // namespace
}  // namespace pagefuse
