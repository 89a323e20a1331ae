// PagedAttention against what the machine can do: decode as a share of the memory bandwidth,
// prefill as a share of the multiply-add peak, both measured by this program.
//
// Every iteration uses the next of enough layers that no cache of the processor holds them all, as
// in a model. Counters are those of the fastest iteration, since other programs disturb the rest:
// GB/s or GFLOP/s, and the share of the peak.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "paged_layer.h"
#include "peaks.h"
#include <benchmark/benchmark.h>

namespace pagefuse {
namespace {

const Peaks& MachinePeaks() {
  static const Peaks peaks = MeasurePeaks();
  return peaks;
}

constexpr CacheKind kKinds[] = {
    {"f32", KvQuantMode::kNone, DataType::kFloat, DataType::kFloat},
    {"bf16", KvQuantMode::kNone, DataType::kBfloat16, DataType::kBfloat16},
    {"f16", KvQuantMode::kNone, DataType::kFloat16, DataType::kFloat16},
    {"fp8", KvQuantMode::kFp8PerTensor, DataType::kFloat8E4M3FN, DataType::kBfloat16},
    {"int8_head", KvQuantMode::kInt8PerTokenHead, DataType::kInt8, DataType::kBfloat16},
    {"fp8_head", KvQuantMode::kFp8PerTokenHead, DataType::kFloat8E4M3FN, DataType::kBfloat16},
    {"int4_head", KvQuantMode::kInt4PerTokenHead, DataType::kUint8, DataType::kBfloat16},
};

constexpr ModelShape kLlama = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr ModelShape kGemmaLocal = {"gemma_hq4_hk1_d256_w512", 4, 1, 256, 512};
constexpr ModelShape kGemmaGlobal = {"gemma_hq4_hk1_d256", 4, 1, 256, 0};

// Runs the layers in turn and returns the seconds of the fastest run.
double RunLayers(benchmark::State& state, std::vector<std::unique_ptr<PagedLayer>>& layers) {
  Scratch scratch;
  const Kernel& kernel = BenchKernel("PagedAttention", "hwy");
  layers[0]->Run(kernel, scratch);
  double best = 1e30;
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 1) % layers.size();
    const double start = Now();
    layers[next]->Run(kernel, scratch);
    const double seconds = Now() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}

void Decode(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
            int64_t length) {
  std::vector<std::unique_ptr<PagedLayer>> layers;
  layers.push_back(std::make_unique<PagedLayer>(shape, kind, 1, length));
  const int64_t bytes = layers[0]->VisibleBytes(length);
  const int64_t count = NumBenchLayers(bytes);
  while (static_cast<int64_t>(layers.size()) < count) {
    layers.push_back(std::make_unique<PagedLayer>(shape, kind, 1, length));
  }
  const double best = RunLayers(state, layers);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share"] = static_cast<double>(bytes) / best / MachinePeaks().read_bytes;
}

void Prefill(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
             int64_t length) {
  std::vector<std::unique_ptr<PagedLayer>> layers;
  for (int i = 0; i < 4; ++i) {
    layers.push_back(std::make_unique<PagedLayer>(shape, kind, length, length));
  }
  const double best = RunLayers(state, layers);
  double pairs = 0;  // of a query and a key that it sees
  for (int64_t p = 0; p < length; ++p) {
    pairs += static_cast<double>(shape.window > 0 ? std::min(p + 1, shape.window) : p + 1);
  }
  const double flops = pairs * static_cast<double>(shape.heads * shape.head_size) * 4;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / MachinePeaks().fma_flops;
}

void Register() {
  const auto add = [](std::string name, auto run, const ModelShape& shape, const CacheKind& kind,
                      int64_t length) {
    name += std::string("/") + shape.name + "/" + kind.name + "/" + std::to_string(length);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { run(state, shape, kind, length); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const CacheKind& kind : kKinds) {
    for (int64_t length = 1024; length <= 32768; length *= 2)
      add("decode", Decode, kLlama, kind, length);
    add("decode", Decode, kGemmaLocal, kind, 2048);
    add("decode", Decode, kGemmaGlobal, kind, 8192);
    add("prefill", Prefill, kGemmaLocal, kind, 512);
    add("prefill", Prefill, kLlama, kind, 1024);
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  pagefuse::Register();
  benchmark::RunSpecifiedBenchmarks();
  const pagefuse::Peaks& peaks = pagefuse::MachinePeaks();
  std::fprintf(stderr, "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9);
}
