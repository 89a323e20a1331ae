// SPDX-License-Identifier: Apache-2.0
// Tests of one-node models in folders of inputs and of what ONNX Runtime gives for them.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "must.h"
#include "tools/check/testcase.h"

#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse {

// The parameter is the folder.
class RecordedOp : public ::testing::TestWithParam<std::string> {
 public:
  static std::string Name(const ::testing::TestParamInfo<std::string>& info) {
    return info.param.substr(info.param.rfind('/') + 1);
  }

 protected:
  void SetUp() override { case_ = Must(LoadTestCase(GetParam())); }
  void Check(const EvaluateOptions& options) const {
    const absl::Status status =
        CheckTestCase(case_, [&](const Model& model, const std::map<std::string, Tensor>& feeds) {
          return EvaluateModel(model, feeds, options);
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  void CheckEveryKernel() const {
    for (const char* kernel : {"reference", ""}) Check({.force_kernel = kernel});
  }

  TestCase case_;
};

}  // namespace pagefuse
