// The ops of DeepSeek's caches at the sizes of V3.2 and V4: bytes a second that must be read and
// written, as a share of what a plain copy of as many bytes reaches in the same program.
#include <cstdint>
#include <string>

#include "latent_cache_calls.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

void RunBench(benchmark::State& state, const LatentCacheCase& bench, const std::string& kernel) {
  auto call = std::make_unique<OpCall>(bench.op);
  const int64_t bytes = bench.fill(*call, state.range(0));
  if (!call->Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double copy_rate = CopyRate(bytes);
  const double best = RunCalls(state, OneCall(std::move(call)), kernel);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

void RegisterBenchmarks() {
  for (const LatentCacheCase& bench : LatentCacheCases()) {
    for (const char* kernel : {"hwy", "reference"}) {
      const std::string name = bench.op + "/" + kernel + "/" + bench.name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { RunBench(state, bench, kernel); })
          ->Arg(1)
          ->Arg(64)
          ->Arg(2048)
          ->UseManualTime();
    }
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::RegisterBenchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
