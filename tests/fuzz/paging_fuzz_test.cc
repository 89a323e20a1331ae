// SPDX-License-Identifier: Apache-2.0
// The fuzzer of paging: its changes have places, its cases repeat themselves, its oracle runs what
// was exported, and what pages unchanged goes on doing so.
#include <algorithm>
#include <limits>
#include <set>

#include "decoders/judge_in_child.h"
#include "must.h"
#include "paging/as_exported.h"
#include "paging/paging_case.h"
#include "paging/rounding.h"
#include "paging/shrink.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

using ::testing::HasSubstr;

Subject SubjectOf(std::string_view choices) { return MakeSubject(Must(Plan::Parse(choices))); }

std::vector<std::string> OpsOf(const DecoderCase& decoder) {
  std::vector<std::string> ops;
  for (const auto& node : decoder.model.graph->nodes()) ops.push_back(node->op_type());
  return ops;
}

// In most decoders there is no place for most changes: none has every op. Some are for ops of
// exports alone.
TEST(Change, EachHasAPlaceInSomeDecoder) {
  constexpr uint32_t kDecoders = 60;
  std::vector<Subject> subjects;
  for (const char* choices :
       {"cache=past layers=2 heads=2 attention=gqa_rotary", "cache=past attention=op4 heads=2",
        "position_use=rotary_op_ids causal=trilu positions=cumsum_mask extra_output=argmax",
        "position_use=rotary_op_ids causal=positions padding=keys layers=2"}) {
    subjects.push_back(SubjectOf(choices));
  }
  for (uint64_t seed = 1; seed <= kDecoders; ++seed) subjects.push_back(Subjects({}).Pick(seed));
  const std::set<std::string> of_exports = {"rounding left out", "largest of TopK",
                                            "sorted of TopK", "fmod of Mod",
                                            "keepdims of ReduceMax"};
  for (const Change& change : AllChanges()) {
    if (of_exports.contains(change.name)) continue;
    bool placed = false;
    for (const Subject& subject : subjects) {
      const auto changed = MakeChange(subject.decoder, change, 1);
      placed =
          changed.ok() && PrintDecoderCase(changed->decoder) != PrintDecoderCase(subject.decoder);
      if (placed) break;
    }
    EXPECT_TRUE(placed) << change.name;
  }
}

TEST(Change, HasANameOfItsOwn) {
  std::set<std::string> names;
  for (const Change& change : AllChanges()) {
    EXPECT_TRUE(names.insert(change.name).second) << change.name;
    EXPECT_EQ(FindChange(change.name), &change);
  }
}

TEST(Change, LeavesNothingOfWhatWasInferred) {
  const Subject subject = SubjectOf("layers=2");
  const auto changed =
      Must(MakeChange(subject.decoder, *FindChange("floats through float16"), 1)).decoder;
  const Graph& graph = *changed.model.graph;
  for (const Value* value : graph.values()) {
    if (value->is_input() || value->is_output() || value->initializer()) continue;
    EXPECT_FALSE(value->shape()) << value->name();
  }
}

TEST(Change, ExchangesPresents) {
  const Subject subject = SubjectOf("cache=past");
  const auto changed =
      Must(MakeChange(subject.decoder, *FindChange("presents exchanged"), 1)).decoder;
  const Value* before = subject.decoder.model.graph->FindValue("present_0_key");
  const Value* after = changed.model.graph->FindValue("present_0_value");
  EXPECT_EQ(before->producer()->input(0)->name(), after->producer()->input(0)->name());
}

TEST(PagingCase, FollowsFromItsSeed) {
  const Subjects subjects({SourcePath("tests/data/decoders")});
  std::set<std::string> cases;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto made = MakePagingCase(subjects, seed, /*unchanged=*/false);
    if (!made.ok()) continue;
    const std::string text = PrintDecoderCase(made->decoder);
    EXPECT_EQ(text, PrintDecoderCase(Must(MakePagingCase(subjects, seed, false)).decoder));
    cases.insert(text);
  }
  EXPECT_GE(cases.size(), 35);
}

TEST(DecoderCase, ReadsWhatItPrints) {
  const Subject subject = SubjectOf("cache=past layers=2 names=neutral");
  const std::string text = PrintDecoderCase(subject.decoder);
  const DecoderCase again = Must(ParseDecoderCase(text));
  EXPECT_EQ(PrintDecoderCase(again), text);
  EXPECT_EQ(again.feeds, subject.decoder.feeds);
  EXPECT_EQ(again.presents, subject.decoder.presents);
}

// Positions that begin at 0 in every step: a full pass is not what a token a step over the past is.
TEST(AsExported, RunsOverThePastOfTheGraph) {
  const Subject subject = SubjectOf("cache=past positions=restart position_use=learned");
  auto exported = Must(AsExported::Create(subject.decoder));
  const Generation over_past = Must(exported.Generate({3, 1, 4, 1, 5}, 3));
  DecoderCase without = Copy(subject.decoder);
  without.presents.clear();
  auto full = Must(AsExported::Create(without));
  const auto rows = Must(full.Replay(over_past));
  EXPECT_EQ(CompareLogits(rows[0], over_past.logits[0], kFloatRounding), "");
  EXPECT_NE(CompareLogits(rows[1], over_past.logits[1], kFloatRounding), "");
}

TEST(AsExported, GivesWhatFullPassesGiveWherePositionsGoOn) {
  const Subject subject = SubjectOf("cache=past positions=range position_use=rotary layers=2");
  auto exported = Must(AsExported::Create(subject.decoder));
  const Generation over_past = Must(exported.Generate({3, 1, 4, 1, 5}, 4));
  DecoderCase without = Copy(subject.decoder);
  without.presents.clear();
  auto full = Must(AsExported::Create(without));
  const auto rows = Must(full.Replay(over_past));
  for (size_t row = 0; row < rows.size(); ++row) {
    EXPECT_EQ(CompareLogits(rows[row], over_past.logits[row], kFloatRounding), "");
  }
}

TEST(CompareLogits, TakesNothingForANumber) {
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> expected = {1, nothing, 3};
  EXPECT_EQ(CompareLogits(expected, expected, 0.001F), "");
  EXPECT_EQ(CompareLogits(expected, std::vector<float>{1, 2, 3}, 0.001F),
            "column 1: expected nan, got 2");
  EXPECT_EQ(CompareLogits(expected, std::vector<float>{1, nothing, nothing}, 0.001F),
            "column 2: expected 3, got nan");
  EXPECT_EQ(CompareLogits(expected, std::vector<float>{1.002F, nothing, 3}, 0.001F), "");
  EXPECT_EQ(CompareLogits(expected, std::vector<float>{1.004F, nothing, 3}, 0.001F),
            "column 0: expected 1, got 1.004");
}

float RoundingOfChoices(std::string_view choices) {
  const Subject subject = SubjectOf(choices);
  auto exported = Must(AsExported::Create(subject.decoder));
  return RoundingOf(subject.decoder, Must(exported.Generate({1, 2, 3}, 2)));
}

TEST(Rounding, IsSmallInDecoders) {
  EXPECT_LT(RoundingOfChoices("layers=2 norm=rms"), kFloatRounding);
  EXPECT_GT(RoundingOfChoices("layers=2 norm=rms"), 0);
}

TEST(Rounding, FollowsFromTheTypesOfTheGraph) {
  const Subject subject = SubjectOf("layers=1");
  EXPECT_EQ(RoundingOfTypes(subject.decoder.model), kFloatRounding);
  for (const auto& [change, rounding] :
       {std::pair{"floats through float16", 4e-3F}, {"floats through bfloat16", 3e-2F}}) {
    const auto changed = Must(MakeChange(subject.decoder, *FindChange(change), 1));
    EXPECT_EQ(RoundingOfTypes(Must(AsExported::Create(changed.decoder)).model()), rounding);
  }
}

// Numbers that lie on the edge between two integers.
TEST(Rounding, IsLargeWhereABitDecides) {
  DecoderCase decoder = SubjectOf("layers=1").decoder;
  Graph& graph = *decoder.model.graph;
  Node& first = *graph.nodes().front();
  ASSERT_EQ(first.op_type(), "Gather");
  std::vector<float> whole(30 * 8);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i % 7) - 3;
  Value* table = graph.AddInitializer("whole", Tensor::Of<float>({30, 8}, whole));
  const std::vector<Use> readers = first.output(0)->uses();
  first.SetInput(0, table);
  Value* floored = graph.AddValue("floored", DataType::kFloat);
  graph.AddNode("", "Floor", {first.output(0)}, {floored}, std::next(graph.nodes().begin())->get());
  for (const Use& use : readers) use.node->SetInput(use.index, floored);
  auto exported = Must(AsExported::Create(decoder));
  EXPECT_GT(RoundingOf(decoder, Must(exported.Generate({1, 2, 3}, 2))), 0.1F);
}

TEST(JudgePaging, FindsOtherLogits) {
  Subject subject = SubjectOf("cache=past extra_output=second_head");
  subject.decoder.logits = "aside";  // not what is generated from
  const Verdict verdict = JudgePaging(subject.decoder, RandomRun(1, subject.vocabulary));
  EXPECT_EQ(verdict.judgement, Judgement::kFinding);
  EXPECT_EQ(verdict.kind, "other tokens");
  EXPECT_THAT(verdict.reason, HasSubstr("as exported ["));
}

TEST(JudgePaging, SaysWhyAMixIsRefused) {
  const Subject subject = SubjectOf("mix_between=mean_of_tokens");
  const Verdict verdict = JudgePaging(subject.decoder, RandomRun(1, subject.vocabulary));
  EXPECT_EQ(verdict.judgement, Judgement::kRefused);
  EXPECT_THAT(verdict.reason, HasSubstr("(ReduceMean) does not work on each token alone"));
}

TEST(JudgePaging, LeavesOutWhatDoesNotRun) {
  DecoderCase decoder = SubjectOf("layers=1").decoder;
  Node& first = *decoder.model.graph->nodes().front();
  first.SetInput(1, decoder.model.graph->AddInitializer("far", Tensor::Of<int64_t>({1, 1}, {99})));
  EXPECT_EQ(JudgePaging(decoder, RandomRun(1, 30)).judgement, Judgement::kInvalid);
}

// A case "fails" while it has a Tanh and is changed: of a plan of many features little is left.
TEST(Shrink, KeepsWhatFails) {
  PagingCase made;
  made.subject = SubjectOf("layers=2 heads=2 softcap=yes norm=rms mlp=gated positions=range");
  made.run = RandomRun(8, 30);
  for (const char* name : {"floats through float16", "integers through int32"}) {
    made.changes.push_back({FindChange(name), 1});
  }
  made.decoder = Must(MakeChanges(made.subject.decoder, made.changes)).decoder;
  const PagingJudge judge = [](const DecoderCase& decoder, const PagingRun&) {
    const std::vector<std::string> ops = OpsOf(decoder);
    const bool fails = std::ranges::count(ops, "Tanh") > 0 && std::ranges::count(ops, "Cast") > 0;
    return Verdict{fails ? Judgement::kFinding : Judgement::kPaged, "has a Tanh", ""};
  };
  const size_t before = OpsOf(made.decoder).size();
  const Verdict verdict = judge(made.decoder, made.run);
  ASSERT_EQ(verdict.judgement, Judgement::kFinding);
  const ShrunkCase shrunk = Shrink(std::move(made), verdict, judge);
  EXPECT_EQ(judge(shrunk.made.decoder, shrunk.made.run).judgement, Judgement::kFinding);
  EXPECT_LE(shrunk.made.changes.size(), 1);
  EXPECT_EQ(shrunk.made.subject.plan->Choices(), "softcap=yes");
  EXPECT_LT(OpsOf(shrunk.made.decoder).size(), before / 3);
  EXPECT_EQ(shrunk.made.run.prompts.size(), 1);
}

// By seed, from 1 on: whether the decoder pages, and then gives what it gives as it was exported. Those whose inputs are called
// by names of other roles, as token ids position_ids, may be refused.
constexpr std::string_view kPages =
    "11111011100001111101110011101101100110111001111011"
    "11110100110011110111010010100110110101110000110101"
    "10111010111111101011111010100001001011010101001101"
    "10110101001111111010111111101110110101101010111101";

TEST(Unchanged, PagesAsOftenAsBefore) {
  Progress& progress = SharedProgress();
  const Subjects subjects({});
  const auto judge = [&](uint64_t seed) {
    return Judge(Must(MakePagingCase(subjects, seed, /*unchanged=*/true)));
  };
  const auto seeds = JudgeSeeds(
      progress, {1, kPages.size() + 1}, judge, [] { return true; }, PagingLimits());
  ASSERT_EQ(seeds.verdicts.size(), kPages.size());
  for (const auto& [seed, verdict] : seeds.verdicts) {
    EXPECT_NE(verdict.judgement, Judgement::kFinding) << seed << ": " << verdict.reason;
    if (kPages[seed - 1] == '0') continue;
    EXPECT_EQ(verdict.judgement, Judgement::kPaged) << seed << ": " << verdict.reason;
  }
}

TEST(Unchanged, DecodersInFilesPage) {
  const Subjects subjects({SourcePath("tests/data/decoders")});
  EXPECT_GE(subjects.files().size(), 7);
  for (const std::string& file : subjects.files()) {
    const DecoderCase decoder = Must(ReadDecoder(file));
    const Verdict verdict = JudgePaging(decoder, RandomRun(3, VocabularyOf(decoder)));
    EXPECT_EQ(verdict.judgement, Judgement::kPaged) << file << ": " << verdict.reason;
  }
}

}  // namespace
}  // namespace pagefuse::fuzz
