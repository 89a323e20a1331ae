// SPDX-License-Identifier: Apache-2.0
// The default number of threads: affinity and the quotas of control groups.
#include "pagefuse/base/usable_cpus.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <sched.h>
#include <stdlib.h>

#include "gtest/gtest.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

// A folder that stands for / with the files that are read.
class UsableCpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "usable_cpus.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void MountVersion2(const std::string& mounted_root) {
    Write("proc/self/mountinfo", "22 1 0:21 / / rw - ext4 /dev/root rw\n31 22 0:28 " +
                                     mounted_root +
                                     " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  std::optional<double> Quota() const { return QuotaCpus(root_.string()); }

  fs::path root_;
};

TEST_F(UsableCpusTest, WithoutControlGroupsThereIsNoQuota) { EXPECT_EQ(Quota(), std::nullopt); }

TEST_F(UsableCpusTest, ReadsTheQuotaOfVersion2) {
  MountVersion2("/");
  Write("proc/self/cgroup", "0::/app.slice/run.scope\n");
  Write("sys/fs/cgroup/app.slice/run.scope/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(UsableCpusTest, TheTightestOfTheGroupsAroundCounts) {
  MountVersion2("/");
  Write("proc/self/cgroup", "0::/app.slice/run.scope\n");
  Write("sys/fs/cgroup/app.slice/cpu.max", "200000 100000\n");
  Write("sys/fs/cgroup/app.slice/run.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), 2.0);
}

TEST_F(UsableCpusTest, MaxIsNoQuota) {
  MountVersion2("/");
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
}

// Inside, the container's group is at the mount point; its path may be that of the machine.
TEST_F(UsableCpusTest, ReadsTheQuotaOfAContainer) {
  Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  for (const std::string mounted : {"/", "/docker/0123", "/../elsewhere"}) {
    MountVersion2(mounted);
    for (const std::string group : {"/", "/docker/0123"}) {
      Write("proc/self/cgroup", "0::" + group + "\n");
      EXPECT_EQ(Quota(), 0.5) << mounted << " " << group;
    }
  }
}

TEST_F(UsableCpusTest, ReadsTheQuotaOfVersion1) {
  Write("proc/self/mountinfo",
        "31 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 22 0:29 /docker/0123 /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 22 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  Write("proc/self/cgroup", "5:cpu,cpuacct:/docker/0123/job\n4:memory:/docker/0123\n0::/\n");
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/";
  Write(group + "cpu.cfs_quota_us", "-1\n");
  Write(group + "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write(group + "job/cpu.cfs_quota_us", "250000\n");
  Write(group + "job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 2.5);
}

TEST_F(UsableCpusTest, BrokenFilesAreNoQuota) {
  MountVersion2("/");
  for (const std::string group : {"", "0::", "::\n", "no colon\n", "0:\n"}) {
    Write("proc/self/cgroup", group);
    for (const std::string max : {"", "max", "x y\n", "0 0\n", "-5 100000\n"}) {
      Write("sys/fs/cgroup/cpu.max", max);
      EXPECT_EQ(Quota(), std::nullopt) << group << max;
    }
  }
}

TEST(UsableCpus, FollowsTheAffinityOfTheThread) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCpus(), 1);
  }).join();
}

}  // namespace
}  // namespace pagefuse
