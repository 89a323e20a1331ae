// PagedCacheInsert and RopeCacheInsert: bytes a second, as a share of what a plain copy of as many
// bytes reaches in the same program, in caches and in memory.
#include <cstdint>
#include <string>

#include "paged_layer.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

constexpr ModelShape kShape = {"hq32_hk8_d128", 32, 8, 128, 0};

void InsertTokens(benchmark::State& state, const CacheKind& kind, const std::string& kernel) {
  const int64_t tokens = state.range(0);
  RunCopies(state, InsertedBytes(kShape, kind, tokens), state.range(1) != 0, kernel,
            [&] { return PagedCacheInsertCall(kShape, kind, tokens); });
}

// The query is rotated too, into an output of its own.
void RotateAndInsert(benchmark::State& state, const CacheKind& kind) {
  const int64_t tokens = state.range(0);
  const int64_t query_bytes = tokens * kShape.heads * kShape.head_size * BitWidth(kind.query) / 8;
  RunCopies(state, InsertedBytes(kShape, kind, tokens) + 2 * query_bytes, state.range(1) != 0,
            "hwy", [&] { return RopeCacheInsertCall(kShape, kind, tokens); });
}

template <typename Run>
void Register(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->Apply(CopyArgs);
}

void RegisterBenchmarks() {
  for (const CacheKind& kind : CacheKinds()) {
    for (const std::string kernel : {"hwy", "reference"}) {
      Register("PagedCacheInsert/" + kernel + "/" + kind.name,
               [=](benchmark::State& state) { InsertTokens(state, kind, kernel); });
    }
    if (kind.format.needs_signs()) continue;  // RopeCacheInsert takes none
    Register("RopeCacheInsert/hwy/" + kind.name,
             [=](benchmark::State& state) { RotateAndInsert(state, kind); });
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
