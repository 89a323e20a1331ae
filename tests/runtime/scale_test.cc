// SPDX-License-Identifier: Apache-2.0
// Loading, optimising and planning take about as much longer as the graph is larger.
#include <algorithm>
#include <ctime>
#include <string>

#include "must.h"
#include "scale_graphs.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

// Of this thread: what else runs on the machine does not count.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Scale : public testing::TestWithParam<ScaleGraph> {};

// Seconds of CPU for a graph as it came and as the pipeline leaves it, and for a run that tells the
// sizes to the memory plan.
double Cost(const ScaleGraph& graph, int64_t nodes) {
  const std::string bytes = Must(ExportModel(graph.make(nodes)));
  const double start = CpuSeconds();
  Model model = Must(ImportModel(bytes, {}));
  const SessionOptions as_it_came = {.optimise = false, .load_passes = false};
  const auto plain = Must(Session::Create(model.Clone(), as_it_came));
  EXPECT_TRUE(plain->Run(FeedsOfOnes(*plain->model().graph)).ok());
  EXPECT_TRUE(Session::Create(std::move(model)).ok());
  return CpuSeconds() - start;
}

TEST_P(Scale, CostGrowsAsTheGraphDoes) {
  constexpr int64_t kNodes = 1000, kTimes = 8;
  Cost(GetParam(), 100);  // tables that are made once
  const double small = std::min(Cost(GetParam(), kNodes), Cost(GetParam(), kNodes));
  const double large = Cost(GetParam(), kNodes * kTimes);
  // What grows with the square takes 64 times as long. The small one has a part that does not grow.
  constexpr double kMillisecond = 1e-3;
  EXPECT_LT(large, 3 * kTimes * (small + 5 * kMillisecond));
}

INSTANTIATE_TEST_SUITE_P(Graphs, Scale, testing::ValuesIn(ScaleGraphs()), [](const auto& info) {
  std::string name(info.param.name);
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace pagefuse
