// SPDX-License-Identifier: Apache-2.0
// Names of devices, and the line that says of each machine why its GPU cannot be used.
#include "pagefuse/ops/cuda/device_name.h"

#include <optional>
#include <string>

#include <dlfcn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ops/cuda/cuda.h"

namespace pagefuse {
namespace {

// A machine with two GPUs on which everything is there.
cuda::Machine GoodMachine() {
  return {.has_driver = true,
          .driver_version = 13010,
          .needed_version = 13000,
          .gpus = 2,
          .failure = "",
          .name = "NVIDIA H200",
          .capability = 90};
}

std::string WhyNot(const cuda::Machine& machine, int ordinal = 0) {
  const absl::Status status = CheckMachine(machine, ordinal);
  EXPECT_EQ(status.ok(), status.message().empty());
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  }
  return std::string(status.message());
}

TEST(DeviceName, SaysWhichGpu) {
  EXPECT_EQ(*ParseDeviceName("cpu"), std::nullopt);
  EXPECT_EQ(*ParseDeviceName("cuda"), 0);
  EXPECT_EQ(*ParseDeviceName("cuda:0"), 0);
  EXPECT_EQ(*ParseDeviceName("cuda:13"), 13);
}

TEST(DeviceName, OthersAreRefused) {
  for (const std::string name :
       {"gpu", "", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:-0", "cuda:1x", "cuda: 1", "cuda:+1",
        "cuda:99999999999", "cuda0", "cpu:0"}) {
    const auto parsed = ParseDeviceName(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(parsed.status().message(), "expected cpu, cuda or cuda:N, got \"" + name + "\"");
  }
}

TEST(DeviceName, MachinesSayWhatIsMissing) {
  EXPECT_EQ(WhyNot(GoodMachine()), "");
  EXPECT_EQ(WhyNot(GoodMachine(), 1), "");
  EXPECT_EQ(WhyNot(cuda::Machine{}), "no NVIDIA driver: libcuda.so.1 cannot be opened");

  cuda::Machine machine = GoodMachine();
  machine.driver_version = 12020;
  EXPECT_EQ(WhyNot(machine), "the driver supports CUDA 12.2, this program needs 13.0");

  machine = GoodMachine();
  machine.gpus = 0;
  EXPECT_EQ(WhyNot(machine), "the driver sees no GPU");

  EXPECT_EQ(WhyNot(GoodMachine(), 3), "expected 0 to 1");
  machine = GoodMachine();
  machine.gpus = 1;
  EXPECT_EQ(WhyNot(machine, 1), "expected 0");

  machine = GoodMachine();
  machine.name = "Tesla V100";
  machine.capability = 70;
  EXPECT_EQ(WhyNot(machine), "GPU 0 (Tesla V100) is sm_70, kernels need sm_80 or newer");
}

TEST(DeviceName, FailedCallsAreNamed) {
  cuda::Machine machine = GoodMachine();
  machine.gpus = 0;
  machine.failure = "cudaGetDeviceCount: cudaErrorSystemNotReady (system not yet initialized)";
  EXPECT_EQ(WhyNot(machine), machine.failure);
}

TEST(OpenDevice, TheHostIsNone) {
  const auto device = OpenDevice("cpu");
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(*device, nullptr);
}

TEST(OpenDevice, NamesAreCheckedInEveryBuild) {
  EXPECT_EQ(OpenDevice("gpu").status().message(), "expected cpu, cuda or cuda:N, got \"gpu\"");
}

TEST(OpenDevice, SaysWhatThisBuildOrMachineLacks) {
  const auto device = OpenDevice("cuda");
#if PAGEFUSE_HAS_CUDA
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver != nullptr) {
    dlclose(driver);
    GTEST_SKIP() << "a driver is here";
  }
  EXPECT_EQ(device.status().message(), "no NVIDIA driver: libcuda.so.1 cannot be opened");
#else
  EXPECT_EQ(device.status().message(),
            "this build has no CUDA kernels; configure with -DPAGEFUSE_CUDA=ON and nvcc 12.4 or "
            "newer");
#endif
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pagefuse
