// SPDX-License-Identifier: Apache-2.0
// By which rule the outputs of a case are compared, and what is left out.
#include "tools/check/case_outputs.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;

Tensor Of(DataType type, const std::vector<float>& values) {
  Tensor tensor = *Tensor::Allocate(type, {static_cast<int64_t>(values.size())});
  EXPECT_TRUE(EncodeFromFloat(type, values.data(), tensor.size(), tensor.mutable_data()).ok());
  return tensor;
}

TestCase CaseOf(bool single_op, DataType computed) {
  TestCase test_case;
  test_case.single_op = single_op;
  test_case.computed = computed;
  return test_case;
}

// Whether `got` may stand for `want` in an output of that type.
bool Passes(const TestCase& test_case, DataType type, float want, float got) {
  const Tensor expected = Of(type, {want});
  return CompareTensors(RuleFor(test_case, "y", expected), Of(type, {got}), expected).ok();
}

TEST(RuleFor, SingleOpsInHalfMayDifferByTwoUnitsInTheLastPlace) {
  const TestCase half = CaseOf(true, DataType::kFloat16);
  EXPECT_TRUE(Passes(half, DataType::kFloat16, 1, 1 + 2 * 0x1p-10f));
  EXPECT_FALSE(Passes(half, DataType::kFloat16, 1, 1 + 3 * 0x1p-10f));
  EXPECT_FALSE(Passes(half, DataType::kFloat16, 0, 0.001f));
  EXPECT_TRUE(Passes(half, DataType::kFloat16, NAN, NAN));
  EXPECT_FALSE(Passes(half, DataType::kFloat16, 1, NAN));
  const TestCase brain = CaseOf(true, DataType::kBfloat16);
  EXPECT_TRUE(Passes(brain, DataType::kBfloat16, 1, 1 + 2 * 0x1p-7f));
  EXPECT_FALSE(Passes(brain, DataType::kBfloat16, 1, 1 + 3 * 0x1p-7f));
}

TEST(RuleFor, WholeGraphsInHalfMayDifferByAHundredth) {
  const TestCase half = CaseOf(false, DataType::kFloat16);
  EXPECT_TRUE(Passes(half, DataType::kFloat16, 0.1f, 0.109f));
  EXPECT_FALSE(Passes(half, DataType::kFloat16, 0.1f, 0.111f));
  // Two units in the last place of large numbers are more than that.
  EXPECT_TRUE(Passes(half, DataType::kFloat16, 64, 64 + 2 * 0.0625f));
  EXPECT_FALSE(Passes(half, DataType::kFloat16, 64, 64 + 3 * 0.0625f));
  // Logits that are cast to float at the end are as exact as what they are cast from.
  EXPECT_TRUE(Passes(half, DataType::kFloat, 0.1f, 0.109f));
  EXPECT_FALSE(Passes(half, DataType::kFloat, 0.1f, 0.111f));
  const TestCase brain = CaseOf(false, DataType::kBfloat16);
  EXPECT_TRUE(Passes(brain, DataType::kFloat, 0.1f, 0.17f));
  EXPECT_FALSE(Passes(brain, DataType::kFloat, 0.1f, 0.19f));
}

TEST(RuleFor, FloatIsComparedAsBefore) {
  for (const bool single : {true, false}) {
    const TestCase test_case = CaseOf(single, DataType::kFloat);
    EXPECT_TRUE(Passes(test_case, DataType::kFloat, 1, 1.0009f));
    EXPECT_FALSE(Passes(test_case, DataType::kFloat, 1, 1.0012f));
    EXPECT_FALSE(Passes(test_case, DataType::kFloat, 0, 1e-5f));
  }
  TestCase decoder = CaseOf(false, DataType::kFloat);
  decoder.whole_model = true;
  EXPECT_TRUE(Passes(decoder, DataType::kFloat, 0, 0.9e-4f));
  EXPECT_FALSE(Passes(decoder, DataType::kFloat, 0, 1.2e-4f));
}

TEST(RuleFor, NamedRulesComeFirst) {
  TestCase test_case = CaseOf(false, DataType::kFloat16);
  test_case.rules["y"] = {.kind = CompareRule::Kind::kAllclose, .atol = 0.5};
  EXPECT_TRUE(Passes(test_case, DataType::kFloat16, 0.1f, 0.4f));
}

// A decoder [B, S] -> [B, S, 1] and [B, 1, S, 1] whose first sequence begins with padding.
TestCase PaddedCase() {
  TestCase test_case;
  test_case.model = *ParseModel(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (int64[B, S] input_ids, int64[B, S] attention_mask)
      => (float[B, S, 1] logits, float[B, 1, S, 1] present) {
      logits = Identity (input_ids)
      present = Identity (input_ids)
    })");
  TestDataSet data = {.name = "test_data_set_0", .feeds = {}, .outputs = {}};
  data.feeds["input_ids"] = Tensor::Of<int64_t>({2, 2}, {0, 1, 2, 3});
  data.feeds["attention_mask"] = Tensor::Of<int64_t>({2, 2}, {0, 1, 1, 1});
  data.outputs = {Tensor::Of<float>({2, 2, 1}, {9, 1, 2, 3}),
                  Tensor::Of<float>({2, 1, 2, 1}, {9, 1, 2, 3})};
  test_case.data_sets = {data};
  return test_case;
}

std::vector<Tensor> Outputs(float padded, float kept) {
  return {Tensor::Of<float>({2, 2, 1}, {padded, kept, 2, 3}),
          Tensor::Of<float>({2, 1, 2, 1}, {NAN, kept, 2, 3})};
}

TEST(CompareOutputs, LeavesOutRowsOfPaddingAndSaysSo) {
  const TestCase test_case = PaddedCase();
  const TestDataSet& data = test_case.data_sets[0];
  std::vector<std::string> notes;
  EXPECT_TRUE(CompareOutputs(test_case, data, Outputs(-7, 1), &notes).ok());
  EXPECT_THAT(notes,
              ElementsAre("test_data_set_0: 1 tokens are padding, their rows were not compared"));
  EXPECT_FALSE(CompareOutputs(test_case, data, Outputs(9, 1.5f), nullptr).ok());
}

TEST(CompareOutputs, SaysWhereNothingWasCompared) {
  TestCase test_case = PaddedCase();
  EXPECT_TRUE(HasExpectedOutputs(test_case));
  test_case.data_sets[0].outputs.clear();
  EXPECT_FALSE(HasExpectedOutputs(test_case));
  std::vector<std::string> notes;
  EXPECT_TRUE(CompareOutputs(test_case, test_case.data_sets[0], Outputs(0, 0), &notes).ok());
  EXPECT_THAT(notes, ElementsAre("test_data_set_0: no output files, nothing was compared"));
}

TEST(CheckDataFits, NamesTheInputThatIsAnother) {
  TestCase test_case = PaddedCase();
  EXPECT_TRUE(CheckDataFits(test_case).ok());
  auto& feeds = test_case.data_sets[0].feeds;
  feeds["attention_mask"] = Tensor::Of<int32_t>({2, 2}, {0, 1, 1, 1});
  EXPECT_EQ(CheckDataFits(test_case).message(),
            "the case contradicts itself: input \"attention_mask\" is declared as int64[B, S], its "
            "data is int32[2, 2]");
  feeds["attention_mask"] = Tensor::Of<int64_t>({4}, {0, 1, 1, 1});
  EXPECT_EQ(CheckDataFits(test_case).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace pagefuse
