// SPDX-License-Identifier: Apache-2.0
// The differential fuzzer: its decoders run, its plans repeat themselves, and its oracle sees
// what is wrong.
#include <memory>

#include "decoders/compare_outputs.h"
#include "decoders/decoder_case.h"
#include "decoders/decoder_feeds.h"
#include "decoders/judge.h"
#include "decoders/plan.h"
#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse::fuzz {
namespace {

using testing::HasSubstr;

Plan PlanOf(std::string_view choices) { return Must(Plan::Parse(choices)); }

DecoderCase Decoder(std::string_view choices) {
  auto decoder = ParseDecoderCase(WriteDecoder(PlanOf(choices)));
  EXPECT_TRUE(decoder.ok()) << choices << ": " << decoder.status();
  return *std::move(decoder);
}

TEST(Plan, ReadsWhatItPrints) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const std::string text = Plan::Random(seed).ToString();
    EXPECT_EQ(PlanOf(text).ToString(), text);
    EXPECT_EQ(Plan::Random(seed).ToString(), text);
  }
}

TEST(Plan, NamesWhatTheGrammarDoesNotHave) {
  EXPECT_EQ(Plan::Parse("colour=red").status().message(), "there is no feature \"colour\"");
  EXPECT_EQ(Plan::Parse("layers=7").status().message(), "\"layers\" has no option \"7\"");
  EXPECT_EQ(Plan::Parse("seed=x").status().message(), "seed: expected a number, got \"x\"");
}

TEST(Plan, ContainsWhatItIsLeftWithOut) {
  const Plan plan = PlanOf("seed=3 layers=2 heads=4");
  int plainer = 0;
  for (size_t feature = 0; feature < Grammar().size(); ++feature) {
    const auto without = plan.Without(feature);
    if (!without) continue;
    ++plainer;
    EXPECT_TRUE(plan.Contains(*without));
    EXPECT_FALSE(without->Contains(plan));
  }
  EXPECT_EQ(plainer, 2);
}

// A full forward pass without passes, of a decoder with nothing special but this.
void ExpectToRun(const std::string& choices) {
  const DecoderCase decoder = Decoder(choices);
  const int64_t length = DeclaredSizes(decoder, {.batch = 1, .length = 4, .past = 0}).length;
  const auto feeds = FullForward(decoder, std::vector<int64_t>(static_cast<size_t>(length), 7));
  ASSERT_TRUE(feeds.ok()) << choices << ": " << feeds.status();
  const auto outputs = EvaluateModel(decoder.model, *feeds, {.force_kernel = "reference"});
  EXPECT_TRUE(outputs.ok()) << choices << ": " << outputs.status();
}

TEST(Grammar, EveryOptionRuns) {
  for (const Feature& feature : Grammar()) {
    for (const Option& option : feature.options) {
      const std::string choice = StrCat(feature.name, "=", option.name);
      ExpectToRun(StrCat("cache=past position_use=rotary heads=2 kv_heads=1 ", choice));
    }
  }
}

TEST(Judge, PagesAPlainDecoder) {
  const Verdict verdict = JudgeDecoder(Decoder("positions=range position_use=learned layers=2"));
  EXPECT_EQ(verdict.judgement, Judgement::kPaged) << verdict.reason;
}

TEST(Judge, SaysWhyAMixIsRefused) {
  const Verdict verdict = JudgeDecoder(Decoder("mix_between=mean_of_tokens"));
  EXPECT_EQ(verdict.judgement, Judgement::kRefused);
  EXPECT_THAT(verdict.reason, HasSubstr("(ReduceMean) does not work on each token alone"));
}

TEST(Judge, FindsOtherLogits) {
  DecoderCase decoder = Decoder("extra_output=second_head");
  decoder.logits = "aside";  // not what is generated from
  const Verdict verdict = JudgeDecoder(decoder);
  EXPECT_EQ(verdict.judgement, Judgement::kFinding);
  EXPECT_EQ(verdict.kind, "paged: other logits");
}

TEST(Judge, FindsARefusalOfWhatWasPaged) {
  DecoderCase decoder = Decoder("mix_between=mean_of_tokens");
  decoder.paged = true;
  EXPECT_EQ(JudgeDecoder(decoder).kind, "paged: refused although it can be");
}

TEST(Judge, LeavesNamesAndNumbersOutOfKinds) {
  EXPECT_EQ(ReasonKind("node \"v12\" (Add): axis 13 of \"x\" [1, s] is 7"),
            "node \"\" (Add): axis N of \"\" [] is N");
}

TEST(CompareRows, SeesOtherNumbersAndNoNumbers) {
  const std::vector<float> expected = {1, NAN, 3};
  EXPECT_EQ(CompareRows(expected, std::vector<float>{1, 2, 3}), "");
  EXPECT_EQ(CompareRows(expected, std::vector<float>{1.1F, 2, 3}), "column 0: expected 1, got 1.1");
  EXPECT_EQ(CompareRows(expected, std::vector<float>{1, 2, NAN}), "column 2: expected 3, got nan");
  EXPECT_EQ(CompareRows(expected, std::vector<float>{1}), "expected 3 columns, got 1");
}

// Two sequences of two tokens; the second sequence's first token is padding.
TEST(CompareOutputs, DoesNotCompareRowsOfPadding) {
  Model model;
  model.graph = std::make_shared<Graph>();
  model.graph->AddOutput(model.graph->AddInput("rows", DataType::kFloat, Shape{2, 2, 1}));
  const RandomStep step = {.sizes = {.batch = 2, .length = 2, .past = 0},
                           .feeds = {},
                           .kept = {true, true, false, true},
                           .padded = true,
                           .repeated = ""};
  const Tensor expected = Tensor::Of<float>({2, 2, 1}, {1, 2, 3, 4});
  EXPECT_TRUE(
      CompareOutputs(step, model, {expected}, {Tensor::Of<float>({2, 2, 1}, {1, 2, 9, 4})}).ok());
  const auto differs =
      CompareOutputs(step, model, {expected}, {Tensor::Of<float>({2, 2, 1}, {1, 2, 9, 9})});
  EXPECT_EQ(
      differs.message(),
      "output \"rows\" of a step of 2 x 2 tokens after 0: row 3, column 0: expected 4, got 9");
}

}  // namespace
}  // namespace pagefuse::fuzz
