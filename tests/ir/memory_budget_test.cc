// SPDX-License-Identifier: Apache-2.0
// What counts against a budget of memory, and how much memory there is.
#include "pagefuse/ir/tensor/memory_budget.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "pagefuse/base/allocator.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<Tensor> Bytes(int64_t count) { return Tensor::Allocate(DataType::kUint8, {count}); }

TEST(MemoryBudget, TensorsCountAsLongAsTheyLive) {
  const auto budget = std::make_shared<MemoryBudget>(10 << 20);
  Tensor kept;
  {
    const MemoryBudgetScope scope(budget);
    kept = *Bytes(1000);
    const Tensor gone = *Bytes(2 << 20);
    EXPECT_EQ(budget->used(), (2 << 20) + 1000);
  }
  EXPECT_EQ(budget->used(), 1000);
  const Tensor outside = *Bytes(5000);
  EXPECT_EQ(budget->used(), 1000);
  kept = Tensor();
  EXPECT_EQ(budget->used(), 0);
}

TEST(MemoryBudget, RefusesWhatIsOverTheLimitAndTakesNothing) {
  const auto budget = std::make_shared<MemoryBudget>(1000);
  const MemoryBudgetScope scope(budget);
  const Tensor first = *Bytes(900);
  const auto second = Bytes(101);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StdView(second.status().message()),
            "no memory for 101 bytes: 900 are taken, of 1000 that may be");
  EXPECT_EQ(budget->used(), 900);
  EXPECT_TRUE(Bytes(100).ok());
}

// Of a device that has 1000 bytes, on the host.
class SmallDevice final : public Allocator {
 public:
  bool is_host() const override { return false; }
  std::optional<MemoryRoom> Room() const override { return MemoryRoom{1000 - used_, 1000}; }
  std::byte* Allocate(size_t bytes) override {
    if (bytes > 1000 - used_) return nullptr;
    used_ += bytes;
    return HostAllocator().Allocate(bytes);
  }
  void Free(std::byte* data, size_t bytes) override {
    used_ -= bytes;
    HostAllocator().Free(data, bytes);
  }

 private:
  size_t used_ = 0;
};

TEST(MemoryBudget, MemoryOfDevicesDoesNotCount) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  const MemoryBudgetScope scope(budget);
  SmallDevice device;
  const auto tensor = Tensor::Allocate(DataType::kUint8, {900}, device);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(budget->used(), 0);
}

TEST(MemoryBudget, DevicesSayHowMuchIsFree) {
  SmallDevice device;
  const auto first = Tensor::Allocate(DataType::kUint8, {900}, device);
  const auto second = Tensor::Allocate(DataType::kUint8, {101}, device);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StdView(second.status().message()),
            "no device memory for 101 bytes: 100 of 1000 are free");
}

TEST(MemoryBudget, ViewsAndCopiesOfATensorCountOnce) {
  const auto budget = std::make_shared<MemoryBudget>(1000);
  const MemoryBudgetScope scope(budget);
  const Tensor tensor = *Bytes(600);
  const Tensor same = tensor;
  const Tensor view = *tensor.Reshaped({20, 30});
  EXPECT_EQ(budget->used(), 600);
}

TEST(MemoryBudget, TheInnermostScopeCountsAndOthersThreadsAreLeftAlone) {
  const auto outer = std::make_shared<MemoryBudget>(1000),
             inner = std::make_shared<MemoryBudget>(1000);
  const MemoryBudgetScope outer_scope(outer);
  Tensor a, b, c;
  {
    const MemoryBudgetScope inner_scope(inner);
    a = *Bytes(10);
  }
  b = *Bytes(20);
  std::thread([&c] { c = *Bytes(40); }).join();
  EXPECT_EQ(inner->used(), 10);
  EXPECT_EQ(outer->used(), 20);
}

TEST(MemoryBudget, TensorsMayOutliveIt) {
  Tensor tensor;
  {
    const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(1000));
    tensor = *Bytes(10);
  }
  tensor = Tensor();
}

// The parts of /proc and /sys that tell of memory.
class Machine {
 public:
  Machine()
      : root_(fs::path(testing::TempDir()) /
              StrCat("machine_", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(root_);
    Write("proc/meminfo", "MemFree: 1 kB\nMemTotal:       1000 kB\n");
  }
  ~Machine() { fs::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int64_t Bytes() const { return MachineMemoryBytes(root_.string()); }
  int64_t Default() const { return DefaultMemoryBytes(root_.string()); }

 private:
  fs::path root_;
};

TEST(MachineMemory, IsThatOfTheMachineWhereNothingBoundsIt) {
  const Machine machine;
  EXPECT_EQ(machine.Bytes(), 1024000);
  machine.Write("proc/self/cgroup", "0::/user/session\n");
  machine.Write("sys/fs/cgroup/user/session/memory.max", "max\n");
  EXPECT_EQ(machine.Bytes(), 1024000);
}

TEST(MachineMemory, IsTheLeastOfAGroupAndThoseAroundIt) {
  const Machine machine;
  machine.Write("proc/self/cgroup", "0::/user/session\n");
  machine.Write("sys/fs/cgroup/user/session/memory.max", "900000\n");
  EXPECT_EQ(machine.Bytes(), 900000);
  machine.Write("sys/fs/cgroup/user/memory.max", "800000\n");
  EXPECT_EQ(machine.Bytes(), 800000);
  machine.Write("sys/fs/cgroup/memory.max", "700000\n");
  EXPECT_EQ(machine.Bytes(), 700000);
}

TEST(MachineMemory, KnowsGroupsOfTheFirstVersion) {
  const Machine machine;
  machine.Write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n1:name=systemd:/c\n");
  machine.Write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  machine.Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "600000\n");
  EXPECT_EQ(machine.Bytes(), 600000);
}

// A container sees the path of the host and the files of its own group.
TEST(MachineMemory, KnowsTheGroupOfAContainer) {
  const Machine machine;
  machine.Write("proc/self/cgroup", "4:memory:/docker/0123\n");
  machine.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  EXPECT_EQ(machine.Bytes(), 500000);
}

TEST(MachineMemory, FourFifthsAreTakenLessWhatIsHeld) {
  const Machine machine;
  EXPECT_EQ(machine.Default(), 819200);
  machine.Write("proc/self/status", "VmRSS:\t 900 kB\nRssAnon:\t     100 kB\n");
  EXPECT_EQ(machine.Default(), 819200 - 102400);
  machine.Write("proc/self/status", "RssAnon:\t     790 kB\n");
  EXPECT_EQ(machine.Default(), 51200);
}

TEST(MachineMemory, WithoutAnAnswerThereIsNoBound) {
  EXPECT_EQ(MachineMemoryBytes("/nowhere"), 0);
  EXPECT_EQ(DefaultMemoryBytes("/nowhere"), std::numeric_limits<int64_t>::max());
}

TEST(MachineMemory, ThisMachineHasSome) { EXPECT_GT(MachineMemoryBytes(), 1 << 20); }

}  // namespace
}  // namespace pagefuse
