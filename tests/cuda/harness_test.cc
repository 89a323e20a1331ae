// SPDX-License-Identifier: Apache-2.0
// What the tests on a GPU lean on, tried on a device that is none.
#include <memory>
#include <string>
#include <vector>

#include "device_op.h"
#include "fake_context.h"
#include "guarded_context.h"
#include "must.h"
#include "op_run.h"
#include "other_sizes.h"
#include "report.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::byte kOther{1};

TEST(GuardedContext, SeesWhatIsWrittenOutsideOfMemory) {
  GuardedContext device(std::make_shared<FakeContext>());
  std::byte* data = device.memory().Allocate(100);
  Must(device.CopyToDevice(data + 99, &kOther, 1));
  EXPECT_THAT(device.Broken(), IsEmpty());
  Must(device.CopyToDevice(data + 100, &kOther, 1));
  EXPECT_THAT(device.Broken(), ElementsAre(HasSubstr("byte 0 of the 1024 bytes behind")));
  EXPECT_THAT(device.Broken(), IsEmpty());
  Must(device.CopyToDevice(data - 1, &kOther, 1));
  device.memory().Free(data, 100);
  EXPECT_THAT(device.Broken(), ElementsAre(HasSubstr("byte 1023 of the 1024 bytes before")));
}

TEST(GuardedContext, GivesZerosOrAPattern) {
  GuardedContext device(std::make_shared<FakeContext>());
  for (const bool poisons : {false, true}) {
    device.set_poisons(poisons);
    std::byte* data = device.memory().Allocate(3);
    std::vector<std::byte> seen(3);
    Must(device.CopyToHost(seen.data(), data, 3));
    EXPECT_THAT(seen, ElementsAre(poisons ? std::byte{0xCD} : std::byte{0},
                                  poisons ? std::byte{0xCD} : std::byte{0},
                                  poisons ? std::byte{0xCD} : std::byte{0}));
    device.memory().Free(data, 3);
  }
}

class DeviceModelTest : public ::testing::Test {
 protected:
  DeviceModelTest() : registry_(WithFakeKernels()), scope_(registry_) {}

  // Of the domain of ONNX.
  static std::vector<Tensor> Run(const OpCases& table, const OpCase& op_case, bool on_device) {
    const OpDef& op = *OpRegistry::Global().Find("", table.op(), 28);
    CaseNode call(op, table, op_case);
    const auto model = Must(DeviceModel::Make(ModelOf(call), std::make_shared<FakeContext>()));
    EXPECT_EQ(OnlyPlace(*model).on_device, on_device);
    return Must(model->Run(FeedsOf(call)));
  }

  OpRegistry registry_;
  ScopedOpRegistry scope_;
};

TEST_F(DeviceModelTest, RunsANodeOnTheDevice) {
  const OpCase sum{.inputs = {Floats({2}, {1, 2}), Floats({2}, {3, 4})}};
  const auto outputs = Run(OpCases("Add"), sum, /*on_device=*/true);
  EXPECT_TRUE(outputs[0].IdenticalTo(Floats({2}, {4, 6})));
}

TEST(PlacesOf, SaysWhyTheHostRunsANode) {
  OpRegistry registry = OpRegistry::Global();
  const auto refuse = [](const KernelQuery&) { return absl::UnimplementedError("one of two"); };
  Must(registry.AddKernel("", "Hardmax",
                          {.name = "other", .device = Device::kCuda, .supports = refuse}));
  const ScopedOpRegistry scope(registry);
  const OpCase largest{.inputs = {Floats({2}, {1, 2})}};
  const CaseNode call(*registry.Find("", "Hardmax", 28), OpCases("Hardmax"), largest);
  const auto places = Must(PlacesOf(ModelOf(call), std::make_shared<FakeContext>()));
  EXPECT_FALSE(places.at(0).on_device);
  EXPECT_EQ(places.at(0).reason, "one of two");
}

TEST(InOtherSizes, KeepsWhichSizesAreEqual) {
  const OpDef& op = *OpRegistry::Global().Find("", "MatMul", 28);
  const OpCase product{.inputs = {Floats({2, 3}, {1, 2, 3, 4, 5, 6}), Floats({3, 1}, {7, 8, 9})}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto other = InOtherSizes(op, product, seed);
    if (!other) continue;
    EXPECT_EQ(other->inputs[0].dims()[1], other->inputs[1].dims()[0]);
    EXPECT_EQ(other->inputs[1].dims()[1], 1);
    for (const float x : other->inputs[1].values<float>()) EXPECT_TRUE(x >= 7 && x <= 9);
  }
}

TEST(InOtherSizes, LeavesPlacesAlone) {
  const OpDef& op = *OpRegistry::Global().Find("", "Gather", 28);
  EXPECT_FALSE(InOtherSizes(op, {.inputs = {Floats({2}, {1, 2}), Ints({1}, {1})}}, 1));
}

TEST(GpuReport, CountsByOpAndByReason) {
  Report report;
  report.Add("a.B", CaseKind::kTable, true);
  report.Add("a.B", CaseKind::kGolden, false);
  report.AddHostStep("a.B", "no | kernel");
  report.AddGraph("graph", "none", true, "equal");
  EXPECT_THAT(report.Text(), HasSubstr("| a.B | 1 | 0 | 0 | 0 | **1** | 1: no \\| kernel |\n"));
  EXPECT_THAT(report.Text(), HasSubstr("| graph | none | passed | equal |\n"));
}

}  // namespace
}  // namespace pagefuse
