// SPDX-License-Identifier: Apache-2.0
// Runs work in a process of its own, and says how it ended: a crash, a hang or memory without end
// of the work is a result here, not the end of the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace pagefuse::fuzz {

// Written by the child before each piece of work, read by the parent; lies in memory that both
// share.
struct Progress {
  std::atomic<uint64_t> current{0};     // what is being worked on
  std::atomic<int64_t> begin_ns{0};     // processor time when it began
  std::atomic<int64_t> done{0};         // pieces finished
  std::atomic<int64_t> counts[8] = {};  // for the work's own use

  void Begin(uint64_t piece);
};

struct ChildLimits {
  double piece_seconds = 20;  // processor time of one piece: others may use the machine as well
  int64_t resident_bytes = int64_t{3} << 30;
};

enum class Ending { kDone, kCrash, kHang, kMemory, kLeak };
const char* EndingName(Ending ending);

struct ChildResult {
  Ending ending = Ending::kDone;
  std::string log;  // what the child wrote to stderr
};

// With LeakSanitizer a child that leaves memory behind ends in kLeak.
ChildResult RunInChild(Progress& progress, const ChildLimits& limits,
                       const std::function<void(Progress&)>& work);

// Progress in memory that children share. Never freed.
Progress& SharedProgress();

// What tells findings apart: the first lines of a report that name places of the project.
std::string FindingKey(const ChildResult& result);

}  // namespace pagefuse::fuzz
