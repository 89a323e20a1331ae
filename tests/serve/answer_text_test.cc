// SPDX-License-Identifier: Apache-2.0
// From tokens to the pieces of an answer.
#include "pagefuse/serve/answer_text.h"

#include <string>
#include <vector>

#include "must.h"
#include "nlohmann/json.hpp"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse::serve {
namespace {

// A token for each printable character of ASCII and for the line break, its code; these special ones; and a mark that is not special.
enum SpecialToken : int64_t {
  kEnd = 0,
  kOdd = 1,
  kCallOpens = 2,
  kCallCloses = 3,
  kThinkCloses = 4
};

std::shared_ptr<const Tokenizer> MarkedTokenizer() {
  nlohmann::ordered_json vocab, added = nlohmann::ordered_json::array();
  const auto add = [&](int64_t id, const char* text, bool special) {
    vocab[text] = id;
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  };
  add(kEnd, "<eos>", true);
  add(kOdd, "<odd>", true);
  add(kCallOpens, "<tool_call>", true);
  add(kCallCloses, "</tool_call>", true);
  add(kThinkCloses, "</think>", false);
  vocab["\u010A"] = 10;
  vocab["\u0120"] = 32;
  for (int c = 33; c < 127; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
  const nlohmann::ordered_json bytes = {{"type", "ByteLevel"},
                                        {"add_prefix_space", false},
                                        {"trim_offsets", true},
                                        {"use_regex", false}};
  const nlohmann::ordered_json file = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::ordered_json::array()}}}};
  return Must(Tokenizer::Parse(file.dump()));
}

AnswerReading Hermes(bool begins_in_reasoning = false) {
  const auto tokenizer = MarkedTokenizer();
  AnswerReading reading;
  reading.format = {.reasoning = &ReasoningFormats().back(),
                    .tools = &kHermesTools,
                    .template_takes_tools = true};
  reading.marks = MarkTokens(reading.format, *tokenizer);
  reading.parses = reading.parses_calls = true;
  reading.begins_in_reasoning = begins_in_reasoning;
  reading.tools = {"f", "g"};
  return reading;
}

// "^" and "$" stand for the marks of calls, "~" for the one of reasoning, "@" for a special token that is none, "#" for the end.
std::vector<int64_t> Tokens(std::string_view text) {
  std::vector<int64_t> tokens;
  for (const char c : text) {
    const size_t special = std::string_view("#@^$~").find(c);
    tokens.push_back(special == std::string_view::npos ? c : static_cast<int64_t>(special));
  }
  return tokens;
}

struct Whole {
  std::string content, reasoning, calls;
  std::vector<std::string> pieces;  // of content
  std::string stop;
};

void TakeDelta(const AnswerDelta& delta, Whole& whole) {
  whole.content += delta.content;
  whole.reasoning += delta.reasoning;
  if (!delta.content.empty()) whole.pieces.push_back(delta.content);
  for (const CallDelta& call : delta.calls) {
    if (call.begins) StrAppend(&whole.calls, " ", call.index, call.name);
    whole.calls += call.arguments;
  }
}

Whole Read(std::string_view text, const AnswerReading& reading,
           std::vector<std::string> stops = {}) {
  AnswerText answer(MarkedTokenizer(), reading, std::move(stops));
  Whole whole;
  for (const int64_t token : Tokens(text)) {
    TakeDelta(answer.Add(token, nullptr, token == kEnd), whole);
    if (answer.stopped()) break;
  }
  TakeDelta(answer.Finish(), whole);
  whole.stop = std::string(answer.stop());
  return whole;
}

TEST(AnswerText, IsReasoningContentAndCalls) {
  const Whole whole = Read(
      "Let me.~\n\nWell,\n^{\"name\": \"f\", \"arguments\": {\"a\": \"}$\"}}$\n^{\"name\": \"g\", \"arguments\": {}}$#",
      Hermes(/*begins_in_reasoning=*/true));
  EXPECT_EQ(whole.reasoning, "Let me.");
  EXPECT_EQ(whole.content, "Well,");
  EXPECT_EQ(whole.calls, " 0f{\"a\": \"}</tool_call>\"} 1g{}");
}

TEST(AnswerText, TellsWhatComesNext) {
  AnswerText answer(MarkedTokenizer(), Hermes(/*begins_in_reasoning=*/true), {});
  EXPECT_TRUE(answer.in_reasoning());
  answer.Add('a', nullptr, false);
  EXPECT_TRUE(answer.in_reasoning());
  answer.Add(kThinkCloses, nullptr, false);
  answer.Add('b', nullptr, false);
  EXPECT_FALSE(answer.in_reasoning());
  EXPECT_EQ(answer.calls(), 0);
}

TEST(AnswerText, CallsAreContentWhereThereAreNone) {
  AnswerReading reading = Hermes();
  reading.tools = {"g"};
  const std::string call = "{\"name\": \"f\", \"arguments\": {}}";
  EXPECT_EQ(Read(StrCat("^", call, "$#"), reading).content,
            StrCat("<tool_call>", call, "</tool_call>"));
  reading.parses_calls = false;
  EXPECT_EQ(Read("^{}$#", reading).content, "<tool_call>{}</tool_call>");
  EXPECT_EQ(Read("^{}$#", reading).calls, "");
}

TEST(AnswerText, SpecialTokensAreHiddenUnlessTheyAreMarks) {
  AnswerReading reading = Hermes();
  EXPECT_EQ(Read("a@b^c@d#", reading).content, "ab<tool_call>cd");
  reading.keeps_special = true;
  EXPECT_EQ(Read("a@b#", reading).content, "a<odd>b");
  AnswerReading plain;
  EXPECT_EQ(Read("a@b^c~d#", plain).content, "abc</think>d");
  plain.keeps_special = true;
  EXPECT_EQ(Read("a@b^c#", plain).content, "a<odd>b<tool_call>c");
}

TEST(AnswerText, StopsAreNotTold) {
  const Whole whole = Read("abcENDdef#", {}, {"END", "zz"});
  EXPECT_EQ(whole.content, "abc");
  EXPECT_EQ(whole.stop, "END");
  // What may begin one is held back until it does not.
  EXPECT_THAT(Read("abENxEN#", {}, {"END"}).pieces, testing::ElementsAre("a", "b", "ENx", "EN"));
  EXPECT_EQ(Read("abc#", {}, {"END"}).stop, "");
}

TEST(AnswerText, StopsWithinReasoningAndCalls) {
  const Whole thought = Read("Let me STOP~yes#", Hermes(/*begins_in_reasoning=*/true), {"STOP"});
  EXPECT_EQ(thought.content, "");
  EXPECT_EQ(thought.reasoning, "Let me ");
  EXPECT_EQ(thought.stop, "STOP");
  const Whole called =
      Read("^{\"name\": \"f\", \"arguments\": {\"a\": \"bSTOP\"}}$#", Hermes(), {"STOP"});
  EXPECT_EQ(called.calls, " 0f{\"a\": \"b");
  EXPECT_EQ(called.content, "");
}

TEST(AnswerText, TellsTokensOnlyIfAsked) {
  AnswerReading reading;
  EXPECT_TRUE(AnswerText(MarkedTokenizer(), reading, {}).Add('a', nullptr, false).tokens.empty());
  reading.tells_tokens = true;
  AnswerText answer(MarkedTokenizer(), reading, {});
  const AnswerDelta odd = answer.Add(kOdd, nullptr, false);
  ASSERT_EQ(odd.tokens.size(), 1u);
  EXPECT_EQ(odd.tokens[0].token, kOdd);
  EXPECT_EQ(odd.content, "");
}

}  // namespace
}  // namespace pagefuse::serve
