// Calls of ops under google-benchmark.
#pragma once

#include <string>
#include <utility>

#include "op_call.h"
#include "peaks.h"
#include <benchmark/benchmark.h>

namespace pagefuse {

// The peaks of this machine, measured at the first call.
inline const Peaks& MachinePeaks() {
  static const Peaks peaks = MeasurePeaks();
  return peaks;
}

// Runs the calls in turn, one an iteration, and returns the seconds of the fastest: other programs
// disturb the rest.
inline double RunCalls(benchmark::State& state, OpCalls calls, const std::string& kernel) {
  CallSeries series(std::move(calls), kernel);
  for (auto _ : state) state.SetIterationTime(series.RunOnce());
  state.counters["best_us"] = series.best() * 1e6;
  return series.best();
}

}  // namespace pagefuse
