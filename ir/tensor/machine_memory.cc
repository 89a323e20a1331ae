// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

// The number behind `key` in a file of lines such as "MemTotal:  24576 kB", in bytes.
std::optional<int64_t> Kilobytes(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() < 2 || words[0] != key || !absl::SimpleAtoi(words[1], &number)) continue;
    return number * 1024;
  }
  return std::nullopt;
}

// A file that holds one number; anything else ("max") is no bound, and so is a missing file.
int64_t BoundIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  file >> word;
  return absl::SimpleAtoi(word, &number) && number > 0 ? number : kNoBound;
}

// The least bound of a group and the groups around it. In a container the path may be that of the
// host, of which only the outermost folder is to be seen.
int64_t BoundAlong(const std::string& mount, std::string group, std::string_view file) {
  int64_t bound = kNoBound;
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    bound = std::min(bound, BoundIn(StrCat(mount, group, "/", file)));
    if (group.empty()) return bound;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

int64_t ControlGroupBound(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  int64_t bound = kNoBound;
  while (std::getline(file, line)) {
    // "0::/group" in version 2, "4:memory:/group" in version 1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      bound = std::min(bound, BoundAlong(mount, parts[2], "memory.max"));
      bound = std::min(bound, BoundAlong(mount + "/unified", parts[2], "memory.max"));
    } else if (std::count(controllers.begin(), controllers.end(), "memory") > 0) {
      bound = std::min(bound, BoundAlong(mount + "/memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return bound;
}

// Bytes that this process holds and that no file backs; 0 if the system does not tell.
int64_t HeldMemoryBytes(const std::string& root) {
  return Kilobytes(root + "/proc/self/status", "RssAnon:").value_or(0);
}

}  // namespace

int64_t MachineMemoryBytes(const std::string& root) {
  const int64_t machine = Kilobytes(root + "/proc/meminfo", "MemTotal:").value_or(kNoBound);
  const int64_t bytes = std::min(machine, ControlGroupBound(root));
  return bytes == kNoBound ? 0 : bytes;
}

int64_t DefaultMemoryBytes(const std::string& root) {
  const int64_t machine = MachineMemoryBytes(root);
  if (machine == 0) return kNoBound;
  // Where much is held already, a little is left to try with.
  return std::max(machine / 20, machine / 5 * 4 - HeldMemoryBytes(root));
}

}  // namespace pagefuse
