// SPDX-License-Identifier: Apache-2.0
// Formats of weights from end to end: every form of an export, in memory and saved.
#include <filesystem>
#include <string>
#include <tuple>

#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

WeightFormat FormatOf(const std::string& name) { return FindWeightFormat(name).value(); }

EngineOptions Options(const std::string& weights) {
  EngineOptions options;
  UseWeights(FormatOf(weights), options.session);
  return options;
}

std::map<std::string, int> CountOps(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& node : graph.nodes()) ++counts[node->op_type()];
  return counts;
}

// Logits of a forced continuation.
Completion Continue(Model model, const EngineOptions& options, const Greedy& greedy) {
  auto engine = Engine::Create(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  Request request{.prompt = greedy.prompt, .max_new_tokens = 32};
  request.forced = greedy.tokens;
  request.keep_logits = true;
  auto completions = (*engine)->Generate({request});
  EXPECT_TRUE(completions.ok()) << completions.status();
  return completions.ok() ? (*completions)[0] : Completion{};
}

double LogitError(const Completion& a, const Completion& b) {
  double error = 0;
  for (size_t t = 0; t < a.logits.size(); ++t) {
    error = std::max(error, MaxDifference(a.logits[t], b.logits.at(t)));
  }
  return error;
}

// Sums may be shorter than a block. Stacks are no codes unless they are of experts.
void ExpectNoFloats(const Graph& graph, bool stacks_too) {
  for (const auto& node : graph.nodes()) {
    const Value* weight = node->num_inputs() > 1 ? node->input(1) : nullptr;
    const bool product = node->Is("MatMul") || node->Is("FusedMatMul", "com.microsoft");
    if (!product || weight == nullptr || !weight->IsConstant()) continue;
    const std::vector<int64_t>& dims = weight->initializer()->dims();
    const bool is_matrix = dims.size() == 2 || (stacks_too && dims.size() == 3);
    const bool turned = IntOr(*node, "transB", 0) != 0;
    EXPECT_TRUE(!is_matrix || dims[dims.size() - (turned ? 1 : 2)] < 16) << node->Description();
  }
}

// How many of the tokens are clear: won by more than both differ.
int ExpectClearTokens(const Completion& exact, const Completion& coded, const Greedy& greedy) {
  const double error = LogitError(exact, coded);
  testing::Test::RecordProperty("max_logit_error", std::to_string(error));
  EXPECT_GT(error, 0) << "no format is exact: was it used?";
  int clear = 0;
  for (size_t t = 0; t < greedy.tokens.size(); ++t) {
    if (greedy.gap[t] <= 2 * error) continue;
    ++clear;
    EXPECT_EQ(coded.tokens[t], greedy.tokens[t]) << "token " << t << ", gap " << greedy.gap[t];
  }
  return clear;
}

class WeightFormatsOfExports : public testing::TestWithParam<std::tuple<const char*, const char*>> {
};
INSTANTIATE_TEST_SUITE_P(Exports, WeightFormatsOfExports,
                         testing::Combine(testing::Values("gemma3_A18", "gemma3_A23", "gemma3_B18",
                                                          "gemma3_D_fp32", "deepseek_v3_A18"),
                                          testing::Values("bf16", "int8", "int4")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

// No product with a weight and no table is left in float, and MLPs are as fused as they were.
TEST_P(WeightFormatsOfExports, StoreEveryMatrixOfAnExport) {
  const auto& [name, weights] = GetParam();
  Model plain = LoadBundled(name), coded = LoadBundled(name);
  ASSERT_TRUE(RunPipeline(plain).ok());
  PipelineOptions options;
  options.options["weights"] = weights;
  const auto report = RunPipeline(coded, options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, int> before = CountOps(*plain.graph), after = CountOps(*coded.graph);
  const WeightFormat format = FormatOf(weights);
  const bool rows = format.layout == WeightLayout::kRows;
  EXPECT_EQ(after["GatedLinear"], before["GatedLinear"]);
  EXPECT_EQ(after["GroupedMatMul"], before["GroupedMatMul"]);
  EXPECT_GT(after[rows ? "Linear" : "MatMulNBits"], 0);
  EXPECT_EQ(after["GatherBlockQuantized"], rows ? 0 : 1);
  const DataType stored = rows ? DataType::kBfloat16 : DataType::kUint8;
  int tables = 0, stacks = 0;
  for (const auto& node : coded.graph->nodes()) {
    if (node->Is("Gather") && node->input(0)->dtype() == stored) ++tables;
    if (node->Is("GatedLinear", "pagefuse")) {
      EXPECT_EQ(node->input(1)->dtype(), stored);
      EXPECT_EQ(node->input(2)->dtype(), stored);
    }
    if (!node->Is("GroupedMatMul", "pagefuse")) continue;
    if (node->input(2)->dtype() == stored) {
      ++stacks;
      continue;
    }
    const std::vector<int64_t>& dims = node->input(2)->initializer()->dims();
    EXPECT_LT(dims[IntOr(*node, "transB", 0) != 0 ? 2 : 1], 32) << node->Description();
  }
  EXPECT_EQ(tables, rows ? 1 : 0);
  EXPECT_EQ(stacks > 0, before["GroupedMatMul"] > 0);
  ExpectNoFloats(*coded.graph, rows);
}

// The matrices by which DeepSeek V4 projects groups of heads, and those that absorb a latent cache's.
TEST(WeightFormats, StoreStacksAsBfloat16) {
  for (const char* name :
       {"deepseek_v3_A18", "deepseek_v3p_B18", "deepseek_v32p_A18", "deepseek_v4_A18"}) {
    SCOPED_TRACE(name);
    Model model = LoadBundled(name);
    PipelineOptions options;
    options.options["weights"] = "bf16";
    ASSERT_TRUE(RunPipeline(model, options).ok());
    ExpectNoFloats(*model.graph, /*stacks_too=*/true);
    int stacks = 0;
    for (const auto& node : model.graph->nodes()) {
      if (node->Is("Linear", "pagefuse") && node->input(1)->shape()->rank() == 3) ++stacks;
    }
    EXPECT_GT(stacks, 0);
  }
}

// Of a graph without pages that is paged later: its latent rows are kept, not what they are expanded to.
TEST(WeightFormats, AbsorbExpansionsInBfloat16) {
  Model model = LoadBundled("deepseek_v3_A18");
  PipelineOptions options{.page = false};
  options.options["weights"] = "bf16";
  ASSERT_TRUE(RunPipeline(model, options).ok());
  ASSERT_GT(CountOps(*model.graph)["Linear"], 0);
  ASSERT_TRUE(RunPipeline(model).ok());
  std::map<std::string, int> ops = CountOps(*model.graph);
  EXPECT_GT(ops["SparseMlaAttention"], 0);
  EXPECT_EQ(ops["PagedAttention"], 0);
}

TEST(WeightFormats, KeepClearTokensByStacks) {
  const Greedy greedy = LoadGreedy("deepseek_v4_A18");
  const auto run = [&](const char* weights) {
    return Continue(LoadBundled("deepseek_v4_A18"), Options(weights), greedy);
  };
  ExpectClearTokens(run("float32"), run("bf16"), greedy);
}

// Logits of random weights move by what the format loses; tokens that win clearly stay.
TEST_P(WeightFormatsOfExports, KeepClearTokens) {
  const auto& [name, weights] = GetParam();
  const Greedy greedy = LoadGreedy(name);
  const Completion exact = Continue(LoadBundled(name), Options("float32"), greedy);
  const Completion coded = Continue(LoadBundled(name), Options(weights), greedy);
  const int clear = ExpectClearTokens(exact, coded, greedy);
  // Routed experts let the smallest differences choose other experts.
  if (std::string(weights) != "int4" && std::string(name).starts_with("gemma")) {
    EXPECT_GT(clear, 0);
  }
}

// A saved graph computes what the one in memory does, and a second pass leaves it alone.
TEST_P(WeightFormatsOfExports, AreWhatAFileHolds) {
  const auto& [name, weights] = GetParam();
  const Greedy greedy = LoadGreedy(name);
  Model model = LoadBundled(name);
  PipelineOptions options;
  options.options["weights"] = weights;
  ASSERT_TRUE(RunPipeline(model, options).ok());
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / (std::string("weights_") + name + weights);
  std::filesystem::create_directories(folder);
  const std::string path = folder / "model.onnx";
  ASSERT_TRUE(SaveModel(model, path, {.external_data_threshold = 1024}).ok());
  auto saved = LoadModel(path);
  ASSERT_TRUE(saved.ok()) << saved.status();
  auto again = LoadModel(path);
  ASSERT_TRUE(again.ok()) << again.status();
  const Completion in_memory = Continue(LoadBundled(name), Options(weights), greedy);
  EXPECT_EQ(LogitError(in_memory, Continue(*std::move(saved), {}, greedy)), 0);
  EXPECT_EQ(LogitError(in_memory, Continue(*std::move(again), Options(weights), greedy)), 0);
  std::filesystem::remove_all(folder);
}

// Two bytes a weight, in a file and in memory, where products read what the pass made.
TEST(WeightFormatsInMemory, HoldBfloat16Once) {
  const auto bytes = [](const Graph& graph) {
    int64_t sum = 0;
    for (const Value* value : graph.values()) {
      if (value->initializer() != nullptr) sum += value->initializer()->byte_size();
    }
    return sum;
  };
  for (const char* name : {"gemma3_A18", "gemma3_recall"}) {
    const char* file = name[7] == 'r' ? "model_with_past.onnx" : "model.onnx";
    SessionOptions options;
    UseWeights(FormatOf("float32"), options);
    const auto plain = Session::Create(LoadBundled(name, file), options);
    UseWeights(FormatOf("bf16"), options);
    const auto packed = Session::Create(LoadBundled(name, file), options);
    ASSERT_TRUE(plain.ok() && packed.ok()) << packed.status();
    // Norms and tables of angles stay in float; a tied head has no copy of the table.
    EXPECT_LT(bytes(*(*packed)->model().graph), 0.55 * bytes(*(*plain)->model().graph)) << name;
    EXPECT_EQ((*packed)->stats().packed_weight_bytes, 0) << name;
  }
}

// The trained model: 8 bits answer as float does, 4 bits here too.
TEST(WeightFormatsOfTheAnswer, KeepIt) {
  for (const char* weights : {"bf16", "int8", "int4"}) {
    EngineOptions options = Options(weights);
    options.max_tokens_per_step = 37;  // chunks of few and of many rows
    auto engine = Engine::Create(LoadBundled("gemma3_recall", "model_with_past.onnx"), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    Request request{.prompt = {2}, .max_new_tokens = 16, .stop_tokens = {'\n'}};
    const auto text = ReadFile(ModelDir("gemma3_recall") + "/demo.txt");
    ASSERT_TRUE(text.ok()) << text.status();
    for (const unsigned char byte : *text) request.prompt.push_back(byte);
    const auto completions = (*engine)->Generate({request});
    ASSERT_TRUE(completions.ok()) << completions.status();
    const std::vector<int64_t>& tokens = (*completions)[0].tokens;
    EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "86 nails.\n") << weights;
  }
}

// A session that leaves the graph as it came stores its weights otherwise all the same.
TEST(WeightFormatsInMemory, HoldWithoutOtherPasses) {
  const DataSet data = LoadDataSet("gemma3_A18", 0);
  std::vector<Tensor> results[2];
  for (const bool coded : {false, true}) {
    SessionOptions options;
    options.optimise = false;
    UseWeights(FormatOf(coded ? "int8" : "float32"), options);
    const auto session = Session::Create(LoadBundled("gemma3_A18"), options);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(CountOps(*(*session)->model().graph)["MatMulNBits"] > 0, coded);
    auto outputs = (*session)->Run(data.inputs, {"logits"});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    results[coded] = *std::move(outputs);
  }
  const double error = MaxDifference(results[0][0].values<float>(), results[1][0].values<float>());
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 0.5);
}

}  // namespace
}  // namespace pagefuse
