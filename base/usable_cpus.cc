// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/usable_cpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#include <sched.h>

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

bool Contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The control group that limits CPU time, as /proc/self/cgroup names it: by version 1's controller
// where there is one.
struct Group {
  bool version1 = false;
  std::string path;
};

std::optional<Group> GroupOf(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::optional<Group> group;
  for (std::string line; std::getline(in, line);) {  // "4:cpu,cpuacct:/path", or "0::/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (Contains(Split(controllers, ','), "cpu")) return Group{true, path};
    if (controllers.empty()) group = Group{false, path};
  }
  return group;
}

// Where a group's hierarchy is mounted, and which group is the root of what is visible there.
struct Mount {
  fs::path point;
  std::string root;
};

std::optional<Mount> MountOf(const std::string& root, const Group& group) {
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // "31 23 0:28 ROOT POINT options [more] - TYPE source superoptions"
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool found = group.version1 ? dash[1] == "cgroup" && Contains(Split(dash[3], ','), "cpu")
                                      : dash[1] == "cgroup2";
    if (found) return Mount{root + words[4], words[3]};
  }
  return std::nullopt;
}

// CPUs of one group's quota; infinite without one.
double QuotaOf(const fs::path& group, bool version1) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  std::string quota;
  double period = 0;
  if (version1) {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  } else {
    std::ifstream(group / "cpu.max") >> quota >> period;  // "max 100000" without a limit
  }
  double micros = 0;
  if (!(std::istringstream(quota) >> micros)) return kUnlimited;
  return micros > 0 && period > 0 ? micros / period : kUnlimited;
}

int AffinityCpus() {
  for (int cpus = CPU_SETSIZE; cpus <= CPU_SETSIZE << 8; cpus *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    std::vector<cpu_set_t> set((bytes + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t));
    if (sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::optional<double> QuotaCpus(const std::string& root) {
  const std::optional<Group> group = GroupOf(root);
  if (!group) return std::nullopt;
  const std::optional<Mount> mount = MountOf(root, *group);
  if (!mount) return std::nullopt;
  // The group's path below what is mounted. In a container that may be another part of the tree,
  // and then the container's own group is at the mount point.
  std::string below = group->path;
  if (mount->root != "/") {
    below = below.rfind(mount->root, 0) == 0 ? below.substr(mount->root.size()) : "";
  }
  double cpus = QuotaOf(mount->point, group->version1);
  fs::path at = mount->point;
  for (const std::string& name : Split(below, '/')) {
    if (name.empty() || name == "..") continue;
    at /= name;
    cpus = std::min(cpus, QuotaOf(at, group->version1));
  }
  if (std::isinf(cpus)) return std::nullopt;
  return cpus;
}

int UsableCpus() {
  const int affinity = std::max(AffinityCpus(), 1);
  const std::optional<double> quota = QuotaCpus();
  if (!quota) return affinity;
  return static_cast<int>(std::clamp(std::ceil(*quota), 1.0, static_cast<double>(affinity)));
}

}  // namespace pagefuse
