// The ops of DeepSeek's caches at the sizes of V3.2 and V4: bytes a second that must be read and
// written, as a share of what a plain copy of as many bytes reaches in the same program, in caches
// and in memory.
#include <cstdint>
#include <string>

#include "latent_cache_calls.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

void RunBench(benchmark::State& state, const LatentCacheCase& bench, const std::string& kernel) {
  OpCall probe(bench.op);
  const int64_t bytes = bench.fill(probe, state.range(0));
  if (!probe.Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  RunCopies(state, bytes, state.range(1) != 0, kernel, [&] {
    auto call = std::make_unique<OpCall>(bench.op);
    bench.fill(*call, state.range(0));
    return call;
  });
}

void RegisterBenchmarks() {
  for (const LatentCacheCase& bench : LatentCacheCases()) {
    for (const char* kernel : {"hwy", "reference"}) {
      const std::string name = bench.op + "/" + kernel + "/" + bench.name;
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        RunBench(state, bench, kernel);
      })->Apply(CopyArgs);
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
