// SPDX-License-Identifier: Apache-2.0
// A device that is none: kernels registered for it, and an allocator that knows whose memory is whose.
#include <algorithm>
#include <iterator>
#include <map>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/runtime/executor.h"

namespace pagefuse {
namespace {

class CountingAllocator final : public Allocator {
 public:
  std::byte* Allocate(size_t bytes) override {
    std::byte* data = HostAllocator().Allocate(bytes);
    blocks_[data] = bytes;
    return data;
  }
  void Free(std::byte* data, size_t bytes) override {
    EXPECT_EQ(blocks_[data], bytes);
    blocks_.erase(data);
    HostAllocator().Free(data, bytes);
  }

  size_t blocks() const { return blocks_.size(); }
  bool Holds(const void* data) const {
    const auto* byte = static_cast<const std::byte*>(data);
    const auto after = blocks_.upper_bound(const_cast<std::byte*>(byte));
    if (after == blocks_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return byte < begin + bytes;
  }

 private:
  std::map<std::byte*, size_t> blocks_;
};

class Copied : public KernelState {
 public:
  explicit Copied(Tensor tensor) : tensor(std::move(tensor)) {}
  Tensor tensor;
};

absl::StatusOr<std::unique_ptr<KernelState>> CopyConstant(const PrepareArgs& args) {
  const Tensor& constant = *args.constants[1];
  PF_ASSIGN_OR_RETURN(Tensor copy,
                      Tensor::Allocate(constant.dtype(), constant.dims(), *args.allocator));
  std::copy_n(constant.values<float>().data(), constant.size(),
              copy.mutable_values<float>().data());
  return std::make_unique<Copied>(std::move(copy));
}

// On the device y = x + constant; on the CPU it is x - constant, so that a result tells who computed it.
class DeviceTest : public testing::Test {
 protected:
  DeviceTest() : registry_(OpRegistry::Global()) {
    OpDef op = OpDef("test", "Shift", 1).Input("x", "T").Input("by", "T").Output("y", "T");
    op.Types("T", {DataType::kFloat}).InferShapes([](ShapeContext& c) {
      c.SetOutput(0, c.input_type(0), *c.input_shape(0));
      return absl::OkStatus();
    });
    op.AddKernel({.name = "reference", .run = [](KernelArgs& args) {
                    for (int64_t i = 0; i < args.output(0).size(); ++i) {
                      args.output(0).as<float>()[i] =
                          args.input(0).as<float>()[i] - *args.input(1).as<float>();
                    }
                    return absl::OkStatus();
                  }});
    op.AddKernel({.name = "device",
                  .device = Device::kCuda,
                  .prepare = CopyConstant,
                  .run = [this](KernelArgs& args) {
                    const Tensor& by = static_cast<Copied*>(args.state)->tensor;
                    auto* sums = static_cast<float*>(args.scratch->Get(args.output(0).size() * 4));
                    for (const void* each : {by.data(), static_cast<const void*>(sums),
                                             static_cast<const void*>(args.output(0).data)}) {
                      EXPECT_TRUE(memory_.Holds(each));
                    }
                    for (int64_t i = 0; i < args.output(0).size(); ++i) {
                      sums[i] = args.input(0).as<float>()[i] + by.values<float>()[0];
                    }
                    std::copy_n(sums, args.output(0).size(), args.output(0).as<float>());
                    return absl::OkStatus();
                  }});
    EXPECT_TRUE(registry_.Add(std::move(op)).ok());
  }

  // x shifted twice by 1; the value between lies in the arena.
  absl::StatusOr<std::vector<float>> Run(const PlanOptions& options) {
    const ScopedOpRegistry scope(registry_);
    Model model = Must(ParseModel(R"(
        <ir_version: 10, opset_import: ["test" : 1]>
        g (float[3] x) => (float[3] y) <float one = {1}> {
          between = test.Shift (x, one)
          y = test.Shift (between, one)
        })"));
    PF_RETURN_IF_ERROR(InferShapes(model));
    PF_ASSIGN_OR_RETURN(ExecutionPlan plan, MakePlan(model, options));
    Executor executor(std::move(plan));
    std::vector<float> result;
    for (int run = 0; run < 2; ++run) {
      PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                          executor.Run({Tensor::Of<float>({3}, {1, 2, 3})}, {Tensor()}));
      result.assign(outputs[0].values<float>().begin(), outputs[0].values<float>().end());
    }
    return result;
  }

  CountingAllocator memory_;
  OpRegistry registry_;
};

TEST_F(DeviceTest, KernelsOfAnotherDeviceAreNotRun) {
  EXPECT_THAT(Must(Run({})), testing::ElementsAre(-1, 0, 1));
}

TEST_F(DeviceTest, ItsKernelsTakeAllTheirMemoryFromItsAllocator) {
  EXPECT_THAT(Must(Run({.device = Device::kCuda, .allocator = &memory_})),
              testing::ElementsAre(3, 4, 5));
  EXPECT_EQ(memory_.blocks(), 0u);
}

TEST_F(DeviceTest, PackedConstantsLieInItsMemory) {
  Model model = Must(ParseModel(R"(
      <ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
      g (float[2, 64] x) => (float[2, 32] y) <bfloat16[32, 64] w = ...> {
        y = pagefuse.Linear (x, w)
      })"));
  model.graph->SetInitializer(model.graph->FindValue("w"),
                              Must(Tensor::Allocate(DataType::kBfloat16, {32, 64})));
  ASSERT_TRUE(InferShapes(model).ok());
  const ExecutionPlan plan = Must(MakePlan(model, {.allocator = &memory_}));
  const auto* packed = dynamic_cast<const PackedConstants*>(plan.steps[0].state.get());
  ASSERT_NE(packed, nullptr);
  EXPECT_TRUE(memory_.Holds(packed->Find(1)->data()));
}

}  // namespace
}  // namespace pagefuse
