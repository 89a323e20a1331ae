// DeepSeek-V3 and V3.2 exports against the reference: latent attention absorbed, and paged over all
// rows or those that an indexer chooses.
#include <map>
#include <ostream>
#include <string>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/passes/pipeline.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
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

// One paged graph whether an export has a past (B) or none (A).
struct Paged {
  const char* name;
  int64_t bytes;                           // a token
  std::map<std::string, int> ops_a_layer;  // of what reads and writes the cache
};

void PrintTo(const Paged& paged, std::ostream* out) { *out << paged.name; }

// 32 latent and 8 rotated elements of float32 in 4 layers.
Paged Dense(const char* name) {
  return {name, 640, {{"MlaCacheInsert", 1}, {"SparseMlaAttention", 1}}};
}

// 16 elements of an index key besides.
Paged Chosen(const char* name) {
  return {name,
          896,
          {{"MlaCacheInsert", 2},
           {"PagedMqaLogits", 1},
           {"IndexerTopK", 1},
           {"ReqIndexToSlot", 1},
           {"SparseMlaAttention", 1}}};
}

class PagedLatents : public testing::TestWithParam<Paged> {
 protected:
  static const char* name() { return GetParam().name; }
};

INSTANTIATE_TEST_SUITE_P(Exports, PagedLatents,
                         testing::Values(Dense("deepseek_v3_A18"), Dense("deepseek_v3_B18"),
                                         Chosen("deepseek_v32_A18"), Chosen("deepseek_v32_B18")),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PagedLatents, EveryLayerReadsAndWritesItsCacheByFusedOps) {
  Model model = LoadBundled(name());
  const auto report = RunPipeline(model, {});
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, int> counts;
  for (const auto& node : model.graph->nodes()) {
    if (node->domain() == "pagefuse") ++counts[std::string(node->op_type())];
    EXPECT_FALSE(node->Is("Attention") || node->Is("ScatterND") || node->Is("Softmax"))
        << node->Description();
  }
  for (const auto& [op, count] : GetParam().ops_a_layer) {
    EXPECT_EQ(counts[op], count * kLayers) << op;
  }
  for (const Value* input : model.graph->inputs()) {
    EXPECT_EQ(input->name().find("past"), std::string::npos) << input->name();
  }
  const auto layout = CacheLayout::FromModel(model);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->bytes_per_token(), GetParam().bytes);
}

TEST_P(PagedLatents, KeepTheirTypeAndSayWhatTheyAre) {
  auto model = PagedModel::Create(LoadBundled(name()), {.block_size = 8});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->cache_settings().format, "none");
  EXPECT_EQ((*model)->cache_settings().block_size, 8);
  const auto refused = PagedModel::Create(LoadBundled(name()), {.kv_cache = "bf16"});
  EXPECT_NE(std::string(refused.status().message())
                .find("layer 0: bf16: expected keys and values of heads, got latent rows"),
            std::string::npos)
      << refused.status();
}

TEST_P(PagedLatents, PrefillGivesTheLogitsOfTheReference) {
  auto model = PagedModel::Create(LoadBundled(name()), {.all_logits = true});
  ASSERT_TRUE(model.ok()) << model.status();
  int compared = 0;
  for (int i = 0; i < CountDataSets(name()); ++i) {
    const DataSet data = LoadDataSet(name(), i);
    const Tensor& ids = data.inputs.at("input_ids");
    const Tensor& mask = data.inputs.at("attention_mask");
    if (ids.dims() != mask.dims()) continue;  // of a later step
    const Tensor& expected = data.outputs.at("logits");
    const int64_t length = ids.dims()[1], words = expected.dims()[2];
    ASSERT_TRUE((*model)->Reserve({length}, length).ok());
    for (int64_t b = 0; b < ids.dims()[0]; ++b) {
      PagedModel::Tokens tokens{.sequence = (*model)->cache().AddSequence(), .ids = {}};
      std::vector<float> rows;
      for (int64_t t = b * length; t < (b + 1) * length; ++t) {
        if (mask.values<int64_t>()[t] == 0) continue;
        tokens.ids.push_back(ids.values<int64_t>()[t]);
        const auto row = expected.values<float>().subspan(t * words, words);
        rows.insert(rows.end(), row.begin(), row.end());
      }
      const auto logits = (*model)->Step({tokens});
      ASSERT_TRUE(logits.ok()) << logits.status();
      EXPECT_LE(MaxDifference(logits->values<float>(), rows), kTolerance)
          << "data set " << i << ", sequence " << b;
      (*model)->cache().Remove(tokens.sequence);
      ++compared;
    }
  }
  EXPECT_GT(compared, 1);
}

TEST_P(PagedLatents, GreedyTokensEqualTheReference) {
  const Greedy greedy = LoadGreedy(name());
  for (int64_t step : {1, 7, 512}) {
    EngineOptions options;
    options.max_tokens_per_step = step;
    auto engine = Engine::Create(LoadBundled(name()), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const Request request{.prompt = greedy.prompt,
                          .max_new_tokens = static_cast<int64_t>(greedy.tokens.size())};
    const auto completions = (*engine)->Generate({request});
    ASSERT_TRUE(completions.ok()) << completions.status();
    EXPECT_EQ((*completions)[0].tokens, greedy.tokens) << "steps of " << step << " tokens";
  }
}

}  // namespace
}  // namespace pagefuse
