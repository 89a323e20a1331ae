// SPDX-License-Identifier: Apache-2.0
// Libraries that were compiled with ONNX Runtime's own headers, for C and C++, as ops of ours.
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hosted.h"
#include "must.h"

#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OrtHeaderLibraries : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* path : {PAGEFUSE_THIRD_PARTY_C, PAGEFUSE_THIRD_PARTY_CXX}) {
      const auto ops = Must(OpsOfLibrary(path));
      Must(Publish(ops));
    }
  }

  static std::vector<Tensor> Run(const std::string& ports, const std::string& body,
                                 const std::map<std::string, Tensor>& feeds) {
    return Must(RunModel(ThirdPartyModel(ports, body), feeds));
  }
};

TEST_F(OrtHeaderLibraries, PlainC) {
  const auto y =
      Run("(float[N] x, float[M] z) => (float[N] y, float[N] y0, float[L] longest)",
          "  b = Constant <value = float {0.5}> ()\n"
          "  y = third.party.c.Affine <a = 2.0> (x, b)\n"
          "  y0 = third.party.c.Affine <a = -1.0> (x)\n"
          "  longest = third.party.c.Longest (x, z, y)",
          {{"x", Tensor::Of<float>({2}, {1, 2})}, {"z", Tensor::Of<float>({3}, {7, 8, 9})}});
  EXPECT_THAT(Floats(y[0]), ElementsAre(2.5, 4.5));
  EXPECT_THAT(Floats(y[1]), ElementsAre(-1, -2));
  EXPECT_THAT(Floats(y[2]), ElementsAre(7, 8, 9));
}

TEST_F(OrtHeaderLibraries, FunctionsAsOps) {
  const auto y = Run("(float[N] x, int64[P] places, float[1] f) => (float[M] some, float[P] mixed)",
                     "  some = third.party.cxx.Filter (x)\n"
                     "  mixed = third.party.cxx.Mix (x, places, f)",
                     {{"x", Tensor::Of<float>({4}, {1, -2, 3, -4})},
                      {"places", Tensor::Of<int64_t>({3}, {3, 0, 0})},
                      {"f", Tensor::Of<float>({1}, {10})}});
  EXPECT_THAT(Floats(y[0]), ElementsAre(1, 3));
  EXPECT_THAT(Floats(y[1]), ElementsAre(-40, 10, 10));
}

TEST_F(OrtHeaderLibraries, StructsReadAttributes) {
  const auto y =
      Run("(double[N] x) => (double[N] y)",
          "  y = third.party.cxx.Power <exponent = 2.0, label = \"abc\", offsets = [10, 20]> (x)",
          {{"x", Tensor::Of<double>({2}, {2, 3})}});
  EXPECT_THAT(y[0].values<double>(), ElementsAre(37, 42));
}

TEST_F(OrtHeaderLibraries, InputsAndOutputsOfAnyNumber) {
  const auto y =
      Run("(float[N] x, float[M] z) => (float[2] a, float[2] b)",
          "  a, b = third.party.cxx.Ends (x, z)",
          {{"x", Tensor::Of<float>({3}, {1, 2, 3})}, {"z", Tensor::Of<float>({1}, {4})}});
  EXPECT_THAT(Floats(y[0]), ElementsAre(1, 3));
  EXPECT_THAT(Floats(y[1]), ElementsAre(4, 4));
}

TEST_F(OrtHeaderLibraries, ClassesWithShapesAndALog) {
  Model model = ThirdPartyModel("(float[N, 2] x) => (float y)", "  y = third.party.cxx.Mean (x)");
  ASSERT_TRUE(InferShapes(model).ok());
  EXPECT_EQ(model.graph->outputs()[0]->shape()->ToString(), "[]");
  const auto y = Must(RunModel(std::move(model), {{"x", Tensor::Of<float>({2, 2}, {1, 2, 3, 6})}}));
  EXPECT_THAT(Floats(y[0]), ElementsAre(3));
}

TEST_F(OrtHeaderLibraries, WhatIsThrownIsAStatus) {
  const auto y =
      RunModel(ThirdPartyModel("(float[N] x, int64[P] places, float[1] f) => (float[P] mixed)",
                               "  mixed = third.party.cxx.Mix (x, places, f)"),
               {{"x", Tensor::Of<float>({1}, {1})},
                {"places", Tensor::Of<int64_t>({1}, {5})},
                {"f", Tensor::Of<float>({1}, {1})}});
  EXPECT_THAT(std::string(y.status().message()),
              AllOf(HasSubstr("(third.party.cxx.Mix)"), HasSubstr("place 5 is out of range")));
}

TEST_F(OrtHeaderLibraries, AMissingAttributeIsNamed) {
  const auto y =
      RunModel(ThirdPartyModel("(float[N] x) => (float[N] y)", "  y = third.party.c.Affine (x)"),
               {{"x", Tensor::Of<float>({1}, {1})}});
  EXPECT_THAT(std::string(y.status().message()),
              HasSubstr("attribute \"a\" is missing, expected a float"));
}

}  // namespace
}  // namespace pagefuse
