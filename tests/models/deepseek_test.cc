// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 and V3.2 exports against the reference: latent attention absorbed, and paged over all
// rows or those that an indexer chooses.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/models/chosen_places.h"
#include "tests/models/model_data.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

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

// The export with products in codes, as files have it; activations stay floats.
Model WithCodes(const char* weights) {
  Model model = LoadBundled(kExport);
  PipelineOptions options;
  options.page = false;
  options.options["weights"] = weights;
  options.disabled = {"fuse-elementwise"};
  EXPECT_TRUE(RunPipeline(model, options).ok());
  int products = 0;
  for (const auto& node : model.graph->nodes()) {
    if (node->attribute("accuracy_level")) {
      node->SetAttribute("accuracy_level", MakeAttribute(int64_t{0}));
    }
    if (node->Is("MatMulNBits", "com.microsoft")) ++products;
  }
  EXPECT_GE(products, kLayers * 5);  // kv_b_proj among them
  return model;
}

TEST(DeepseekV3, AnExpansionOfCodesIsPaged) {
  EXPECT_EQ(ReasonOf(WithCodes("int4")), "it is paged");
  Model coded = WithCodes("int8");
  const DataSet data = LoadDataSet(kExport, 0);
  SessionOptions plain;
  plain.optimise = false;
  const auto session = Session::Create(coded.Clone(), plain);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto outputs = (*session)->Run(data.inputs, {"logits"});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  auto paged = PagedModel::Create(std::move(coded), {.all_logits = true});
  ASSERT_TRUE(paged.ok()) << paged.status();
  EXPECT_EQ((*paged)->layout().bytes_per_token(), 640);
  const auto ids = data.inputs.at("input_ids").values<int64_t>();
  const auto length = static_cast<int64_t>(ids.size());
  ASSERT_TRUE((*paged)->Reserve({length}, length).ok());
  const auto logits = (*paged)->Step(
      {{.sequence = (*paged)->cache().AddSequence(), .ids = {ids.begin(), ids.end()}}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(MaxDifference(logits->values<float>(), (*outputs)[0].values<float>()), kTolerance);
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
           {"IndexerQRopeQuant", 1},
           {"PagedIndexerTopK", 1},
           {"ReqIndexToSlot", 1},
           {"SparseMlaAttention", 1}}};
}

class PagedLatents : public testing::TestWithParam<Paged> {
 protected:
  static const char* name() { return GetParam().name; }
  static bool has_index_keys() { return GetParam().ops_a_layer.contains("PagedIndexerTopK"); }
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
  const CacheSettings& settings = (*model)->cache_settings();
  EXPECT_EQ(settings.format, "none");
  EXPECT_EQ(settings.block_size, 8);
  EXPECT_EQ(settings.index_format.value_or("no keys"), has_index_keys() ? "none" : "no keys");
}

TEST_P(PagedLatents, NameTheLayerAndTheSizeThatAFormatCannotTake) {
  const auto refusal = [&](const std::string& format, const std::string& index_format) {
    PagedModelOptions options{.kv_cache = format};
    options.session.pipeline.options["indexer_cache"] = index_format;
    return std::string(PagedModel::Create(LoadBundled(name()), options).status().message());
  };
  EXPECT_THAT(refusal("int8_per_token_head", "none"),
              HasSubstr("layer 0: int8_per_token_head: expected keys and values of heads, got "
                        "latent rows"));
  EXPECT_THAT(refusal("none", "mxfp4"),
              HasSubstr(has_index_keys() ? "layer 0: mxfp4: indexer_mxfp4: expected index keys of "
                                           "a multiple of 32, got 16"
                                         : "indexer_cache: mxfp4 is asked for, but no layer has"));
  EXPECT_THAT(refusal("none", "int4"), HasSubstr("expected none, bf16, fp8, mxfp4, got \"int4\""));
}

TEST_P(PagedLatents, TakeHalfTheBytesAsBfloat16) {
  EngineOptions options{.kv_cache = "bf16"};
  if (has_index_keys()) options.session.pipeline.options["indexer_cache"] = "bf16";
  auto engine = Engine::Create(LoadBundled(name()), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->cache_settings().format, "bf16");
  const Greedy greedy = LoadGreedy(name());
  const auto completions = (*engine)->Generate({{.prompt = greedy.prompt, .max_new_tokens = 4}});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*engine)->stats().cache_bytes_per_token, GetParam().bytes / 2);
}

// 32 codes and their scale, 8 rotated elements; index keys of 16 and a scale.
TEST_P(PagedLatents, TakeEightBitsAtTheirOwnSizes) {
  EngineOptions options{.kv_cache = "fp8"};
  if (has_index_keys()) options.session.pipeline.options["indexer_cache"] = "fp8";
  auto engine = Engine::Create(LoadBundled(name()), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->cache_settings().format, "fp8");
  const Greedy greedy = LoadGreedy(name());
  const auto completions = (*engine)->Generate({{.prompt = greedy.prompt, .max_new_tokens = 4}});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*engine)->stats().cache_bytes_per_token,
            kLayers * (32 + 4 + 2 * 8 + (has_index_keys() ? 16 + 4 : 0)));
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
  for (int64_t step : {4, 7, 512}) {
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

TEST(ChosenKeys, AreThoseOfTheExportForEveryToken) {
  constexpr const char* kModel = "deepseek_v32_A18";
  for (int set : {0, 2}) {  // those without padding, of 40 and 57 tokens
    const DataSet data = LoadDataSet(kModel, set);
    const auto ids = data.inputs.at("input_ids").values<int64_t>();
    const Places paged = PlacesOfThePagedGraph(LoadBundled(kModel), {ids.begin(), ids.end()});
    ASSERT_EQ(paged.size(), static_cast<size_t>(kLayers));
    for (size_t t = 0; t < ids.size(); ++t) {
      EXPECT_EQ(paged[0][t].size(), std::min<size_t>(t + 1, 12)) << "token " << t;
    }
    EXPECT_EQ(paged, PlacesOfTheExport(LoadBundled(kModel), data)) << "data set " << set;
  }
}

// What index keys keep of the choice in each format: V3.2 chooses among tokens, V4 among windows.
struct RoundedKeys {
  const char* model;
  const char* format;
  int64_t ratio;
  double least;  // share of the keys that are chosen in both formats, over rows that leave keys out
  const char* query = "fp8";
  const char* hadamard = "off";
};

void PrintTo(const RoundedKeys& keys, std::ostream* out) {
  *out << keys.model << " " << keys.format << ", queries " << keys.query << ", hadamard "
       << keys.hadamard;
}

class RoundedChoice : public testing::TestWithParam<RoundedKeys> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, RoundedChoice,
    testing::Values(RoundedKeys{"deepseek_v32p_A18", "bf16", 1, 0.99},
                    RoundedKeys{"deepseek_v32p_A18", "fp8", 1, 0.96},
                    RoundedKeys{"deepseek_v32p_A18", "fp8", 1, 0.96, "none"},
                    RoundedKeys{"deepseek_v32p_A18", "fp8", 1, 0.96, "none", "on"},
                    RoundedKeys{"deepseek_v32p_A18", "fp8", 1, 0.96, "fp8", "on"},
                    RoundedKeys{"deepseek_v32p_A18", "mxfp4", 1, 0.9, "none", "off"},
                    RoundedKeys{"deepseek_v32p_A18", "mxfp4", 1, 0.9, "none", "on"},
                    RoundedKeys{"deepseek_v4p_A18", "bf16", 4, 0.99},
                    RoundedKeys{"deepseek_v4p_A18", "fp8", 4, 0.95},
                    RoundedKeys{"deepseek_v4p_A18", "fp8", 4, 0.95, "none"},
                    RoundedKeys{"deepseek_v4p_A18", "fp8", 4, 0.95, "none", "on"},
                    RoundedKeys{"deepseek_v4p_A18", "fp8", 4, 0.95, "fp8", "on"},
                    RoundedKeys{"deepseek_v4p_A18", "mxfp4", 4, 0.88, "none", "off"},
                    RoundedKeys{"deepseek_v4p_A18", "mxfp4", 4, 0.88, "none", "on"}));

// A prompt and its greedy continuation.
std::vector<int64_t> TokensOf(const std::string& model) {
  const Greedy greedy = LoadGreedy(model);
  std::vector<int64_t> tokens = greedy.prompt;
  tokens.insert(tokens.end(), greedy.tokens.begin(), greedy.tokens.end() - 1);
  return tokens;
}

// What is chosen by keys as they are, found once.
const Places& ExactPlaces(const RoundedKeys& keys, const std::vector<int64_t>& tokens) {
  static auto* all = new std::map<std::string, Places>;
  const auto [it, inserted] = all->try_emplace(keys.model);
  if (inserted) it->second = PlacesOfThePagedGraph(LoadBundled(keys.model), tokens, keys.ratio);
  return it->second;
}

TEST_P(RoundedChoice, KeepsMostOfTheKeys) {
  const RoundedKeys& keys = GetParam();
  const std::vector<int64_t> tokens = TokensOf(keys.model);
  const Places& exact = ExactPlaces(keys, tokens);
  const Places rounded = PlacesOfThePagedGraph(LoadBundled(keys.model), tokens, keys.ratio,
                                               {{"indexer_cache", keys.format},
                                                {"indexer_query", keys.query},
                                                {"indexer_hadamard", keys.hadamard}});
  ASSERT_EQ(rounded.size(), exact.size());
  int64_t chosen = 0, both = 0;
  for (size_t layer = 0; layer < exact.size(); ++layer) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const std::set<int64_t>&want = exact[layer][t], &got = rounded[layer][t];
      ASSERT_EQ(got.size(), want.size());
      if (static_cast<int64_t>(want.size()) == static_cast<int64_t>(t + 1) / keys.ratio) continue;
      chosen += static_cast<int64_t>(want.size());
      both += std::count_if(want.begin(), want.end(), [&](int64_t j) { return got.contains(j); });
    }
  }
  ASSERT_GT(chosen, 0) << "every key is chosen";
  const double share = static_cast<double>(both) / static_cast<double>(chosen);
  RecordProperty("chosen", std::to_string(chosen));
  RecordProperty("share", std::to_string(share));
  EXPECT_GE(share, keys.least);
}

// The published sizes in each format, beside the errors of an independent implementation.
struct Rounded {
  const char* model;
  const char* rows;
  const char* index_keys;
  const char* recorded;  // its name in quantised.json
  int64_t bytes;         // a token and layer; of V4 all layers
  const char* index_query = "none";
};

void PrintTo(const Rounded& rounded, std::ostream* out) {
  *out << rounded.model << " " << rounded.recorded;
}

class RoundedLatents : public testing::TestWithParam<Rounded> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, RoundedLatents,
    testing::Values(
        Rounded{"deepseek_v3p_B18", "bf16", "", "bfloat16", 1152},
        Rounded{"deepseek_v3p_B18", "fp8", "", "fp8_ds_mla", 656},
        Rounded{"deepseek_v32p_A18", "bf16", "bf16", "bfloat16", 1408},
        Rounded{"deepseek_v32p_A18", "fp8", "none", "fp8_ds_mla", 1168},
        Rounded{"deepseek_v32p_A18", "none", "fp8", "indexer_fp8", 2436},
        Rounded{"deepseek_v32p_A18", "none", "mxfp4", "indexer_mxfp4", 2372},
        Rounded{"deepseek_v32p_A18", "fp8", "fp8", "fp8_ds_mla+indexer_fp8", 788},
        Rounded{"deepseek_v32p_A18", "fp8", "fp8", "fp8_ds_mla+indexer_fp8+query_fp8", 788, "fp8"},
        // In blocks of 16 rows: 9792 bytes, of 584 a row what fills them up included.
        Rounded{"deepseek_v4p_A18", "bf16", "bf16", "bfloat16", 648},
        Rounded{"deepseek_v4p_A18", "fp8", "none", "fp8_ue8m0", 569},
        Rounded{"deepseek_v4p_A18", "none", "fp8", "indexer_fp8", 1106},
        Rounded{"deepseek_v4p_A18", "none", "mxfp4", "indexer_mxfp4", 1074},
        Rounded{"deepseek_v4p_A18", "fp8", "fp8", "fp8_ue8m0+indexer_fp8", 379},
        Rounded{"deepseek_v4p_A18", "fp8", "fp8", "fp8_ue8m0+indexer_fp8+query_fp8", 379, "fp8"},
        Rounded{"deepseek_v4p_A18", "fp8", "mxfp4", "fp8_ue8m0+indexer_mxfp4", 347}));

int64_t LayersCounted(const std::string& model) {
  if (model == "deepseek_v4p_A18") return 1;
  return model == "deepseek_v32p_A18" ? 3 : 2;
}

// Logits of all positions of the prompt and its greedy continuation.
std::vector<float> LogitsOf(const Rounded& rounded, const std::vector<int64_t>& tokens) {
  PagedModelOptions options{.kv_cache = rounded.rows, .all_logits = true};
  const std::string index_keys = rounded.index_keys;
  options.session.pipeline.options["indexer_query"] = rounded.index_query;
  const bool chooses = !index_keys.empty();
  if (chooses) options.session.pipeline.options["indexer_cache"] = index_keys;
  auto model = PagedModel::Create(LoadBundled(rounded.model), options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  EXPECT_EQ((*model)->cache_settings().format, rounded.rows);
  EXPECT_EQ((*model)->cache_settings().index_format.value_or(""), index_keys);
  const auto length = static_cast<int64_t>(tokens.size());
  EXPECT_TRUE((*model)->Reserve({length}, length).ok());
  const SequenceId sequence = (*model)->cache().AddSequence();
  const auto logits = (*model)->Step({{.sequence = sequence, .ids = tokens}});
  EXPECT_TRUE(logits.ok()) << logits.status();
  if (rounded.bytes > 0) {
    EXPECT_EQ((*model)->layout().bytes_per_token(), LayersCounted(rounded.model) * rounded.bytes);
  }
  const auto values = logits->values<float>();
  return {values.begin(), values.end()};
}

// Those of rows and keys as they are, computed once.
const std::vector<float>& ExactLogits(const Rounded& rounded, const std::vector<int64_t>& tokens) {
  static auto* all = new std::map<std::string, std::vector<float>>;
  const auto [it, inserted] = all->try_emplace(rounded.model);
  const bool chooses = *rounded.index_keys != '\0';  // as its model does
  if (inserted) {
    it->second = LogitsOf({rounded.model, "none", chooses ? "none" : "", "", 0}, tokens);
  }
  return it->second;
}

TEST_P(RoundedLatents, MoveLogitsAsFarAsTheReferenceSays) {
  const Rounded& rounded = GetParam();
  const std::vector<int64_t> tokens = TokensOf(rounded.model);
  const std::vector<float>& exact = ExactLogits(rounded, tokens);
  const std::vector<float> got = LogitsOf(rounded, tokens);
  ASSERT_EQ(got.size(), exact.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - exact[i], 2);
    norm += std::pow(static_cast<double>(exact[i]), 2);
  }
  std::ifstream file(ModelDir(rounded.model) + "/quantised.json");
  const double recorded = nlohmann::json::parse(file)[rounded.recorded]["rel_l2"];
  const double error = std::sqrt(difference / norm);
  EXPECT_GT(error, recorded / 4) << "was the format used?";
  EXPECT_LE(error, 1.5 * recorded);
}

TEST(PublishedLatents, GreedyTokensEqualTheReference) {
  for (const char* name : {"deepseek_v3p_B18", "deepseek_v32p_A18", "deepseek_v4p_A18"}) {
    const Greedy greedy = LoadGreedy(name);
    auto engine = Engine::Create(LoadBundled(name), {});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto completions = (*engine)->Generate(
        {{.prompt = greedy.prompt, .max_new_tokens = static_cast<int64_t>(greedy.tokens.size())}});
    ASSERT_TRUE(completions.ok()) << completions.status();
    EXPECT_EQ((*completions)[0].tokens, greedy.tokens) << name;
  }
}

}  // namespace
}  // namespace pagefuse
