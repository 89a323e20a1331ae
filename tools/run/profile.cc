// SPDX-License-Identifier: Apache-2.0
#include "tools/run/profile.h"

#include <cstdio>
#include <functional>
#include <map>
#include <utility>

#include "nlohmann/json.hpp"
#include "tools/cli/output.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

Json Event(const std::string& category, const std::string& name, double start, double duration) {
  return {{"cat", category}, {"ph", "X"},    {"pid", 0},       {"tid", 0},
          {"ts", start},     {"name", name}, {"dur", duration}};
}

std::string NameOf(const Node& node) {
  return node.name.empty() ? node.output(0)->name() : node.name;
}

}  // namespace

void AddProfileFlags(Command command, ProfileFlags& flags) {
  command.AddFlag("--profile", flags.print, "print time by op and kernel");
  command.AddText("--trace", flags.trace, "write a Chrome trace of all runs to this file");
}

void ProfileLog::Add(const Session& session, const std::string& run,
                     std::chrono::steady_clock::time_point start) {
  const double start_us = std::chrono::duration<double, std::micro>(start - origin_).count();
  runs_.push_back({run, start_us, session.Profile()});
}

void ProfileLog::Print() const {
  struct Sum {
    double time = 0;
    int count = 0;
  };
  std::map<std::string, std::map<std::string, Sum>> tables;
  for (const Run& run : runs_) {
    for (const NodeProfile& node : run.nodes) {
      Sum& sum = tables[run.name][node.node->op_type() + " " + node.kernel];
      sum.time += node.duration_us;
      ++sum.count;
    }
  }
  for (const auto& [name, by_op] : tables) {
    double total = 0;
    std::multimap<double, std::string, std::greater<>> sorted;
    for (const auto& [op, sum] : by_op) {
      total += sum.time;
      sorted.emplace(sum.time, StrCat(op, " x", sum.count));
    }
    std::fprintf(stderr, "%s: %.3f ms in nodes\n", name.c_str(), total / 1000);
    for (const auto& [time, text] : sorted) {
      std::fprintf(stderr, "%9.3f ms  %5.1f %%  %s\n", time / 1000, 100 * time / total,
                   text.c_str());
    }
  }
}

absl::Status ProfileLog::WriteTrace(const std::string& path) const {
  Json events = Json::array();
  for (const Run& run : runs_) {
    if (run.nodes.empty()) continue;
    const NodeProfile& last = run.nodes.back();
    events.push_back(Event("Session", run.name, run.start_us, last.start_us + last.duration_us));
    for (const NodeProfile& node : run.nodes) {
      Json event = Event("Node", NameOf(*node.node) + "_kernel_time", run.start_us + node.start_us,
                         node.duration_us);
      event["args"] = {
          {"op_name", node.node->op_type()}, {"provider", "CPU"}, {"kernel", node.kernel}};
      events.push_back(std::move(event));
    }
  }
  return WriteWholeFile(path, JsonText(events));
}

absl::Status ProfileLog::Write(const ProfileFlags& flags) const {
  if (flags.print) Print();
  return flags.trace.empty() ? absl::OkStatus() : WriteTrace(flags.trace);
}

}  // namespace pagefuse::tools
