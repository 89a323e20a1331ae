// SPDX-License-Identifier: Apache-2.0
// Ops in the forms of opsets 9 to 12, with what ONNX Runtime gives for them: as they are, and raised
// to the canonical opset.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"
#include "recorded_op.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

std::vector<std::string> Folders() { return FindTestCases(TestDataPath("older_opsets")); }

class OlderForm : public RecordedOp {};

TEST_P(OlderForm, GivesWhatOnnxRuntimeGives) {
  EXPECT_LT(case_.model.OpsetVersion(""), 13);
  CheckEveryKernel();
}

TEST_P(OlderForm, GivesTheSameWhenRaised) {
  Must(RunPipeline(case_.model, {.passes = {"raise-opset"}}));
  EXPECT_EQ(case_.model.OpsetVersion(""), 24);
  Check({});
}

INSTANTIATE_TEST_SUITE_P(All, OlderForm, ::testing::ValuesIn(Folders()), RecordedOp::Name);

// A suite without cases would pass.
TEST(OlderForms, AreFound) { EXPECT_GE(Folders().size(), 40u); }

absl::Status StatusOf(const std::string& opset, const std::string& node) {
  Model model = Must(ParseModel("<ir_version: 8, opset_import: [\"\" : " + opset +
                                "]>\ng (float[2, 3] x) => (y) { " + node + " }"));
  return RunPipeline(model, {.passes = {"inline-functions"}}).status();
}

TEST(OlderForms, DoNotHaveAttributesOfLaterOpsets) {
  const std::string node = "[\"sizes\"] y = Shape <start = 1> (x)";
  EXPECT_TRUE(StatusOf("15", node).ok());
  EXPECT_EQ(
      std::string(StatusOf("14", node).message()),
      "pass \"inline-functions\": node \"sizes\" (Shape): attribute \"start\": expected opset 15 or "
      "later, got opset 14");
}

}  // namespace
}  // namespace pagefuse
