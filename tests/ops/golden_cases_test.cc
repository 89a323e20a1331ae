// SPDX-License-Identifier: Apache-2.0
// Every case of tests/golden, through every kernel of its op on every SIMD target, and through the
// op's decomposition.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"
#include "simd_targets.h"
#include "tools/check/testcase.h"

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

std::vector<std::string> GoldenFolders() { return FindTestCases(TestDataPath("golden")); }

ModelRunner RunnerFor(EvaluateOptions options) {
  return [options](const Model& model, const std::map<std::string, Tensor>& feeds) {
    return EvaluateModel(model, feeds, options);
  };
}

class GoldenCase : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    case_ = Must(LoadTestCase(GetParam()));
    const Node& node = *case_.model.graph->nodes().front();
    op_ = OpRegistry::Global().Find(node.domain(), node.op_type(), 1);
    ASSERT_NE(op_, nullptr) << node.op_type();
  }
  void Check(const EvaluateOptions& options) {
    const absl::Status status = CheckTestCase(case_, RunnerFor(options));
    EXPECT_TRUE(status.ok()) << status;
  }

  TestCase case_;
  const OpDef* op_ = nullptr;
};

TEST_P(GoldenCase, PassesInEveryKernelOnEveryTarget) {
  ASSERT_FALSE(op_->kernels().empty());
  for (const Kernel& kernel : op_->kernels()) {
    if (kernel.device != Device::kCpu) continue;
    SCOPED_TRACE("kernel " + kernel.name);
    testing::ForEachSimdTarget([&] { Check({.force_kernel = kernel.name}); });
  }
}

// The cases with an answer; a decomposition checks nothing.
class GoldenAnswer : public GoldenCase {};

TEST_P(GoldenAnswer, PassesAsDecomposition) {
  ASSERT_TRUE(op_->has_decomposition());
  Check({.decompose = true});
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  const std::string& path = info.param;
  const size_t op = path.rfind('/', path.rfind('/') - 1) + 1;
  std::string name = path.substr(op);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

std::vector<std::string> FoldersWithAnswers() {
  std::vector<std::string> folders = GoldenFolders();
  std::erase_if(folders,
                [](const std::string& path) { return path.find("/err_") != std::string::npos; });
  return folders;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCase, ::testing::ValuesIn(GoldenFolders()), NameOf);
INSTANTIATE_TEST_SUITE_P(All, GoldenAnswer, ::testing::ValuesIn(FoldersWithAnswers()), NameOf);

// A suite without cases would pass.
TEST(GoldenCases, AreFound) { EXPECT_GE(GoldenFolders().size(), 28u); }

}  // namespace
}  // namespace pagefuse
