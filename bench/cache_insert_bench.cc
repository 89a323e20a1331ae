// PagedCacheInsert: bytes a second, as a share of what a plain copy of as many bytes reaches in the
// same program.
#include <cstdint>
#include <string>

#include "paged_layer.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

constexpr ModelShape kShape = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr CacheKind kKinds[] = {
    {"none", KvQuantMode::kNone, DataType::kBfloat16, DataType::kBfloat16},
    {"fp8_per_tensor", KvQuantMode::kFp8PerTensor, DataType::kFloat8E4M3FN, DataType::kBfloat16},
    {"int8_per_token_head", KvQuantMode::kInt8PerTokenHead, DataType::kInt8, DataType::kBfloat16},
    {"fp8_per_token_head", KvQuantMode::kFp8PerTokenHead, DataType::kFloat8E4M3FN,
     DataType::kBfloat16}};

void InsertTokens(benchmark::State& state, const CacheKind& kind, const std::string& kernel) {
  const int64_t bytes = InsertedBytes(kShape, kind, state.range(0));
  const double copy_rate = CopyRate(bytes);
  const double best =
      RunCalls(state, OneCall(PagedCacheInsertCall(kShape, kind, state.range(0))), kernel);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

void RegisterBenchmarks() {
  for (const std::string kernel : {"hwy", "reference"}) {
    for (const CacheKind& kind : kKinds) {
      benchmark::RegisterBenchmark(
          ("PagedCacheInsert/" + kernel + "/" + kind.name).c_str(),
          [=](benchmark::State& state) { InsertTokens(state, kind, kernel); })
          ->Arg(1)
          ->Arg(64)
          ->Arg(2048)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
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
