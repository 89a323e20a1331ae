// Ops in the forms of opsets 9 to 12, with what ONNX Runtime gives for them: as they are, and raised
// to the canonical opset.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "paths.h"
#include "tools/testcase.h"

#include "pagefuse/ops/evaluate.h"
#include "pagefuse/passes/pipeline.h"

namespace pagefuse {
namespace {

std::vector<std::string> Folders() { return FindTestCases(SourcePath("tests/older_opsets")); }

class OlderForm : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<TestCase> loaded = LoadTestCase(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    case_ = *std::move(loaded);
  }
  void Check(const EvaluateOptions& options) const {
    const absl::Status status =
        CheckTestCase(case_, [&](const Model& model, const std::map<std::string, Tensor>& feeds) {
          return EvaluateModel(model, feeds, options);
        });
    EXPECT_TRUE(status.ok()) << status;
  }

  TestCase case_;
};

TEST_P(OlderForm, GivesWhatOnnxRuntimeGives) {
  EXPECT_LT(case_.model.OpsetVersion(""), 13);
  for (const char* kernel : {"reference", ""}) Check({.force_kernel = kernel});
}

TEST_P(OlderForm, GivesTheSameWhenRaised) {
  const auto report = RunPipeline(case_.model, {.passes = {"raise-opset"}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(case_.model.OpsetVersion(""), 24);
  Check({});
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return info.param.substr(info.param.rfind('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(All, OlderForm, ::testing::ValuesIn(Folders()), NameOf);

// A suite without cases would pass.
TEST(OlderForms, AreFound) { EXPECT_GE(Folders().size(), 40u); }

}  // namespace
}  // namespace pagefuse
