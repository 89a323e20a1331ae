// SPDX-License-Identifier: Apache-2.0
// Where nodes run and what is copied, on a device whose memory nobody else may touch.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "fake_context.h"
#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/runtime/executor.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest()
      : context_(std::make_shared<pagefuse::FakeContext>()),
        registry_(pagefuse::WithFakeKernels()),
        scope_(registry_) {}

  std::unique_ptr<Session> Load(const char* text) {
    SessionOptions options{.optimise = false, .load_passes = false};
    options.device = context_;
    return Must(Session::Create(Must(ParseModel(text)), options));
  }

  static std::vector<float> ValuesOf(const Tensor& tensor) {
    return {tensor.values<float>().begin(), tensor.values<float>().end()};
  }

  std::shared_ptr<pagefuse::FakeContext> context_;
  OpRegistry registry_;
  ScopedOpRegistry scope_;
};

constexpr char kSums[] = R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[2, n] x) => (float[2, n] y) <float[1] two = {2}> {
      between = Mul (x, two)
      z = Add (between, x)
      y = Softmax (z)
    })";

TEST_F(DeviceTest, NodesRunThereWithOneCopyOfAllInputs) {
  const auto session = Load(kSums);
  const Tensor x = Tensor::Of<float>({2, 2}, {0, 0, 1, 1});
  for (int run = 0; run < 3; ++run) {
    EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}}))[0]), ElementsAre(0.5, 0.5, 0.5, 0.5));
  }
  EXPECT_EQ(session->stats().host_steps, 0);
  EXPECT_EQ(session->stats().device_copies, 1);
  EXPECT_THAT(session->KernelReport(), Not(HasSubstr("copy")));
}

TEST_F(DeviceTest, ARunLikeTheLastOneInfersAndAllocatesNothing) {
  const auto session = Load(kSums);
  const Tensor x = Tensor::Of<float>({2, 2}, {0, 0, 1, 1});
  for (int run = 0; run < 3; ++run) Must(session->Run({{"x", x}}));
  const SessionStats before = session->stats();
  Must(session->Run({{"x", x}}));
  EXPECT_EQ(session->stats().inferences, before.inferences);
  EXPECT_EQ(session->stats().allocations, before.allocations);
  EXPECT_GT(before.inferences, 0);
  EXPECT_GT(before.allocations, 0);
}

TEST_F(DeviceTest, WhatTheDeviceLacksRunsOnTheHostBetweenCopies) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[4] x, bool positive) => (float[4] y) {
        a = Neg (x)
        b = If (positive) <then_branch = same () => (float[4] t) { t = Abs (a) },
                           else_branch = other () => (float[4] e) { e = Identity (a) }>
        y = Add (a, b)
      })");
  const Tensor x = Tensor::Of<float>({4}, {1, 2, 3, 4});
  Tensor yes = Must(Tensor::Allocate(DataType::kBool, {}));
  *static_cast<bool*>(yes.mutable_data()) = true;
  EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}, {"positive", yes}}))[0]),
              ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(session->stats().host_steps, 1);
  EXPECT_EQ(session->stats().device_copies, 3);
  const std::string report = session->KernelReport();
  EXPECT_THAT(report, HasSubstr("(If): copy to the host of \"a\", 16 bytes"));
  EXPECT_THAT(report, HasSubstr("(If): graphs on the host\n"));
  EXPECT_THAT(report, HasSubstr("(Add): copy to the device of \"b\", 16 bytes"));
}

TEST_F(DeviceTest, ContentsThatShapesDependOnAreCopiedToTheHost) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[4] x) => (float[n] y) {
        a = Neg (x)
        places = NonZero (a)
        row = Squeeze (places)
        y = Gather (a, row)
      })");
  EXPECT_THAT(ValuesOf(Must(session->Run({{"x", Tensor::Of<float>({4}, {1, 0, 0, 3})}}))[0]),
              ElementsAre(-1, -3));
  EXPECT_THAT(session->KernelReport(), HasSubstr("(NonZero): copy to the host of \"a\""));
}

TEST_F(DeviceTest, ArithmeticOfShapesStaysOnTheHost) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[a, b] x) => (float[n] y) <int64[1] last = {-1}, int64[1] one = {1}> {
        sum = Add (x, x)
        shape = Shape (sum)
        first = Gather (shape, one)
        twice = Mul (first, last)
        size = Abs (twice)
        both = Concat <axis = 0> (last, size)
        wide = Reshape (sum, both)
        y = ReduceSum <keepdims = 0> (wide, one)
      })");
  const Tensor x = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}}))[0]), ElementsAre(12, 30));
  const std::string report = session->KernelReport();
  EXPECT_THAT(report, Not(HasSubstr("copy to the host")));
  EXPECT_THAT(report, HasSubstr("view on the device"));
}

TEST_F(DeviceTest, IndicesThatItComputedAreChecked) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[n] x, float[m] at) => (float[m] y) {
        twice = Add (at, at)
        places = Cast <to = 7> (twice)
        y = Gather (x, places)
      })");
  const Tensor x = Tensor::Of<float>({3}, {5, 6, 7});
  EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}, {"at", Tensor::Of<float>({1}, {1})}}))[0]),
              ElementsAre(7));
  const auto status = session->Run({{"x", x}, {"at", Tensor::Of<float>({1}, {2})}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("index 4 is out of range"));
}

TEST_F(DeviceTest, AnInputUnderAnotherShapeIsNotCopiedApart) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (int64[n] ids, float[5, 2] table) => (float[1, n, 2] y) <int64[1] front = {0}> {
        row = Unsqueeze (ids, front)
        y = Gather (table, row)
      })");
  const Tensor table = Tensor::Of<float>({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(ValuesOf(Must(
                  session->Run({{"ids", Tensor::Of<int64_t>({2}, {4, 1})}, {"table", table}}))[0]),
              ElementsAre(8, 9, 2, 3));
  EXPECT_EQ(session->stats().device_copies, 1);
  EXPECT_THAT(session->KernelReport(), Not(HasSubstr("copy")));
}

constexpr char kCache[] = R"(
    <ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
    g (float[4, 1, 1, 2] cache, float[4, 1, 1, 2] values, float[1, 1, 2] row, int64[1] at)
        => (float[4, 1, 1, 2] out, float[4, 1, 1, 2] values_out) {
      new = Neg (row)
      out, values_out = pagefuse.PagedCacheInsert (new, row, cache, values, at)
    })";

TEST_F(DeviceTest, ACacheIsUpdatedWhereItLies) {
  const auto session = Load(kCache);
  ASSERT_TRUE(session->IsOnDevice("cache"));
  EXPECT_FALSE(session->IsOnDevice("row"));
  const Tensor row = Tensor::Of<float>({1, 1, 2}, {5, 6});
  const Tensor at = Tensor::Of<int64_t>({1}, {1});
  const auto zeros = [] { return Tensor::Of<float>({4, 1, 1, 2}, {0, 0, 0, 0, 0, 0, 0, 0}); };
  // The host's: there and back.
  const Tensor host = zeros();
  const auto outputs =
      Must(session->Run({{"cache", host}, {"values", zeros()}, {"row", row}, {"at", at}}));
  EXPECT_THAT(ValuesOf(host), ElementsAre(0, 0, -5, -6, 0, 0, 0, 0));
  EXPECT_EQ(outputs[0].data(), host.data());
  EXPECT_THAT(ValuesOf(outputs[1]), ElementsAre(0, 0, 5, 6, 0, 0, 0, 0));
  // The device's: it stays there.
  const Tensor there = Must(Tensor::Allocate(DataType::kFloat, {4, 1, 1, 2}, context_->memory()));
  const auto result =
      Must(session->Run({{"cache", there}, {"values", zeros()}, {"row", row}, {"at", at}}));
  EXPECT_EQ(result[0].data(), there.data());
  std::vector<float> values(8);
  Must(context_->CopyToHost(values.data(), there.data(), 32));
  EXPECT_THAT(values, ElementsAre(0, 0, -5, -6, 0, 0, 0, 0));
}

TEST_F(DeviceTest, MemoryThatItLacksIsToldWithTheNode) {
  context_ = std::make_shared<pagefuse::FakeContext>(1 << 16);
  const auto session = Load(kSums);
  const Tensor large = Must(Tensor::Allocate(DataType::kFloat, {2, 20000}));
  const auto status = session->Run({{"x", large}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no device memory for 160000 bytes: 65280 of 65536 are free"));
  const Tensor x = Tensor::Of<float>({2, 1}, {0, 0});
  EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}}))[0]), ElementsAre(1, 1));
}

TEST_F(DeviceTest, ProfilesHaveTheDevicesTimes) {
  SessionOptions options{.optimise = false, .load_passes = false, .profile = true};
  options.device = context_;
  const auto session = Must(Session::Create(Must(ParseModel(kSums)), options));
  Must(session->Run({{"x", Tensor::Of<float>({2, 1}, {0, 0})}}));
  std::vector<double> starts;
  for (const NodeProfile& node : session->Profile()) {
    starts.push_back(node.start_us);
    EXPECT_EQ(node.duration_us, 1);
    EXPECT_EQ(node.kernel, "fake on cuda");
  }
  EXPECT_THAT(starts, ElementsAre(1, 3, 5));
}

TEST_F(DeviceTest, NothingIsLeftBehind) {
  {
    const auto session = Load(kSums);
    Must(session->Run({{"x", Tensor::Of<float>({2, 1}, {0, 0})}}));
    EXPECT_GT(context_->memory().used(), 0u);
  }
  EXPECT_EQ(context_->memory().used(), 0u);
}

using DeviceDeathTest = DeviceTest;

TEST_F(DeviceDeathTest, AHostThatReadsItsMemoryEnds) {
  const Tensor there = Must(Tensor::Allocate(DataType::kFloat, {2}, context_->memory()));
  EXPECT_DEATH(
      {
        const volatile float value = there.values<float>()[1];
        static_cast<void>(value);
      },
      "");
}

TEST(PackedConstantsTest, LieInTheMemoryOfTheirAllocator) {
  pagefuse::VeiledMemory memory(1 << 20);
  const pagefuse::VeiledMemory::Open open(memory);
  Model model = Must(ParseModel(R"(
      <ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
      g (float[2, 64] x) => (float[2, 32] y) <bfloat16[32, 64] w = ...> {
        y = pagefuse.Linear (x, w)
      })"));
  model.graph->SetInitializer(model.graph->FindValue("w"),
                              Must(Tensor::Allocate(DataType::kBfloat16, {32, 64})));
  ASSERT_TRUE(InferShapes(model).ok());
  const ExecutionPlan plan = Must(MakePlan(model, {.allocator = &memory}));
  const auto* packed = dynamic_cast<const PackedConstants*>(plan.steps[0].state.get());
  ASSERT_NE(packed, nullptr);
  EXPECT_TRUE(memory.Holds(packed->Find(1)->data(), 1));
}

}  // namespace
}  // namespace pagefuse
