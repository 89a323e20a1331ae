// SPDX-License-Identifier: Apache-2.0
// Attention written out and attention recognised, under masks of every form that broadcasts: the
// same numbers, for every size that the graph accepted.
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Feeds = std::map<std::string, Tensor>;
using Sizes = std::map<std::string, int64_t>;

Model Parse(const std::string& text) { return Must(ParseModel(text)); }

// A model after `passes`, and how often its rules fired.
struct Rewritten {
  Model model;
  std::map<std::string, int> counts;
};

Rewritten Rewrite(const Model& model, std::vector<std::string> passes) {
  Rewritten result{.model = model.Clone(), .counts = {}};
  const auto report = RunPipeline(result.model, {.passes = std::move(passes), .page = false});
  EXPECT_TRUE(report.ok()) << report.status();
  if (report.ok()) result.counts = report->counts;
  return result;
}

// Numbers and booleans for the inputs of a model, the symbols of its shapes being `sizes`.
Feeds RandomOfSizes(const Model& model, const Sizes& sizes, std::mt19937& random) {
  Feeds feeds;
  std::normal_distribution<float> normal;
  for (const Value* input : model.graph->inputs()) {
    std::vector<int64_t> dims;
    for (const Dim& dim : input->shape()->dims()) {
      dims.push_back(dim.constant() ? *dim.constant() : sizes.at(*dim.symbol()));
    }
    Tensor tensor = *Tensor::Allocate(input->dtype(), dims);
    if (input->dtype() == DataType::kBool) {
      for (bool& x : tensor.mutable_values<bool>()) x = random() % 4 != 0;
    } else {
      for (float& x : tensor.mutable_values<float>()) x = normal(random);
    }
    feeds.emplace(input->name(), std::move(tensor));
  }
  return feeds;
}

// Fails unless `after` gives what `before` gives; nothing is asked where `before` refuses the
// feeds. Rows that are NaN for want of a visible key are zeros after fusion, so NaN may differ
// where `nan_may_differ`. True if something was compared.
bool ExpectSame(const Model& before, const Model& after, const Feeds& feeds, bool nan_may_differ,
                const std::string& what) {
  const auto expected = EvaluateModel(before, feeds);
  if (!expected.ok()) return false;
  auto got = EvaluateModel(after, feeds);
  EXPECT_TRUE(got.ok()) << what << ": " << got.status();
  if (!got.ok()) return true;
  for (size_t i = 0; i < expected->size(); ++i) {
    Tensor& y = (*got)[i];
    const auto wanted = (*expected)[i].values<float>();
    EXPECT_EQ(y.dims(), (*expected)[i].dims()) << what;
    for (int64_t e = 0; nan_may_differ && e < y.size(); ++e) {
      if (std::isnan(wanted[e])) y.mutable_values<float>()[e] = kNan;
    }
    const absl::Status same = CompareTensors("y", (*expected)[i], y, 1e-5);
    EXPECT_TRUE(same.ok()) << what << ": " << same;
  }
  return true;
}

struct MaskForm {
  const char* dims;
  bool is_recognised;  // else the mask may make the scores larger than the op's
};

constexpr MaskForm kMaskForms[] = {
    {"S, T", true},        {"1, 1, S, T", true},  {"B, 1, 1, T", true},  {"B, 1, S, 1", true},
    {"1, 1, 1, 1", true},  {"T", true},           {"1", true},           {"B, 2, S, T", true},
    {"2, S, T", true},     {"2, 1, 1", true},     {"S, 1", true},        {"1, T", true},
    {"1, 1, 1, M", true},  {"B, 1, S, M", true},  {"M", true},           {"S, M", true},
    {"M, 1, S, T", false}, {"1, 1, M, T", false}, {"M, 1, 1, 1", false}, {"1, M, 1, 1", false}};

std::string WrittenOut(const MaskForm& form, bool is_bool, bool is_guarded, const char* keys) {
  return StrCat("<ir_version: 10, opset_import: [\"\" : 24]>\n", "g (float[B, 2, S, 4] q, float[",
                keys, "] k, float[", keys, "] v, ", is_bool ? "bool" : "float", "[", form.dims,
                R"(] mask) => (float[] y)
                <float scale = {0.5}, float zero = {0}, float hidden = {-inf}>
                {
                  kt = Transpose <perm = [0, 1, 3, 2]> (k)
                  raw = MatMul (q, kt)
                  scaled = Mul (raw, scale)
                )",
                is_bool ? "bias = Where (mask, zero, hidden)\n" : "bias = Identity (mask)\n",
                "masked = Add (scaled, bias)\n",
                is_guarded ? "soft = Softmax <axis = -1> (masked)\n broken = IsNaN (soft)\n"
                             "p = Where (broken, zero, soft)\n"
                           : "p = Softmax <axis = -1> (masked)\n",
                "y = MatMul (p, v) }");
}

const std::vector<Sizes> kSizes = {
    {{"B", 2}, {"S", 3}, {"T", 5}, {"M", 5}}, {{"B", 2}, {"S", 3}, {"T", 5}, {"M", 1}},
    {{"B", 1}, {"S", 3}, {"T", 5}, {"M", 3}}, {{"B", 2}, {"S", 1}, {"T", 5}, {"M", 2}},
    {{"B", 2}, {"S", 3}, {"T", 1}, {"M", 4}}, {{"B", 1}, {"S", 1}, {"T", 1}, {"M", 1}},
    {{"B", 1}, {"S", 9}, {"T", 9}, {"M", 9}}, {{"B", 3}, {"S", 1}, {"T", 2}, {"M", 3}}};

TEST(RecognisedAttention, GivesTheNumbersOfTheGraphUnderEveryMask) {
  std::mt19937 random(7);
  for (const MaskForm& form : kMaskForms) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool is_bool = variant % 2 == 1, is_guarded = variant / 2 == 1;
      const std::string text = WrittenOut(form, is_bool, is_guarded, "B, 2, T, 4");
      const Model before = Parse(text);
      const Rewritten after = Rewrite(before, {"simplify-shapes", "attention", "attention-mask"});
      EXPECT_EQ(after.counts.contains("attention"), form.is_recognised) << text;
      int compared = 0;
      for (const Sizes& sizes : kSizes) {
        const Feeds feeds = RandomOfSizes(before, sizes, random);
        compared += ExpectSame(before, after.model, feeds, !is_guarded, text);
      }
      EXPECT_GE(compared, 2) << text;
    }
  }
}

TEST(RecognisedAttention, GivesTheNumbersOfTheGraphForEveryBatchAndHead) {
  std::mt19937 random(11);
  for (const char* keys : {"B, 2, T, 4", "1, 2, T, 4", "M, 2, T, 4", "B, 1, T, 4", "B, M, T, 4"}) {
    const std::string text = WrittenOut({"1, 1, S, T", true}, false, false, keys);
    const Model before = Parse(text);
    const Rewritten after = Rewrite(before, {"simplify-shapes", "attention"});
    int compared = 0;
    for (const Sizes& sizes : kSizes) {
      const Feeds feeds = RandomOfSizes(before, sizes, random);
      compared += ExpectSame(before, after.model, feeds, false, text);
    }
    EXPECT_GE(compared, 2) << text;
  }
}

TEST(RecognisedAttention, GivesTheNumbersOfTheGraphWhenRaisedFromOpset23) {
  std::mt19937 random(13);
  for (const MaskForm& form : kMaskForms) {
    for (const char* type : {"float", "bool"}) {
      const std::string text = StrCat(
          "<ir_version: 10, opset_import: [\"\" : 23]>\ng (float[B, 2, S, 4] q, float[B, 1, T, 4] "
          "k, float[B, 1, T, 4] v, ",
          type, "[", form.dims,
          "] mask) => (float[B, 2, S, 4] y) { y = Attention (q, k, v, mask) }");
      const Model before = Parse(text);
      const Rewritten after = Rewrite(before, {"raise-opset"});
      EXPECT_EQ(after.model.OpsetVersion(""), 24) << text;
      int compared = 0;
      for (const Sizes& sizes : kSizes) {
        const Feeds feeds = RandomOfSizes(before, sizes, random);
        compared += ExpectSame(before, after.model, feeds, false, text);
      }
      EXPECT_GE(compared, 1) << text;
    }
  }
}

// Attention without a mask behind a guard, of one head.
constexpr std::string_view kGuarded = R"(
  <ir_version: 10, opset_import: ["" : 24]>
  g (float[1, 1, S, 4] q, float[1, 1, T, 4] k, float[1, 1, T, 4] v) => (float[1, 1, S, 4] y)
  <float scale = {0.5}, float zero = {0}>
  {
    kt = Transpose <perm = [0, 1, 3, 2]> (k)
    raw = MatMul (q, kt)
    scaled = Mul (raw, scale)
    soft = Softmax <axis = -1> (scaled)
    broken = IsNaN (soft)
    p = Where (broken, zero, soft)
    y = MatMul (p, v)
  })";

// One element of an input of kGuarded takes a number; row `row` of the result must be zeros.
struct Break {
  const char* input;
  int64_t element;
  float number;
  int64_t zero_row;  // -1: all rows
};

class GuardedAttention : public testing::TestWithParam<Break> {};
INSTANTIATE_TEST_SUITE_P(Numbers, GuardedAttention,
                         testing::Values(Break{"q", 4, kNan, 1}, Break{"q", 4, kInfinity, 1},
                                         Break{"q", 44, -kInfinity, 11}, Break{"k", 9, kNan, -1}));

TEST_P(GuardedAttention, GivesZerosWhereScoresAreNotFinite) {
  const Break& one = GetParam();
  const Model before = Parse(std::string(kGuarded));
  const Rewritten after = Rewrite(before, {"attention"});
  ASSERT_TRUE(after.counts.contains("attention-unmasked"));
  for (const int64_t keys : {1, 3, 17}) {
    std::mt19937 random(17);
    Feeds feeds = RandomOfSizes(before, {{"S", 12}, {"T", keys}}, random);
    if (one.element >= feeds.at(one.input).size()) continue;
    feeds.at(one.input).mutable_values<float>()[one.element] = one.number;
    const auto expected = Must(EvaluateModel(before, feeds));
    const int64_t row = one.zero_row < 0 ? 5 : one.zero_row;
    EXPECT_EQ(expected[0].values<float>()[row * 4], 0) << "the guard is not what is tested";
    for (const char* kernel : {"", "reference"}) {
      const auto got = Must(EvaluateModel(after.model, feeds, {.force_kernel = kernel}));
      const absl::Status same = CompareTensors("y", expected[0], got[0], 1e-5);
      EXPECT_TRUE(same.ok()) << same << " with " << keys << " keys, kernel \"" << kernel << "\"";
    }
  }
}

}  // namespace
}  // namespace pagefuse
