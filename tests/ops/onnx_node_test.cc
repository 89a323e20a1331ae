// SPDX-License-Identifier: Apache-2.0
// Runs the conformance cases under tests/onnx_node: a model, inputs, and the outputs that the
// standard gives.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

fs::path CasesDir() {
  // Another folder of cases may be named, to run the whole suite of the standard.
  const char* other = std::getenv("PAGEFUSE_ONNX_NODE_CASES");
  return other != nullptr ? fs::path(other) : fs::path(TestDataPath("onnx_node"));
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(CasesDir())) {
    if (fs::exists(entry.path() / "model.onnx")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// rtol and atol of the standard's own test suite; 16-bit floats get what two roundings differ by.
double RelativeTolerance(DataType type) {
  if (type == DataType::kFloat16) return 2e-3;
  if (type == DataType::kBfloat16) return 1.6e-2;
  return IsFloatingPoint(type) ? 1e-3 : 0;
}

void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(DataTypeName(got.dtype()), DataTypeName(want.dtype()));
  ASSERT_EQ(got.dims(), want.dims());
  std::vector<double> a(got.size()), b(want.size());
  ASSERT_TRUE(DecodeToDouble(got.dtype(), got.data(), got.size(), a.data()).ok());
  ASSERT_TRUE(DecodeToDouble(want.dtype(), want.data(), want.size(), b.data()).ok());
  const double rtol = RelativeTolerance(want.dtype());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ASSERT_LE(std::abs(a[i] - b[i]), 1e-7 + rtol * std::abs(b[i]))
        << "element " << i << ": got " << a[i] << ", want " << b[i];
  }
}

class OnnxNodeTest : public testing::TestWithParam<std::string> {
 protected:
  void Run(const std::string& kernel) {
    const fs::path dir = CasesDir() / GetParam();
    const Model model = Must(LoadModel((dir / "model.onnx").string()));
    std::map<std::string, Tensor> feeds;
    const fs::path data = dir / "test_data_set_0";
    for (size_t i = 0; i < model.graph->inputs().size(); ++i) {
      const std::string file = (data / ("input_" + std::to_string(i) + ".pb")).string();
      std::string name;
      Tensor tensor = Must(LoadTensor(file, &name));
      feeds[model.graph->inputs()[i]->name()] = std::move(tensor);
    }
    EvaluateOptions options;
    options.force_kernel = kernel;
    const std::vector<Tensor> outputs = Must(EvaluateModel(model, feeds, options));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string file = (data / ("output_" + std::to_string(i) + ".pb")).string();
      std::string name;
      const Tensor want = Must(LoadTensor(file, &name));
      SCOPED_TRACE("output " + std::to_string(i));
      ExpectClose(outputs[i], want);
    }
  }
};

TEST_P(OnnxNodeTest, ReferenceGivesTheStandardsOutputs) { Run("reference"); }

TEST_P(OnnxNodeTest, BestKernelGivesTheStandardsOutputs) { Run(""); }

INSTANTIATE_TEST_SUITE_P(Cases, OnnxNodeTest, testing::ValuesIn(CaseNames()),
                         [](const auto& info) { return info.param; });

TEST(OnnxNode, CasesAreThere) { EXPECT_GE(CaseNames().size(), 20u); }

}  // namespace
}  // namespace pagefuse
