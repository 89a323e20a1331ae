// SPDX-License-Identifier: Apache-2.0
// Collects times of executed nodes over several runs, for a table by op and kernel and for a Chrome
// trace.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {

// Flags of the commands that run models.
struct ProfileFlags {
  bool print = false;
  std::string trace;
  bool wanted() const { return print || !trace.empty(); }
};
void AddProfileFlags(Command command, ProfileFlags& flags);

class ProfileLog {
 public:
  // Keeps the profile of the session's last run, which began at `start`, under a name ("decode").
  void Add(const Session& session, const std::string& run,
           std::chrono::steady_clock::time_point start);

  // One table a run name to the error stream: time by op and kernel, longest first.
  void Print() const;

  // Chrome's trace format (chrome://tracing, Perfetto), with the event fields that ONNX Runtime
  // writes: an event a run and an event a node; times in microseconds.
  absl::Status WriteTrace(const std::string& path) const;

  // What the flags ask for.
  absl::Status Write(const ProfileFlags& flags) const;

 private:
  struct Run {
    std::string name;
    double start_us;
    std::vector<NodeProfile> nodes;
  };
  std::vector<Run> runs_;
  std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
};

}  // namespace pagefuse::tools
