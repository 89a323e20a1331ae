// PagedAttention against what the machine can do: decode as a share of the memory bandwidth,
// prefill as a share of the multiply-add peak, both measured by this program; and MergeAttnStates
// as a share of a plain copy.
//
// Every iteration uses the next of enough layers that no cache of the processor holds them all, as
// in a model. Counters are those of the fastest iteration, since other programs disturb the rest:
// GB/s or GFLOP/s, and the share of the peak.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "paged_layer.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

constexpr ModelShape kLlama = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr ModelShape kGemmaLocal = {"gemma_hq4_hk1_d256_w512", 4, 1, 256, 512};
constexpr ModelShape kGemmaGlobal = {"gemma_hq4_hk1_d256", 4, 1, 256, 0};

void Decode(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
            int64_t length) {
  const int64_t bytes = VisibleBytes(shape, kind, length);
  const double best = RunCalls(
      state, MakeCalls(bytes, [&] { return PagedAttentionCall(shape, kind, 1, length); }), "hwy");
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share"] = static_cast<double>(bytes) / best / MachinePeaks().read_bytes;
}

void Prefill(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
             int64_t length) {
  OpCalls calls;
  for (int i = 0; i < 4; ++i) calls.push_back(PagedAttentionCall(shape, kind, length, length));
  const double best = RunCalls(state, std::move(calls), "hwy");
  double pairs = 0;  // of a query and a key that it sees
  for (int64_t p = 0; p < length; ++p) {
    pairs += static_cast<double>(shape.window > 0 ? std::min(p + 1, shape.window) : p + 1);
  }
  const double flops = pairs * static_cast<double>(shape.heads * shape.head_size) * 4;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / MachinePeaks().fma_flops;
}

void Merge(benchmark::State& state) {
  const auto make = [&] { return MergeAttnStatesCall(kLlama, state.range(0)); };
  RunCopies(state, make()->TensorBytes(), state.range(1) != 0, "hwy", make);
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
  std::vector<CacheKind> kinds = CacheKinds();
  kinds.push_back(NumbersOf(DataType::kFloat));
  kinds.push_back(NumbersOf(DataType::kFloat16));
  for (const CacheKind& kind : kinds) {
    for (int64_t length = 1024; length <= 32768; length *= 2)
      add("decode", Decode, kLlama, kind, length);
    add("decode", Decode, kGemmaLocal, kind, 2048);
    add("decode", Decode, kGemmaGlobal, kind, 8192);
    add("prefill", Prefill, kGemmaLocal, kind, 512);
    add("prefill", Prefill, kLlama, kind, 1024);
  }
  benchmark::RegisterBenchmark("MergeAttnStates", Merge)->Apply(CopyArgs);
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
