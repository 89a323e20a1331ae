// SPDX-License-Identifier: Apache-2.0
// Exports of the model builder of ONNX Runtime GenAI: ops of com.microsoft from end to end.
#include "paths.h"
#include "tests/models/model_data.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

std::vector<float> FloatsOf(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  const absl::Status status =
      DecodeToFloat(tensor.dtype(), tensor.data(), tensor.size(), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

std::unique_ptr<Session> Open(const std::string& name, bool optimise) {
  SessionOptions options;
  options.optimise = optimise;
  options.pipeline.page = false;
  auto session = Session::Create(LoadBundled(name), options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

class BuilderExport : public testing::TestWithParam<std::tuple<const char*, bool>> {};

// The codes of 8-bit caches that are not the expected ones; `all` gets their number.
int64_t MovedCodes(const Session& session, const std::vector<Tensor>& got, const DataSet& want,
                   int64_t& all) {
  int64_t moved = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor& expected = want.outputs.at(session.model().graph->outputs()[i]->name());
    if (expected.dtype() != DataType::kInt8) continue;
    const auto a = got[i].values<int8_t>(), b = expected.values<int8_t>();
    for (size_t k = 0; k < b.size(); ++k) moved += a[k] != b[k] ? 1 : 0;
    all += expected.size();
  }
  return moved;
}

// Prefill, padded batches, decode steps, and ragged ones. A cache of codes may be two quanta off:
// sums in another order reach the neighbouring code where a number lies between two, which moves
// the logits by a quantum, a 127th of their size (up to 9). That happens to very few.
TEST_P(BuilderExport, GivesItsReferenceOutputs) {
  const auto [name, optimise] = GetParam();
  const auto session = Open(name, optimise);
  ASSERT_NE(session, nullptr);
  const auto& outputs = session->model().graph->outputs();
  for (int set = 0; set < CountDataSets(name); ++set) {
    SCOPED_TRACE(set);
    const DataSet data = LoadDataSet(name, set);
    const auto results = session->Run(data.inputs);
    ASSERT_TRUE(results.ok()) << results.status();
    int64_t codes = 0;
    const int64_t moved = MovedCodes(*session, *results, data, codes);
    EXPECT_LE(moved * 100, codes);
    const double float_limit = moved > 0 ? 9.0 / 127 : 1e-4;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& want = data.outputs.at(outputs[i]->name());
      ASSERT_EQ((*results)[i].dims(), want.dims()) << outputs[i]->name();
      const double limit = want.dtype() == DataType::kInt8 ? 2 : float_limit;
      EXPECT_LE(MaxDifference(FloatsOf((*results)[i]), FloatsOf(want)), limit)
          << outputs[i]->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Exports, BuilderExport,
                         testing::Combine(testing::Values("gemma3_D_fp32", "gemma3_D_int4",
                                                          "gemma3_D_kvint8", "gemma3_D_windowed"),
                                          testing::Bool()));

Tensor Int32s(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(std::move(dims), values);
}

// One sequence of a paged export over caches of its own.
class PagedSequence {
 public:
  static constexpr int64_t kBlock = 16, kBlocks = 8, kRing = 2, kColumns = 6;

  explicit PagedSequence(Session& session) : session_(session) {
    for (const Value* input : session.model().graph->inputs()) {
      if (input->name().rfind("past_key_values.", 0) != 0) continue;
      // Five sliding layers keep a ring of blocks, the last one keeps all.
      const bool full = input->name().find(".5.") != std::string::npos;
      feeds_[input->name()] =
          *Tensor::Allocate(DataType::kFloat16, {full ? kBlocks : kRing, kBlock, 1, 32});
    }
    std::vector<int32_t> table, ring;
    for (int32_t i = 0; i < kColumns; ++i) {
      table.push_back((i * 3 + 1) % kBlocks);
      ring.push_back(i % kRing);
    }
    feeds_["block_table"] = Int32s({1, kColumns}, table);
    feeds_["block_table_windowed"] = Int32s({1, kColumns}, ring);
    feeds_["attention_metadata"] = Int32s({3}, {0, 0, 0});
  }

  // The logits of the new tokens.
  std::vector<float> Step(const std::vector<int64_t>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    feeds_["input_ids"] = Tensor::Of<int64_t>({count}, tokens);
    feeds_["cumulative_sequence_lengths"] = Int32s({2}, {0, static_cast<int32_t>(count)});
    feeds_["past_sequence_lengths"] = Int32s({1}, {past_});
    past_ += static_cast<int32_t>(count);
    const auto results = session_.Run(feeds_, {"logits"});
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? FloatsOf((*results)[0]) : std::vector<float>();
  }

 private:
  Session& session_;
  std::map<std::string, Tensor> feeds_;
  int32_t past_ = 0;
};

// Its weights are gemma3_D_fp32's rounded to float16. The ring of the sliding layers is shorter
// than the prompt.
constexpr double kHalfError = 0.03;

TEST(PagedExport, GivesTheLogitsOfItsFloat32Sibling) {
  const auto session = Open("gemma3_D_paged", /*optimise=*/false);
  ASSERT_NE(session, nullptr);
  const DataSet prefill = LoadDataSet("gemma3_D_fp32", 0);
  const auto prompt = prefill.inputs.at("input_ids").values<int64_t>();
  const std::vector<float> logits = PagedSequence(*session).Step({prompt.begin(), prompt.end()});
  EXPECT_LE(MaxDifference(logits, FloatsOf(prefill.outputs.at("logits"))), kHalfError);
}

TEST(PagedExport, ContinuesGreedilyAsItsFloat32Sibling) {
  const auto session = Open("gemma3_D_paged", /*optimise=*/false);
  ASSERT_NE(session, nullptr);
  const Greedy greedy = LoadGreedy("gemma3_D_paged");
  PagedSequence sequence(*session);
  std::vector<int64_t> tokens = greedy.prompt;
  int compared = 0;
  for (size_t step = 0; step < greedy.tokens.size(); ++step) {
    const std::vector<float> logits = sequence.Step(tokens);
    ASSERT_GE(logits.size(), 256u);
    const auto last = logits.end() - 256;
    // Each step goes on from the sibling's token, whatever rounding makes of a close one.
    tokens = {greedy.tokens[step]};
    if (greedy.gap[step] < 2 * kHalfError) continue;
    EXPECT_EQ(std::max_element(last, logits.end()) - last, greedy.tokens[step]) << step;
    ++compared;
  }
  EXPECT_GE(compared, 28);
}

struct PagedExport {
  const char* name;
  int fused_inserts;  // of six layers; an integer cache's rounding stands before the insert
};

void PrintTo(const PagedExport& exported, std::ostream* out) { *out << exported.name; }

class PagedBuilderExport : public testing::TestWithParam<PagedExport> {};

TEST_P(PagedBuilderExport, GeneratesTheGreedyTokensOverPages) {
  const Greedy greedy = LoadGreedy(GetParam().name);
  const auto engine = Engine::Create(LoadBundled(GetParam().name), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto completions = (*engine)->Generate(
      {{.prompt = greedy.prompt, .max_new_tokens = static_cast<int64_t>(greedy.tokens.size())}});
  ASSERT_TRUE(completions.ok()) << completions.status();
  EXPECT_EQ((*completions)[0].tokens, greedy.tokens);
}

TEST_P(PagedBuilderExport, HasTheFusedOpsOfEveryLayer) {
  const auto engine = Engine::Create(LoadBundled(GetParam().name), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::map<std::string, int> fused;
  for (const auto& node : (*engine)->session().model().graph->nodes()) {
    if (node->domain() == "pagefuse") ++fused[node->op_type()];
    EXPECT_NE(node->op_type(), "GroupQueryAttention");
  }
  EXPECT_EQ(fused["PagedAttention"], 6);
  EXPECT_EQ(fused["GatedLinear"], 6);
  EXPECT_EQ(fused["RopeCacheInsert"], GetParam().fused_inserts);
  EXPECT_EQ(fused["RopeCacheInsert"] + fused["PagedCacheInsert"], 6);
}

INSTANTIATE_TEST_SUITE_P(Builder, PagedBuilderExport,
                         testing::Values(PagedExport{"gemma3_D_fp32", 6},
                                         PagedExport{"gemma3_D_kvint8", 0},
                                         PagedExport{"gemma3_D_paged", 6},
                                         PagedExport{"gemma3_D_windowed", 6}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ExpertExport, MultipliesByExpertsWithoutCopiesOfThem) {
  const auto session = Open("deepseek_v3_A18", /*optimise=*/true);
  ASSERT_NE(session, nullptr);
  int grouped = 0;
  for (const auto& node : session->model().graph->nodes()) {
    grouped += node->Is("GroupedMatMul", "pagefuse") ? 1 : 0;
    const bool gathers = node->Is("Gather") || node->Is("GatherND");
    const bool matrices =
        gathers && node->input(0)->shape() && node->input(0)->shape()->rank() == 3;
    EXPECT_FALSE(matrices && node->input(0)->IsConstant()) << node->Description();
  }
  EXPECT_EQ(grouped, 6);  // two products in each of three layers
  for (int set = 0; set < CountDataSets("deepseek_v3_A18"); ++set) {
    const DataSet data = LoadDataSet("deepseek_v3_A18", set);
    const auto results = session->Run(data.inputs, {"logits"});
    ASSERT_TRUE(results.ok()) << results.status();
    // What a padded position attends to depends on the form: see the mask rule.
    const auto kept = [&](const Tensor& logits) {
      std::vector<float> all = FloatsOf(logits);
      const auto mask = data.inputs.at("attention_mask").values<int64_t>();
      const size_t row = all.size() / mask.size();
      for (size_t i = 0; i < all.size(); ++i) all[i] *= static_cast<float>(mask[i / row]);
      return all;
    };
    EXPECT_LE(MaxDifference(kept((*results)[0]), kept(data.outputs.at("logits"))), 1e-4) << set;
  }
}

}  // namespace
}  // namespace pagefuse
