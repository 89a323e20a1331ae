// Ops of com.microsoft as ONNX Runtime's tools leave them in GPT-2 and BERT, with what ONNX Runtime
// gives for them: by every kernel, and written out in standard ops.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "paths.h"
#include "tools/testcase.h"

#include "pagefuse/ops/evaluate.h"
#include "pagefuse/passes/pipeline.h"

namespace pagefuse {
namespace {

std::vector<std::string> Folders() { return FindTestCases(SourcePath("tests/microsoft_ops")); }

class MicrosoftOp : public ::testing::TestWithParam<std::string> {
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

TEST_P(MicrosoftOp, GivesWhatOnnxRuntimeGives) {
  for (const char* kernel : {"reference", ""}) Check({.force_kernel = kernel});
}

TEST_P(MicrosoftOp, GivesTheSameWrittenOut) {
  const std::string op = case_.model.graph->nodes().front()->op_type();
  const auto report = RunPipeline(case_.model, {.passes = {"raise-opset", "microsoft-ops"}});
  ASSERT_TRUE(report.ok()) << report.status();
  const bool is_written = op == "Attention" || op == "EmbedLayerNormalization";
  EXPECT_EQ(case_.model.graph->nodes().size() > 1, is_written);
  Check({});
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return info.param.substr(info.param.rfind('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(All, MicrosoftOp, ::testing::ValuesIn(Folders()), NameOf);

// A suite without cases would pass.
TEST(MicrosoftOps, AreFound) { EXPECT_GE(Folders().size(), 24u); }

}  // namespace
}  // namespace pagefuse
