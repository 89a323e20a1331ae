// SPDX-License-Identifier: Apache-2.0
// The guard of exporters against NaN, through recognition, paging and the paged kernels.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

constexpr int64_t kVocabulary = 7, kWidth = 16;
constexpr int64_t kBroken = 3;  // the token whose queries are infinite

// Attention written out, of two heads of 8 channels; a guard behind its softmax.
constexpr std::string_view kText = R"(
<ir_version: 10, opset_import: ["" : 24]>
decoder (int64[B, S] input_ids) => (float[B, S, 16] logits)
<int64[4] split = {0, 0, 2, 8}, int64[3] join = {0, 0, 16}, int64 zero = {0}, int64 one = {1},
 int64[1] first = {0}, int64[1] second = {1}, float visible = {0}, float hidden = {-inf},
 float scale = {0.5}$tables>
{
  q_rows = Gather (q_table, input_ids)
  k_rows = Gather (k_table, input_ids)
  v_rows = Gather (v_table, input_ids)
  q_heads = Reshape (q_rows, split)
  k_heads = Reshape (k_rows, split)
  v_heads = Reshape (v_rows, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q_heads)
  k_turned = Transpose <perm = [0, 2, 1, 3]> (k_heads)
  k = Neg (k_turned)
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  length_1 = Shape <start = 1, end = 2> (input_ids)
  length = Squeeze (length_1)
  range = Range (zero, length, one)
  i = Unsqueeze (range, second)
  j = Unsqueeze (range, first)
  causal = LessOrEqual (j, i)
  mask = Where (causal, visible, hidden)
  raw = MatMul (q, kt)
  scaled = Mul (raw, scale)
  masked = Add (scaled, mask)
  soft = Softmax <axis = -1> (masked)
  broken = IsNaN (soft)
  p = Where (broken, visible, soft)
  y = MatMul (p, v)
  rows = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (rows, join)
}
)";

Model GuardedDecoder() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::string tables;
  for (const char* name : {"q_table", "k_table", "v_table"}) {
    StrAppend(&tables, ", float[", kVocabulary, ", ", kWidth, "] ", name, " = {");
    for (int64_t i = 0; i < kVocabulary * kWidth; ++i) {
      const bool breaks = name[0] == 'q' && i / kWidth == kBroken;
      StrAppend(&tables, i == 0 ? "" : ", ", breaks ? "inf" : StrCat(normal(random)));
    }
    tables += "}";
  }
  std::string text(kText);
  text.replace(text.find("$tables"), 7, tables);
  return Must(ParseModel(text));
}

std::vector<float> Expected(const Model& model, const std::vector<int64_t>& ids) {
  const Tensor tensor = Tensor::Of<int64_t>({1, static_cast<int64_t>(ids.size())}, ids);
  const auto outputs = Must(EvaluateModel(model, {{"input_ids", tensor}}));
  const auto logits = outputs[0].values<float>();
  return {logits.begin(), logits.end()};
}

// Attention has the guard itself.
void ExpectNoNodeForTheGuard(const Graph& graph) {
  int attentions = 0;
  for (const auto& node : graph.nodes()) {
    EXPECT_FALSE(node->Is("IsNaN") || node->Is("Elementwise", "pagefuse")) << node->Description();
    if (!node->Is("PagedAttention", "pagefuse")) continue;
    ++attentions;
    EXPECT_EQ(Must(node->FloatAttribute("nan_value", -1)), 0);
  }
  EXPECT_EQ(attentions, 1);
}

// Tokens in one step, or one a step.
class GuardedRows : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(TokensAStep, GuardedRows, testing::Values(40, 3, 1));

TEST_P(GuardedRows, ArePagedAsZeros) {
  const Model model = GuardedDecoder();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 40; ++i) ids.push_back(i * 5 % kVocabulary);
  const std::vector<float> expected = Expected(model, ids);
  ASSERT_TRUE(
      std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); }));

  auto paged = Must(PagedModel::Create(model.Clone(), {.all_logits = true}));
  ExpectNoNodeForTheGuard(*paged->session().model().graph);
  ASSERT_TRUE(paged->Reserve({40}, 40).ok());
  const SequenceId sequence = paged->cache().AddSequence();
  std::vector<float> got;
  for (size_t begin = 0; begin < ids.size(); begin += GetParam()) {
    const size_t end = std::min(begin + GetParam(), ids.size());
    const std::vector<int64_t> step(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                    ids.begin() + static_cast<std::ptrdiff_t>(end));
    const auto logits = Must(paged->Step({{sequence, step}}));
    const auto rows = logits.values<float>();
    got.insert(got.end(), rows.begin(), rows.end());
  }

  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-5) << "token " << i / kWidth;
    if (ids[i / kWidth] == kBroken) {
      EXPECT_EQ(got[i], 0) << "token " << i / kWidth;
    }
  }
}

}  // namespace
}  // namespace pagefuse
