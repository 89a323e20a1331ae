// SparseMlaAttention against what the machine can do: prefill as a share of the peak of matrix
// products (the unit for bfloat16 where the call can use it, else multiply-adds), decode as a share
// of the memory bandwidth for the listed rows; both measured by this program.
//
// Every iteration uses the next of several layers, for decode so many that no cache of the
// processor holds them. Counters are those of the fastest iteration, since other programs disturb
// the rest.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "run_calls.h"
#include "sparse_mla_calls.h"

namespace pagefuse {
namespace {

double RunLayers(benchmark::State& state, const LatentKind& kind, const SparseMlaShape& shape,
                 int64_t count) {
  OpCalls calls;
  for (int64_t i = 0; i < count; ++i) {
    calls.push_back(SparseMlaCall(kind, shape, static_cast<uint32_t>(i)));
  }
  return RunCalls(state, std::move(calls), "hwy");
}

void Decode(benchmark::State& state, const LatentKind& kind, const SparseMlaShape& shape) {
  const int64_t count = std::max<int64_t>(2, kSeriesBytes / (shape.rows * kind.RowBytes()));
  const double best = RunLayers(state, kind, shape, count);
  const int64_t rows = shape.dense ? shape.DenseLength() : shape.tokens * kSparseMlaListed;
  const double bytes = static_cast<double>(rows * kind.RowBytes());
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["share"] = bytes / best / MachinePeaks().read_bytes;
}

void Prefill(benchmark::State& state, const LatentKind& kind, const SparseMlaShape& shape) {
  const double best = RunLayers(state, kind, shape, 2);
  double pairs = static_cast<double>(shape.tokens * kSparseMlaListed);  // of a token and a row
  if (shape.dense) {
    const int64_t context = shape.DenseLength() - shape.tokens;
    pairs = static_cast<double>(shape.tokens * context + shape.tokens * (shape.tokens + 1) / 2);
  }
  const double flops =
      pairs * static_cast<double>(2 * shape.heads * (kind.head_size + kSparseMlaValueSize));
  const Peaks& peaks = MachinePeaks();
  const bool tiles = peaks.bf16_flops > 0 && kind.query == DataType::kBfloat16;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / (tiles ? peaks.bf16_flops : peaks.fma_flops);
}

void Register() {
  const auto add = [](std::string name, auto run, const LatentKind& kind,
                      const SparseMlaShape& shape) {
    name += std::string(shape.dense ? "/dense/" : "/listed/") + kind.name + "/tokens_" +
            std::to_string(shape.tokens) + "/heads_" + std::to_string(shape.heads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { run(state, kind, shape); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const LatentKind& kind : kLatentKinds) {
    for (const int64_t heads : {16, 64, 128}) {
      add("prefill", Prefill, kind, {512, heads, false});
      for (const int64_t tokens : {1, 4, 8}) add("decode", Decode, kind, {tokens, heads, false});
    }
    add("prefill", Prefill, kind, {512, 64, true});
    add("decode", Decode, kind, {1, 16, true});
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  pagefuse::Register();
  benchmark::RunSpecifiedBenchmarks();
  const pagefuse::Peaks& peaks = pagefuse::MachinePeaks();
  std::fprintf(stderr,
               "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s %s bfloat16\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9, peaks.bf16_flops * 1e-9,
               pagefuse::Bf16UnitName());
}
