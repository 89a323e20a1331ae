// A DeepSeek-V3 export with its latent attention absorbed, against the reference.
#include <set>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/passes/pipeline.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

constexpr const char* kExport = "deepseek_v3_B18";
constexpr int kLayers = 4;
constexpr double kTolerance = 1e-4;  // of logits of size 3 to 9, float32

PipelineReport Absorb(Model& model) {
  PipelineOptions options;
  options.page = false;
  options.options["absorb_mla"] = "on";
  auto report = RunPipeline(model, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : PipelineReport();
}

TEST(DeepseekV3, EveryLayerAttendsToItsLatentRows) {
  Model model = LoadBundled(kExport);
  PipelineReport report = Absorb(model);
  EXPECT_EQ(report.counts["filled-concat"], kLayers);
  EXPECT_EQ(report.counts["absorb-mla"], kLayers);
  int attentions = 0;
  for (const auto& node : model.graph->nodes()) {
    EXPECT_FALSE(node->Is("Softmax") && node->input(0)->shape()->rank() == 4);
    if (!node->Is("Attention")) continue;
    ++attentions;
    // One head of latent rows of 32 elements, and 8 rotated ones in the keys.
    EXPECT_EQ((*node->input(1)->shape())[1].constant(), 1);
    EXPECT_EQ((*node->input(1)->shape())[3].constant(), 40);
    EXPECT_EQ((*node->input(2)->shape())[3].constant(), 32);
  }
  EXPECT_EQ(attentions, kLayers);
}

TEST(DeepseekV3, TheAbsorbedGraphReproducesEveryDataSet) {
  Model model = LoadBundled(kExport);
  Absorb(model);
  SessionOptions options;
  options.optimise = false;
  auto session = Session::Create(std::move(model), options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_GT(CountDataSets(kExport), 0);
  for (int i = 0; i < CountDataSets(kExport); ++i) {
    const DataSet data = LoadDataSet(kExport, i);
    auto outputs = (*session)->Run(data.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto& values = (*session)->model().graph->outputs();
    for (size_t o = 0; o < values.size(); ++o) {
      const Tensor& expected = data.outputs.at(values[o]->name());
      EXPECT_EQ((*outputs)[o].dims(), expected.dims());
      EXPECT_LE(MaxDifference((*outputs)[o].values<float>(), expected.values<float>()), kTolerance)
          << "data set " << i << ", output " << values[o]->name();
    }
  }
}

}  // namespace
}  // namespace pagefuse
