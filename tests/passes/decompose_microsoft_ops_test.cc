// SPDX-License-Identifier: Apache-2.0
// Ops of com.microsoft as ONNX Runtime's tools leave them in GPT-2 and BERT, with what ONNX Runtime
// gives for them: by every kernel, and written out in standard ops.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"
#include "recorded_op.h"

#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

std::vector<std::string> Folders() { return FindTestCases(TestDataPath("microsoft_ops")); }

class MicrosoftOp : public RecordedOp {};

TEST_P(MicrosoftOp, GivesWhatOnnxRuntimeGives) { CheckEveryKernel(); }

TEST_P(MicrosoftOp, GivesTheSameWrittenOut) {
  const std::string op = case_.model.graph->nodes().front()->op_type();
  Must(RunPipeline(case_.model, {.passes = {"raise-opset", "decompose-microsoft-ops"}}));
  const bool is_written = op == "Attention" || op == "EmbedLayerNormalization";
  EXPECT_EQ(case_.model.graph->nodes().size() > 1, is_written);
  Check({});
}

INSTANTIATE_TEST_SUITE_P(All, MicrosoftOp, ::testing::ValuesIn(Folders()), RecordedOp::Name);

// A suite without cases would pass.
TEST(MicrosoftOps, AreFound) { EXPECT_GE(Folders().size(), 24u); }

}  // namespace
}  // namespace pagefuse
