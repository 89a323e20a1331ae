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

// Runs calls that read and write `bytes` each, and counts those of a second, also as a share of
// what a plain copy of as many reaches: all in one place, where caches hold it, or in many in turn,
// as the layers of a model have theirs.
template <typename Make>
void RunCopies(benchmark::State& state, int64_t bytes, bool one_place, const std::string& kernel,
               const Make& make) {
  const double copy_rate = CopyRate(bytes, one_place ? 1 : SeriesLength(bytes));
  const double best = RunCalls(state, one_place ? OneCall(make()) : MakeCalls(bytes, make), kernel);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

// Tokens, and whether all lies in one place: from few tokens no series is larger than the caches.
inline void CopyArgs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "one_place"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const int64_t tokens : {1, 64, 2048}) bench->Args({tokens, 1});
  bench->Args({2048, 0});
}

}  // namespace pagefuse
