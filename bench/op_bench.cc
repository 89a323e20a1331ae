// SPDX-License-Identifier: Apache-2.0
// Ops of domain pagefuse against what the machine can do, row by row of a table (op_cases.h): bytes
// a second as a share of the memory bandwidth or of a plain copy of as many bytes, in caches and in
// memory; operations a second as a share of the peak. The yardsticks are measured by this program.
//
// Counters are those of the fastest iteration, since other programs disturb the rest.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "op_cases.h"
#include "peaks.h"
#include <benchmark/benchmark.h>

namespace pagefuse {
namespace {

// The peaks of this machine, measured and printed at the first call.
const Peaks& MachinePeaks() {
  static const Peaks peaks = [] {
    const Peaks measured = MeasurePeaks();
    std::fprintf(stderr,
                 "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s %s bfloat16\n",
                 measured.read_bytes * 1e-9, measured.fma_flops * 1e-9, measured.bf16_flops * 1e-9,
                 Bf16UnitName());
    return measured;
  }();
  return peaks;
}

// Runs the calls in turn, one an iteration, each behind one of the baseline if there is one, and
// returns the seconds of the fastest.
double RunCalls(benchmark::State& state, OpCalls calls, const std::string& kernel,
                CallSeries* baseline = nullptr) {
  CallSeries series(std::move(calls), kernel);
  for (auto _ : state) {
    if (baseline != nullptr) baseline->RunOnce();
    state.SetIterationTime(series.RunOnce());
  }
  state.counters["best_us"] = series.best() * 1e6;
  if (baseline != nullptr) state.counters["of_baseline"] = series.best() / baseline->best();
  return series.best();
}

// The kernel's name; empty, and the benchmark skipped, where the call has none of that name.
std::string KernelOf(benchmark::State& state, OpCall& call, const std::string& named) {
  if (named.empty()) return call.BestKernel();
  if (call.Has(named)) return named;
  state.SkipWithError("no such kernel on this machine");
  return "";
}

void RunCopies(benchmark::State& state, const OpCase& row, const std::string& named) {
  const int64_t tokens = state.range(0);
  const bool one_place = state.range(1) != 0;
  const std::string kernel = KernelOf(state, *row.make(tokens), named);
  if (kernel.empty()) return;
  const int64_t bytes = row.work(tokens).bytes;
  const auto make = [&] { return row.make(tokens); };
  const double copy_rate = CopyRate(bytes, one_place ? 1 : SeriesLength(bytes));
  const double best = RunCalls(state, one_place ? OneCall(make()) : MakeCalls(bytes, make), kernel);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

void RunOnce(benchmark::State& state, const OpCase& row, const std::string& named) {
  const Work work = row.work(0);
  OpCalls calls = OneCall(row.make(0));
  const std::string kernel = KernelOf(state, *calls[0], named);
  if (kernel.empty()) return;
  const int64_t layers = row.layers > 0 ? row.layers : SeriesLength(work.bytes);
  while (static_cast<int64_t>(calls.size()) < layers) calls.push_back(row.make(0));
  std::unique_ptr<CallSeries> baseline;
  if (row.baseline) {
    const std::unique_ptr<OpCall> probe = row.baseline();
    baseline = std::make_unique<CallSeries>(MakeCalls(probe->TensorBytes(), row.baseline),
                                            probe->BestKernel());
  }
  const double best = RunCalls(state, std::move(calls), kernel, baseline.get());
  const Peaks& peaks = MachinePeaks();
  if (work.bytes > 0) {
    state.counters["GB/s"] = static_cast<double>(work.bytes) / best * 1e-9;
    state.counters["share_of_read"] = static_cast<double>(work.bytes) / best / peaks.read_bytes;
  }
  if (work.flops > 0) {
    const bool bf16 = peaks.bf16_flops > 0 && (work.bf16 || kernel == "tiles");
    state.counters["GFLOP/s"] = work.flops / best * 1e-9;
    state.counters["share_of_flops"] =
        work.flops / best / (bf16 ? peaks.bf16_flops : peaks.fma_flops);
  }
  if (work.rows > 0) state.counters["us_a_row"] = best * 1e6 / static_cast<double>(work.rows);
}

void Register(const OpCase& row, const std::string& kernel) {
  std::string name = row.op;
  if (!kernel.empty()) name += "/" + kernel;
  if (!row.variant.empty()) name += "/" + row.variant;
  const auto run = row.tokens.empty() ? RunOnce : RunCopies;
  benchmark::internal::Benchmark* bench = benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { run(state, row, kernel); });
  bench->UseManualTime()->Unit(benchmark::kMicrosecond);
  if (row.tokens.empty()) return;
  bench->ArgNames({"tokens", "one_place"});
  // From few tokens no series is larger than the caches.
  for (const int64_t tokens : row.tokens) bench->Args({tokens, 1});
  bench->Args({row.tokens.back(), 0});
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  for (const pagefuse::OpCase& row : pagefuse::AllOpCases()) {
    if (row.kernels.empty()) pagefuse::Register(row, "");
    for (const std::string& kernel : row.kernels) pagefuse::Register(row, kernel);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
