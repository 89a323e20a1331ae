// SPDX-License-Identifier: Apache-2.0
// A rewritten decoder is compared with its export before it serves a token.
#include "pagefuse/runtime/rewrite_check.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tiny_decoder.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/runtime/build_id.h"
#include "pagefuse/runtime/compare_rows.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/float_form.h"
#include "pagefuse/runtime/probe_cost.h"
#include "pagefuse/runtime/verdict_store.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Outcome = RewriteVerdict::Outcome;

TEST(CheckRewritesTest, FindsTheLogitsOfAPagedDecoderEqual) {
  const RewriteVerdict verdict = Must(CheckRewrites(TinyDecoder(), {}));
  EXPECT_EQ(verdict.outcome, Outcome::kEqual);
  EXPECT_GE(verdict.probes, 4);
  EXPECT_THAT(verdict.Text(), HasSubstr("are those of the graph as it was exported"));
}

// One probe of each comparison, whatever it takes, and the texts of the first are not run again.
TEST(CheckRewritesTest, ComparesOnceWithAndWithoutFormatsWhereThereIsNoTime) {
  EngineOptions options;
  options.kv_cache = "int8_per_token_head";
  const RewriteVerdict verdict =
      Must(CheckRewrites(TinyDecoder(), options, nullptr, {.seconds = 0}));
  EXPECT_EQ(verdict.outcome, Outcome::kEqual);
  EXPECT_EQ(verdict.probes, 2);
  EXPECT_GT(verdict.skipped, 4);
}

TEST(ProbeCostTest, CountsRunsOfOneToken) {
  const ProbeText text = {.prompt = {1, 2, 3, 4, 5, 6, 7, 8}, .following = {9, 10}};
  const double one = WorkOfText({.prompt = {1}, .following = {}}, true);
  const double eight = WorkOfText({.prompt = text.prompt, .following = {}}, true);
  EXPECT_GT(eight, one);
  EXPECT_LT(eight, 2 * one);  // all weights are read once
  EXPECT_DOUBLE_EQ(WorkOfText(text, /*keeps_past=*/true), eight + 2 * one);
  EXPECT_GT(WorkOfText(text, /*keeps_past=*/false), 3 * eight);
  const Probe batch = {.name = "", .texts = {text, text}};
  EXPECT_LT(WorkOfBatch(batch), 2 * WorkOfText(text, true));
  const Probe pieces = {.name = "", .texts = {text, text}, .piece = 4};
  EXPECT_GT(WorkOfBatch(pieces), WorkOfBatch(batch));
}

TEST(ProbeCostTest, TellsWhatMoreWillTakeByWhatHasRun) {
  ProbePace pace;
  EXPECT_EQ(pace.SecondsFor(100), 0);
  pace.Add(4, 2);
  pace.Add(6, 3);
  EXPECT_DOUBLE_EQ(pace.SecondsFor(10), 5);
  const ProbeBudget hour = {ProbeClock::now(), 3600};
  EXPECT_TRUE(hour.HasRoomFor(3000));
  EXPECT_FALSE(hour.HasRoomFor(3601));
}

TEST(CheckRewritesTest, SaysWhyNothingWasCompared) {
  const Model model = Must(ParseModel(R"(<ir_version: 10, opset_import: ["" : 18]>
g (float[B, 3] features) => (float[B, 3] logits) { logits = Relu (features) })"));
  const RewriteVerdict verdict = Must(CheckRewrites(model, {}));
  EXPECT_EQ(verdict.outcome, Outcome::kUnchecked);
  EXPECT_THAT(verdict.Text(), HasSubstr("features"));
}

// ---- Points that probes stand at ----

// A decoder whose positions index a table, with what else is computed from places and ids.
ProbePoints PointsOf(const std::string& nodes) {
  Model model = Must(ParseModel(R"(<ir_version: 10, opset_import: ["" : 18]>
g (int64[B, S] input_ids, int64[B, S] position_ids) => (float[B, S, 5] logits)
<float[5, 5] table = {1, 0, -1, 0, 2, 1, -1, 1, 0, 3, -2, 1, 0, 0, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1},
 float[9, 5] places = {1, 0, -1, 0, 2, 1, -1, 1, 0, 3, -2, 1, 0, 0, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1,
                       1, 0, -1, 0, 2, 1, -1, 1, 0, 3, -2, 1, 0, 0, 2, 1, 1, 1, 1, 1},
 int64 thirty = {30}, int64 three = {3}, float sixty = {60}> {
  rows = Gather (table, input_ids)
  placed = Gather (places, position_ids)
  logits = Add (rows, placed)
)" + nodes + "\n}"));
  Must(InferShapes(model));
  return FindProbePoints(model, Must(FindPlainInputs(*model.graph)));
}

TEST(ProbePointsTest, StandAtConstantsThatPositionsMeet) {
  const ProbePoints points = PointsOf("near = Less (position_ids, thirty)");
  for (const int64_t length : {29, 30, 31}) EXPECT_TRUE(points.lengths.contains(length)) << length;
  EXPECT_FALSE(points.ids.contains(30));
}

TEST(ProbePointsTest, StandAtConstantsThatFloatsOfPositionsMeet) {
  const ProbePoints points = PointsOf(R"(
  numbers = Cast <to = 1> (position_ids)
  near = Min (numbers, sixty))");
  EXPECT_TRUE(points.lengths.contains(60));
}

TEST(ProbePointsTest, StandAtConstantsThatIdsMeet) {
  const ProbePoints points = PointsOf("special = Equal (input_ids, three)");
  for (const int64_t id : {2, 3, 4}) EXPECT_TRUE(points.ids.contains(id)) << id;
  EXPECT_FALSE(points.lengths.contains(3));
}

TEST(ProbePointsTest, StandAtTheEndOfATableOfPlaces) {
  for (const int64_t length : {8, 9, 10}) EXPECT_TRUE(PointsOf("").lengths.contains(length));
}

TEST(ProbePointsTest, StandWhereTypesStopBeingExact) {
  EXPECT_TRUE(PointsOf("narrow = Cast <to = 10> (position_ids)").lengths.contains(2049));
}

TEST(ProbesTest, CoverEdgesAndIds) {
  const std::vector<Probe> probes =
      MakeProbes({.lengths = {30}, .ids = {3}, .positions = {}}, {16}, 8);
  std::set<size_t> lengths;
  bool pieces = false, batch = false, id = false;
  for (const Probe& probe : probes) {
    // At least one text goes on over a past.
    EXPECT_FALSE(probe.texts[0].following.empty());
    pieces = pieces || probe.piece > 0;
    batch = batch || probe.texts.size() > 1;
    for (const ProbeText& text : probe.texts) {
      lengths.insert(text.prompt.size());
      for (const int64_t token : text.prompt) EXPECT_LT(token, 8);
      id = id || (text.prompt[0] == 3 && text.following[0] == 3);
    }
  }
  EXPECT_TRUE(pieces && batch && id);
  for (const size_t length : {1, 2, 15, 16, 17, 30})
    EXPECT_TRUE(lengths.contains(length)) << length;
}

// ---- 16-bit floats ----

// The tiny decoder in float16, whose logits are rounded to quarters by what they are added to.
Model HalfDecoder() {
  Model model = TinyDecoder();
  Graph& graph = *model.graph;
  for (Value* value : graph.initializers()) {
    if (value->dtype() != DataType::kFloat) continue;
    const std::span<const float> numbers = value->initializer()->values<float>();
    Tensor half = Must(Tensor::Allocate(DataType::kFloat16, value->initializer()->dims()));
    std::ranges::transform(numbers, half.mutable_values<Float16>().begin(),
                           [](float number) { return Float16(number); });
    value->set_dtype(DataType::kFloat16);
    graph.SetInitializer(value, std::move(half));
  }
  Tensor offset = Must(Tensor::Allocate(DataType::kFloat16, {}));
  offset.mutable_values<Float16>()[0] = Float16(256.0f);
  Value* far = graph.AddValue("far");
  Value* near = graph.AddValue("near", DataType::kFloat16, graph.outputs()[0]->shape());
  Value* c = graph.AddInitializer("c", std::move(offset));
  graph.AddNode("", "Add", {graph.outputs()[0], c}, {far});
  graph.AddNode("", "Sub", {far, c}, {near});
  graph.outputs()[0]->set_dtype(DataType::kFloat16);
  graph.ReplaceOutput(0, near);
  return model;
}

RewriteVerdict VerdictUnder(const std::string& replacement, const RewriteCheckOptions& check = {}) {
  EngineOptions options;
  options.session.pipeline.rules = {
      {.path = "planted.rules.txt",
       .text = StrCat("# rule: planted\n# before: rms-norm\n"
                      "(x, c) => (y) { far = Add (x, c) y = Sub (far, c) }\n# ---- after\n"
                      "(x, c) => (y) { ",
                      replacement, " }\n")}};
  return Must(CheckRewrites(HalfDecoder(), options, nullptr, check));
}

TEST(CheckRewritesTest, TakesWhatIsNoFurtherFromFloatThanAnExportOfHalves) {
  const RewriteVerdict verdict = VerdictUnder("y = Identity (x)");
  EXPECT_EQ(verdict.outcome, Outcome::kEqual) << verdict.Text();
  // By the tolerance alone it is not.
  EXPECT_TRUE(VerdictUnder("y = Identity (x)", {.tolerance = 0.01}).differs());
}

TEST(CheckRewritesTest, TakesNothingThatIsFurtherFromFloat) {
  const char* const wrongs[] = {"y = Neg (x)",
                                "part = Div (x, c) more = Add (x, part) y = Add (more, part)"};
  for (const char* wrong : wrongs) {
    const RewriteVerdict verdict = VerdictUnder(wrong);
    EXPECT_TRUE(verdict.differs()) << wrong << ": " << verdict.Text();
  }
}

TEST(InFloatTest, HasNoHalfAnywhere) {
  Model model = Must(ParseModel(R"(<ir_version: 10, opset_import: ["" : 18]>
g (float16[N] x) => (bfloat16[N] y) <float16 one = {15360}> {
  c = Constant <value = float16[1] {16384}> ()
  a = Add (x, one)
  b = Mul (a, c)
  y = Cast <to = 16> (b) })"));
  Model wide = Must(InFloat(model));
  Must(InferShapes(wide));
  for (const Value* value : wide.graph->values()) {
    EXPECT_EQ(value->dtype(), DataType::kFloat) << value->name();
  }
  EXPECT_EQ(wide.graph->FindValue("one")->initializer()->values<float>()[0], 1);
  EXPECT_EQ(model.graph->inputs()[0]->dtype(), DataType::kFloat16);
}

// ---- Rows ----

TEST(RowsDifferenceTest, TakesRoundingAndNamesTheFirstLogit) {
  const LogitRows rows = {{1, 2, 3}, {4, 5, 6}};
  const RowTolerance tolerance{.largest = 1e-3};
  EXPECT_THAT(RowsDifference(rows, {{1, 2.001f, 3}, {4, 5, 6}}, tolerance), IsEmpty());
  EXPECT_EQ(RowsDifference(rows, {{1, 2, 3}, {4, 5.5f, 6}}, tolerance),
            "behind 1 more token: logit 1: expected 5, got 5.5");
  EXPECT_THAT(RowsDifference(rows, {{1, 2, 3}}, tolerance), HasSubstr("expected 2 rows"));
}

TEST(SquaredDistanceTest, IsInfiniteWhereOneRowHasNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(SquaredDistance({{1, 2}, {3, nan}}, {{1, 4}, {4, nan}}), 5);
  EXPECT_FALSE(std::isfinite(SquaredDistance({{1, nan}}, {{1, 4}})));
  EXPECT_FALSE(std::isfinite(SquaredDistance({{1}}, {{1}, {2}})));
}

TEST(RowsDifferenceTest, TakesNoOtherChoiceBehindAnOffset) {
  // Logits far from 0, of which a part in a thousand is more than what tells them apart.
  const LogitRows rows = {{1000, 1000.2f, 999}};
  EXPECT_EQ(RowsDifference(rows, {{1000.3f, 1000.2f, 999}}, {.largest = 1e-3}),
            "expected token 1, got 0");
}

// Between logits that 16-bit floats cannot tell apart, none is chosen.
TEST(RowsDifferenceTest, TakesEitherOfTwoThatRoundingMayExchange) {
  const LogitRows rows = {{100, 99, 90}};
  constexpr double kBfloat16 = 0.03;
  EXPECT_THAT(RowsDifference(rows, {{99, 100, 90}}, {.largest = kBfloat16}), IsEmpty());
  EXPECT_EQ(RowsDifference({{100, 96, 90}}, {{97.5f, 98, 90}}, {.largest = kBfloat16}),
            "expected token 0, got 1");
}

TEST(RowsDifferenceTest, TakesNanForNanAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const RowTolerance tolerance{.largest = 1e-3};
  EXPECT_THAT(RowsDifference({{nan, 1}}, {{nan, 1}}, tolerance), IsEmpty());
  EXPECT_THAT(RowsDifference({{infinity, 1}}, {{infinity, 1}}, tolerance), IsEmpty());
  EXPECT_THAT(RowsDifference({{nan, 1}}, {{2, 1}}, tolerance), HasSubstr("expected nan"));
  EXPECT_THAT(RowsDifference({{2, 1}}, {{nan, 1}}, tolerance), HasSubstr("got nan"));
  EXPECT_THAT(RowsDifference({{infinity, 1}}, {{-infinity, 1}}, tolerance), HasSubstr("got -inf"));
}

TEST(RowsDifferenceTest, MeasuresCodesAgainstTheSpread) {
  const LogitRows rows = {{101, 102, 103}};
  EXPECT_THAT(RowsDifference(rows, {{101.2f, 102, 103}}, {.l2 = 0.2}), IsEmpty());
  EXPECT_THAT(RowsDifference(rows, {{103, 102, 101}}, {.l2 = 0.2}), HasSubstr("of their spread"));
}

// ---- Verdicts that are kept ----

class VerdictStoreTest : public testing::Test {
 protected:
  VerdictStoreTest() { std::filesystem::remove_all(folder_); }
  ~VerdictStoreTest() override { std::filesystem::remove_all(folder_); }

  std::string OnlyFile() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) return entry.path();
    return "";
  }

  const std::string folder_ = testing::TempDir() + "verdicts";
};

RewriteVerdict Equal() {
  RewriteVerdict verdict;
  verdict.outcome = Outcome::kEqual;
  return verdict;
}

TEST_F(VerdictStoreTest, KeepsNothingWhereNothingWasCompared) {
  const VerdictStore store(folder_, TinyDecoder(), {});
  store.Keep({});
  EXPECT_FALSE(store.Find());
}

TEST_F(VerdictStoreTest, ABuildHasAName) { EXPECT_GE(BuildId().size(), 16); }

TEST_F(VerdictStoreTest, KeepsAVerdict) {
  const VerdictStore store(folder_, TinyDecoder(), {});
  EXPECT_FALSE(store.Find());
  RewriteVerdict verdict;
  verdict.outcome = Outcome::kMended;
  verdict.left_out = {"some-rule"};
  verdict.reason = "some \"reason\"";
  verdict.probes = 12;
  store.Keep(verdict);
  const auto found = store.Find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::kMended);
  EXPECT_THAT(found->left_out, UnorderedElementsAre("some-rule"));
  EXPECT_EQ(found->Text(), verdict.Text());
  EXPECT_EQ(found->probes, 12);
}

TEST_F(VerdictStoreTest, TellsOptionsAndModelsApart) {
  VerdictStore(folder_, TinyDecoder(), {}).Keep(Equal());
  EXPECT_TRUE(VerdictStore(folder_, TinyDecoder(), {}).Find());
  EXPECT_FALSE(VerdictStore(folder_, TinyDecoder(), {.kv_cache = "bf16"}).Find());
  Model other = TinyDecoder();
  Value* weight = other.graph->initializers().back();
  Tensor changed = Must(weight->initializer()->Clone());
  static_cast<uint8_t*>(changed.mutable_data())[0] ^= 1;
  other.graph->SetInitializer(weight, changed);
  EXPECT_FALSE(VerdictStore(folder_, other, {}).Find());
}

TEST_F(VerdictStoreTest, IgnoresWhatIsBroken) {
  const VerdictStore store(folder_, TinyDecoder(), {});
  store.Keep(Equal());
  ASSERT_TRUE(store.Find());
  for (const char* text : {"", "{", "[]", "{\"outcome\": 3}", "{\"outcome\": \"equal\"}"}) {
    std::ofstream(OnlyFile()) << text;
    EXPECT_FALSE(store.Find()) << text;
  }
}

TEST_F(VerdictStoreTest, IsReadInsteadOfASecondComparison) {
  const DecoderOptions how{.verdicts = folder_};
  const auto load = [] { return TinyDecoder(); };
  const auto first = Must(Decoder::Create(load, {}, how));
  ASSERT_TRUE(first->verdict());
  EXPECT_EQ(first->verdict()->outcome, Outcome::kEqual);
  // What is found there is believed.
  RewriteVerdict kept = *first->verdict();
  kept.probes = 12345;
  VerdictStore(folder_, TinyDecoder(), {}).Keep(kept);
  EXPECT_EQ(Must(Decoder::Create(load, {}, how))->verdict()->probes, 12345);
  const DecoderOptions always{.check_paging = CheckPaging::kAlways, .verdicts = folder_};
  EXPECT_NE(Must(Decoder::Create(load, {}, always))->verdict()->probes, 12345);
  const DecoderOptions never{.check_paging = CheckPaging::kNever, .verdicts = folder_};
  EXPECT_FALSE(Must(Decoder::Create(load, {}, never))->verdict());
}

TEST(RunKey, TellsModelsAndWhatPassesMakeOfThemApart) {
  const std::string key = RunKey(TinyDecoder(), {});
  EXPECT_EQ(key, RunKey(TinyDecoder(), {}));
  EXPECT_NE(key, RunKey(TinyDecoder(/*window=*/4), {}));
  Model other = TinyDecoder();
  for (const Value* value : other.graph->initializers()) {
    if (value->initializer()->dtype() != DataType::kFloat) continue;
    auto* const bytes = static_cast<char*>(const_cast<void*>(value->initializer()->data()));
    bytes[0] ^= 1;
    break;
  }
  EXPECT_NE(key, RunKey(other, {}));
  EXPECT_NE(key, RunKey(TinyDecoder(), {.kv_cache = "fp8_per_token_head"}));
}

}  // namespace
}  // namespace pagefuse
