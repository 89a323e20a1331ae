// SPDX-License-Identifier: Apache-2.0
// What graphs of many nodes cost: loading, planning as loaded, the whole pass pipeline, planning
// what it leaves, and a first run, in seconds of CPU by the number of nodes. Each should grow as
// the number of nodes does.
//
//   scale_bench [--graphs chain,views] [--nodes 10000,30000,100000] [--no-run]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "scale_graphs.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

struct Options {
  std::vector<std::string> graphs;
  std::vector<int64_t> nodes = {10000, 30000, 100000};
  bool no_run = false, passes = false;
};

struct Seconds {
  double load = 0, plan = 0, optimise = 0, plan_optimised = 0, run = 0;
};

// Of this process: what else runs on the machine does not count.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

absl::StatusOr<Seconds> Time(const std::string& bytes, const Options& options) {
  Seconds seconds;
  double start = CpuSeconds();
  const auto lap = [&start] {
    const double now = CpuSeconds();
    return now - std::exchange(start, now);
  };
  PF_ASSIGN_OR_RETURN(Model model, ImportModel(bytes, {}));
  seconds.load = lap();
  Model as_loaded = model.Clone();
  lap();
  const SessionOptions plain = {.optimise = false, .load_passes = false};
  {
    PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(as_loaded), plain));
    seconds.plan = lap();
    if (!options.no_run) {
      const auto feeds = FeedsOfOnes(*session->model().graph);
      lap();
      PF_RETURN_IF_ERROR(session->Run(feeds).status());
      seconds.run = lap();
    }
  }
  lap();
  PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(model));
  seconds.optimise = lap();
  for (const PassRun& run : report.runs) {
    if (!options.passes || run.milliseconds < 1e3 * seconds.optimise / 50) continue;
    std::printf("  %-24s %9.3f s, %lld nodes after\n", run.name.c_str(), run.milliseconds * 1e-3,
                static_cast<long long>(run.nodes_after));
  }
  lap();
  PF_RETURN_IF_ERROR(Session::Create(std::move(model), plain).status());
  seconds.plan_optimised = lap();
  return seconds;
}

bool Wanted(const Options& options, std::string_view name) {
  return options.graphs.empty() ||
         std::find(options.graphs.begin(), options.graphs.end(), name) != options.graphs.end();
}

absl::Status Run(const Options& options) {
  std::printf("%-12s %8s %9s %9s %9s %9s %9s %9s\n", "seconds", "nodes", "load", "plan", "optimise",
              "plan", "all", "run");
  for (const ScaleGraph& graph : ScaleGraphs()) {
    if (!Wanted(options, graph.name)) continue;
    for (const int64_t nodes : options.nodes) {
      PF_ASSIGN_OR_RETURN(const std::string bytes, ExportModel(graph.make(nodes)));
      PF_ASSIGN_OR_RETURN(const Seconds s, Time(bytes, options));
      std::printf("%-12s %8lld %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f\n",
                  std::string(graph.name).c_str(), static_cast<long long>(nodes), s.load, s.plan,
                  s.optimise, s.plan_optimised, s.load + s.optimise + s.plan_optimised, s.run);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  CLI::App app{"the cost of graphs of many nodes"};
  app.add_option("--graphs", options.graphs)->delimiter(',');
  app.add_option("--nodes", options.nodes)->delimiter(',')->capture_default_str();
  app.add_flag("--no-run", options.no_run, "leave out the first run");
  app.add_flag("--passes", options.passes, "tell the passes that take the most");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
