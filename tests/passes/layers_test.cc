// SPDX-License-Identifier: Apache-2.0
// What fused in each layer, and what one lacks.
#include "pagefuse/passes/explain/layers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LayerNumber, IsReadFromNames) {
  EXPECT_EQ(LayerNumber("layers.3.mlp"), 3);
  EXPECT_EQ(LayerNumber("/model/layers.12/q_norm/Mul_1"), 12);
  EXPECT_EQ(LayerNumber("kv_cache.7.key"), 7);
  EXPECT_EQ(LayerNumber("kv_cache_out.5.latent"), 5);
  EXPECT_EQ(LayerNumber("node_linear_3"), -1);
  EXPECT_EQ(LayerNumber("players.3"), -1);
  EXPECT_EQ(LayerNumber("layers"), -1);
}

// The bundled export, with the last activation another one where `changed` is set.
LayerReport Report(bool changed, PipelineReport& pipeline) {
  auto model = Must(LoadModel(SourcePath("models/gemma3_B18/model.onnx")));
  if (changed) {
    Graph& graph = *model.graph;
    Node* last = nullptr;
    for (const auto& node : graph.nodes()) {
      if (node->Is("Tanh")) last = node.get();
    }
    Value* other = graph.AddValue("other");
    graph.AddNode("", "Softsign", {last->input(0)}, {other}, last);
    graph.ReplaceAllUses(last->output(0), other);
  }
  pipeline = Must(RunPipeline(model, {.explain = {"*"}, .side_by_side = true}));
  return ReportLayers(model, pipeline.unfused);
}

TEST(LayerReport, TellsLayersThatAreAlike) {
  PipelineReport pipeline;
  const LayerReport report = Report(/*changed=*/false, pipeline);
  EXPECT_THAT(LayerLines(report),
              ElementsAre("layers 0-5  GatedLinear, PagedAttention, RopeCacheInsert"));
  EXPECT_TRUE(report.leftovers.empty());
  EXPECT_TRUE(report.missing.empty());
}

TEST(LayerReport, TellsTheLayerThatLacksAnOp) {
  PipelineReport pipeline;
  const LayerReport report = Report(/*changed=*/true, pipeline);
  EXPECT_THAT(LayerLines(report),
              ElementsAre("layers 0-4  GatedLinear, PagedAttention, RopeCacheInsert",
                          "layer 5  PagedAttention, RopeCacheInsert"));
  EXPECT_EQ(report.leftovers.size(), pipeline.unfused.size());
}

TEST(Misses, ShowPatternAndGraph) {
  auto model = Must(ParseModel(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[T, 8] x, float[4] w) => (float[T, 8] y) {
      s = Sigmoid (x)
      y = Add (x, s)
    })"));
  const std::string rule =
      "# rule: mine\n# where: dim(x, -1) == 4\n(x) => (y) { s = Sigmoid (x)  y = Add (x, s) }\n"
      "# ---- after\n(x) => (y) { y = Relu (x) }\n";
  const auto report = RunPipeline(model, {.passes = {"mine"},
                                          .explain = {"mine"},
                                          .side_by_side = true,
                                          .rules = {{"mine.rules.txt", rule}}});
  // The file and its rule share a name, as passes and rules may.
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->misses.size(), 1u);
  const MissedMatch& miss = report->misses[0];
  EXPECT_EQ(miss.condition, "dim(x, -1) == 4: 8 and 4");
  EXPECT_EQ(miss.matched_nodes, 2);
  EXPECT_EQ(miss.pattern_nodes, 2);
  EXPECT_THAT(miss.side_by_side, ElementsAre(std::pair("s = Sigmoid (x)", "s = Sigmoid (x)"),
                                             std::pair("y = Add (x, s)", "y = Add (x, s)")));
}

}  // namespace
}  // namespace pagefuse
