// SPDX-License-Identifier: Apache-2.0
// Wrong rules, one at a time in the pipeline of an export: the comparison at load finds each, names it and its place, and lets
// the decoder run without it.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/decoder.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Planted {
  const char* name;
  const char* model;
  const char* ports;  // of pattern and replacement
  const char* pattern;
  const char* replacement;
  const char* before = "rms-norm";
};
void PrintTo(const Planted& planted, std::ostream* os) { *os << planted.name; }

const Planted kPlanted[] = {
    {"sine-as-cosine", "gemma3_B18", "(x) => (y)", "y = Sin (x)", "y = Cos (x)"},
    {"negative-factor", "gemma3_A18", "(x) => (y)", "y = Reciprocal (x)", "y = Neg (x)"},
    {"lost-sign", "gemma3_A18", "(x) => (y)", "y = Neg (x)", "y = Abs (x)"},
    {"other-activation", "gemma3_B18", "(x) => (y)", "y = Tanh (x)", "y = Sigmoid (x)"},
    {"mask-without-own-token", "gemma3_A18", "(a, b) => (y)", "y = LessOrEqual (a, b)",
     "y = Less (a, b)"},
    {"window-of-one-more", "gemma3_B18", "(a, b) => (y)", "y = Greater (a, b)",
     "y = GreaterOrEqual (a, b)"},
    {"lost-condition", "gemma3_A18", "(a, b) => (y)", "y = And (a, b)", "y = Or (a, b)"},
    {"root-of-nothing", "gemma3_B18", "(x) => (y)", "y = Sqrt (x)", "y = Abs (x)"},
    {"other-gate", "deepseek_v3_A18", "(x) => (y)", "y = Sigmoid (x)", "y = Tanh (x)"},
    {"smallest-experts", "deepseek_v3_A18", "(x, k) => (v, i)", "v, i = TopK <sorted = 0> (x, k)",
     "v, i = TopK <largest = 0> (x, k)"},
    {"changed-norm", "gemma3_B18", "(x, w) => (y)",
     "y = RMSNormalization <axis = -1, epsilon: float = 1e-6> (x, w)",
     "y = RMSNormalization <axis = -1, epsilon: float = 0.5> (x, w)", "gated-mlp"},
    {"changed-activation", "gemma3_A18", "(x) => (y)", "y = Gelu <approximate = \"tanh\"> (x)",
     "y = Relu (x)", "gated-mlp"},
};

// Seconds, so that all probes run beside whatever else the machine does.
constexpr double kEnough = 600;

class PlantedRule : public testing::TestWithParam<Planted> {
 protected:
  static Model Load() {
    return Must(LoadModel(SourcePath(StrCat("models/", GetParam().model, "/model.onnx"))));
  }
  static EngineOptions Options() {
    const Planted& planted = GetParam();
    EngineOptions options;
    options.session.pipeline.rules = {
        {.path = "planted.rules.txt",
         .text = StrCat("# rule: ", planted.name, "\n# before: ", planted.before, "\n",
                        planted.ports, " { ", planted.pattern, " }\n# ---- after\n", planted.ports,
                        " { ", planted.replacement, " }\n")}};
    return options;
  }
};

TEST_P(PlantedRule, IsFoundNamedAndLeftOut) {
  const DecoderOptions always{.check_paging = CheckPaging::kAlways, .check_seconds = kEnough};
  const auto decoder = Must(Decoder::Create([] { return Load(); }, Options(), always));
  ASSERT_TRUE(decoder->verdict());
  const RewriteVerdict& verdict = *decoder->verdict();
  EXPECT_EQ(verdict.outcome, RewriteVerdict::Outcome::kMended) << verdict.Text();
  EXPECT_THAT(verdict.left_out, ElementsAre(GetParam().name));
  EXPECT_THAT(verdict.reason, HasSubstr(StrCat("rule ", GetParam().name, " at \"")));
  ASSERT_NE(decoder->engine(), nullptr) << decoder->why_not_paged();
  const std::vector<Request> requests = {{.prompt = {2, 9, 4, 17, 5}, .max_new_tokens = 8}};
  const auto right = Must(Decoder::Create([] { return Load(); }, {}, {.require_paged = true}));
  EXPECT_EQ(Must(decoder->Generate(requests))[0].tokens, Must(right->Generate(requests))[0].tokens);
}

TEST_P(PlantedRule, IsAnErrorWherePagesAreRequired) {
  const auto status =
      Decoder::Create(
          [] { return Load(); }, Options(),
          {.require_paged = true, .check_paging = CheckPaging::kAlways, .check_seconds = kEnough})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

INSTANTIATE_TEST_SUITE_P(Rules, PlantedRule, testing::ValuesIn(kPlanted));

}  // namespace
}  // namespace pagefuse
