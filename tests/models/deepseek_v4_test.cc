// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4 exports against the reference: windows and compressed rows, unfused and paged.
#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/models/chosen_places.h"
#include "tests/models/model_data.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;  // of logits of size 3 to 9, float32

Model CacheLess() { return LoadBundled("deepseek_v4_A18"); }

bool AttendsToKeys(const Node& node) {
  const auto& shape = node.Is("Softmax") ? node.input(0)->shape() : std::nullopt;
  return shape && !shape->back(0).is_constant();
}

TEST(DeepseekV4, RecognisedGraphReproducesEveryDataSet) {
  Model model = CacheLess();
  PipelineOptions options;
  options.page = false;
  auto report = RunPipeline(model, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->counts["rope-by-element"], 19);
  EXPECT_EQ(report->counts["window-compress"], 5);    // 2 with an indexer, 1 without
  EXPECT_EQ(report->counts["hyper-connections"], 8);  // 2 a layer
  EXPECT_EQ(report->counts["fuse-sink-attention"], 4);
  EXPECT_EQ(report->counts["gated-mlp-limit"], 4);
  int nodes = 0;
  for (const auto& node : model.graph->nodes()) {
    ++nodes;
    EXPECT_FALSE(node->Is("ScatterND") || AttendsToKeys(*node)) << node->Description();
  }
  EXPECT_LT(nodes, 600);
  SessionOptions session_options;
  session_options.optimise = false;
  const auto session = Session::Create(std::move(model), session_options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_EQ(CountDataSets("deepseek_v4_A18"), 3);
  for (int i = 0; i < 3; ++i) {
    const DataSet data = LoadDataSet("deepseek_v4_A18", i);
    const auto outputs = (*session)->Run(data.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_LE(
        MaxDifference((*outputs)[0].values<float>(), data.outputs.at("logits").values<float>()),
        kTolerance)
        << "data set " << i;
  }
}

// The cache-less export, and the one that gives back the states of a prefill.
struct Export {
  const char* name;
  const char* file;
  const char* data;
  std::vector<int> data_sets;  // without padding
};

void PrintTo(const Export& of, std::ostream* out) { *out << of.name; }

class PagedWindows : public testing::TestWithParam<Export> {
 protected:
  static Model Load() { return LoadBundled(GetParam().name, GetParam().file); }
};

INSTANTIATE_TEST_SUITE_P(
    Exports, PagedWindows,
    testing::Values(Export{"deepseek_v4_A18", "model.onnx", "deepseek_v4_A18", {0, 2}},
                    Export{"deepseek_v4_B18", "prefill.onnx", "deepseek_v4_B18/prefill", {0, 1}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PagedWindows, EveryLayerReadsAndWritesItsCachesByFusedOps) {
  Model model = Load();
  const auto report = RunPipeline(model, {});
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, int> counts;
  for (const auto& node : model.graph->nodes()) {
    if (node->domain() == "pagefuse") ++counts[std::string(node->op_type())];
    EXPECT_FALSE(node->Is("Attention") || node->Is("ScatterND") || node->Is("ScatterElements") ||
                 AttendsToKeys(*node))
        << node->Description();
  }
  // One layer of the window alone, two with an indexer, one without.
  EXPECT_EQ(counts["QNormRopeKvInsert"], 4);
  EXPECT_EQ(counts["MlaCacheInsert"], 0);
  EXPECT_EQ(counts["SparseMlaAttention"], 4);
  EXPECT_EQ(counts["CompressorStateInsert"], 2 * 2 + 1);
  EXPECT_EQ(counts["CompressCacheInsert"], 2 * 2 + 1);
  EXPECT_EQ(counts["IndexerQRopeQuant"], 2);
  EXPECT_EQ(counts["PagedIndexerTopK"], 2);
  // The window once a step, all windows of the layer without an indexer, chosen ones of the others.
  EXPECT_EQ(counts["ReqIndexToSlot"], 1 + 1 + 2);
  EXPECT_EQ(counts["WindowCompress"], 0);
  ASSERT_EQ(model.graph->outputs().size(), 1u + 4 + 2 * 4 + 2);
  for (const Value* input : model.graph->inputs()) {
    EXPECT_EQ(input->name().find("past"), std::string::npos) << input->name();
  }
}

TEST_P(PagedWindows, GroupsKeepWhatTheirKindOfRowNeeds) {
  const auto model = PagedModel::Create(Load(), {.in_pages = false});
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::string> names;
  for (const CacheGroup& group : (*model)->layout().groups()) names.push_back(group.name);
  EXPECT_THAT(names, ElementsAre("window_8", "state_8_by_4", "state_8_by_8", "compressed_4",
                                 "compressed_8"));
  // Two layers of (32 + 16) / 4 elements of float32 and one of 32 / 8.
  EXPECT_EQ((*model)->layout().bytes_per_token(), 112);
}

// Rows of logits of one step over an empty cache.
std::vector<float> LogitsOf(PagedModel& model, const std::vector<int64_t>& tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  EXPECT_TRUE(model.Reserve({length}, length).ok());
  const SequenceId sequence = model.cache().AddSequence();
  const auto logits = model.Step({{.sequence = sequence, .ids = tokens}});
  model.cache().Remove(sequence);
  EXPECT_TRUE(logits.ok()) << logits.status();
  if (!logits.ok()) return {};
  const auto values = logits->values<float>();
  return {values.begin(), values.end()};
}

TEST_P(PagedWindows, PrefillGivesTheLogitsOfTheReference) {
  auto model = PagedModel::Create(Load(), {.all_logits = true});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const int set : GetParam().data_sets) {
    const DataSet data = LoadDataSet(GetParam().data, set);
    const auto ids = data.inputs.at("input_ids").values<int64_t>();
    const auto expected = data.outputs.at("logits").values<float>();
    const std::vector<float> logits = LogitsOf(**model, {ids.begin(), ids.end()});
    EXPECT_LE(MaxDifference(logits, expected), kTolerance) << "data set " << set;
  }
}

// Also those too short for the export, which needs a whole window of 8 tokens.
TEST_P(PagedWindows, PromptsOfAnyLengthGiveTheLogitsOfTheLongerRun) {
  auto model = PagedModel::Create(Load(), {.all_logits = true});
  ASSERT_TRUE(model.ok()) << model.status();
  const DataSet data = LoadDataSet(GetParam().data, GetParam().data_sets[0]);
  const auto ids = data.inputs.at("input_ids").values<int64_t>();
  const auto expected = data.outputs.at("logits").values<float>();
  const size_t words = expected.size() / ids.size();
  ASSERT_EQ(ids.size(), 40u);
  for (size_t length = 1; length < ids.size(); ++length) {
    const std::vector<float> logits =
        LogitsOf(**model, {ids.begin(), ids.begin() + static_cast<int64_t>(length)});
    EXPECT_LE(MaxDifference(logits, expected.first(length * words)), kTolerance) << length;
  }
}

TEST_P(PagedWindows, GreedyTokensEqualTheReference) {
  const Greedy greedy = LoadGreedy(GetParam().name);
  for (int64_t step : {4, 7, 512}) {
    EngineOptions options;
    options.max_tokens_per_step = step;
    auto engine = Engine::Create(Load(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const Request request{.prompt = greedy.prompt,
                          .max_new_tokens = static_cast<int64_t>(greedy.tokens.size())};
    const auto completions = (*engine)->Generate({request});
    ASSERT_TRUE(completions.ok()) << completions.status();
    EXPECT_EQ((*completions)[0].tokens, greedy.tokens) << "steps of " << step << " tokens";
  }
}

TEST(DeepseekV4, ChoosesTheWindowsOfTheExportForEveryToken) {
  constexpr int64_t kRatio = 4;
  for (int set : {0, 2}) {  // those without padding, of 40 and 57 tokens
    const DataSet data = LoadDataSet("deepseek_v4_A18", set);
    const auto ids = data.inputs.at("input_ids").values<int64_t>();
    const Places paged = PlacesOfThePagedGraph(CacheLess(), {ids.begin(), ids.end()}, kRatio);
    ASSERT_EQ(paged.size(), 2u);
    for (size_t t = 0; t < ids.size(); ++t) {
      EXPECT_EQ(paged[0][t].size(), std::min<size_t>((t + 1) / kRatio, 4)) << "token " << t;
    }
    EXPECT_EQ(paged, PlacesOfTheExport(CacheLess(), data, kRatio)) << "data set " << set;
  }
}

// Each step is exported as the graph of the windows that it closes: none, one of 4 tokens, one of 4
// and one of 8.
TEST(DeepseekV4, TheGraphOfThePrefillGivesTheStepsOfAllExports) {
  auto model =
      PagedModel::Create(LoadBundled("deepseek_v4_B18", "prefill.onnx"), {.all_logits = true});
  ASSERT_TRUE(model.ok()) << model.status();
  struct Step {
    const char* graph;
    int set;
  };
  constexpr Step kSteps[] = {{"prefill", 0},     {"decode_open", 0},      {"decode_open", 1},
                             {"decode_open", 2}, {"decode_close_csa", 0}, {"decode_open", 3},
                             {"decode_open", 4}, {"decode_open", 5},      {"decode_close_both", 0}};
  ASSERT_TRUE((*model)->Reserve({48}, 48).ok());
  const SequenceId sequence = (*model)->cache().AddSequence();
  for (const Step& step : kSteps) {
    const DataSet data = LoadDataSet(std::string("deepseek_v4_B18/") + step.graph, step.set);
    const auto ids = data.inputs.at("input_ids").values<int64_t>();
    const auto logits = (*model)->Step({{.sequence = sequence, .ids = {ids.begin(), ids.end()}}});
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_LE(MaxDifference(logits->values<float>(), data.outputs.at("logits").values<float>()),
              kTolerance)
        << step.graph << " " << step.set;
  }
}

TEST(DeepseekV4, AStepOfOneTokenIsRefusedByItsReason) {
  EXPECT_THAT(ReasonOf(LoadBundled("deepseek_v4_B18", "decode_open.onnx")),
              HasSubstr("closes no window, or a fixed one; page the export of the prefill"));
}

TEST(DeepseekV4, AStepOfOneTokenTellsWhyItsAttentionGotNoPages) {
  Model model = LoadBundled("deepseek_v4_B18", "decode_open.onnx");
  const auto report = RunPipeline(model, {});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto told = std::find_if(
      report->unfused.begin(), report->unfused.end(),
      [](const UnfusedPlace& place) { return place.family == "attention without pages"; });
  ASSERT_NE(told, report->unfused.end());
  EXPECT_EQ(told->places, 4);
  EXPECT_EQ(told->rule, "insert-paged-cache");
  EXPECT_THAT(told->reason, HasSubstr("it closes no window, or a fixed one"));
}

TEST(DeepseekV4, PublishedSizesArePagedWithoutTheirWeights) {
  auto model = LoadModel(ModelDir("deepseek_v4_wide_graph_prefill") + "/model.onnx",
                         {.allow_missing_data = true});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ReasonOf(*std::move(model)), "it is paged");
}

}  // namespace
}  // namespace pagefuse
