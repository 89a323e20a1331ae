// The ops of DeepSeek's caches at the sizes of V3.2 and V4: bytes a second that must be read and
// written, as a share of what a plain copy of as many bytes reaches in the same program.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "op_call.h"
#include "peaks.h"

#include "pagefuse/ops/cache/grouped_row.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlockSize = 64, kSize = 512, kRotated = 64, kHeads = 64;

// A call on some tokens, made port by port.
class LatentCall {
 public:
  LatentCall(const std::string& op, int64_t tokens) : call_("pagefuse", op), tokens_(tokens) {}

  OpCall& op() { return call_; }
  int64_t tokens() const { return tokens_; }
  int64_t BlocksFor(int64_t block_size) const { return (tokens_ + block_size - 1) / block_size; }

  void Normal(DataType type, const std::vector<int64_t>& dims) { call_.RandomInput(type, dims, 1); }
  // Bytes of a cache: codes and scales near 1.
  void Bytes(const std::vector<int64_t>& dims) {
    const int64_t count =
        std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    std::memset(call_.Input<uint8_t>(DataType::kUint8, dims), 0x3C, count);
  }
  void Longs(const std::vector<int64_t>& values) {
    const int64_t count = static_cast<int64_t>(values.size());
    std::copy_n(values.data(), count, call_.Input<int64_t>(DataType::kInt64, {count}));
  }
  void Ints(const std::vector<int64_t>& dims, const std::vector<int32_t>& values) {
    std::copy_n(values.data(), values.size(), call_.Input<int32_t>(DataType::kInt32, dims));
  }
  // Slots of the tokens in blocks of random order, as a pool hands them out.
  void Slots(int64_t block_size) {
    const std::vector<int32_t> order = Blocks(block_size);
    std::vector<int64_t> slots(tokens_);
    for (int64_t t = 0; t < tokens_; ++t) {
      slots[t] = order[t / block_size] * block_size + t % block_size;
    }
    Longs(slots);
  }
  // A block table of one request with all tokens.
  void Table(int64_t block_size) {
    const std::vector<int32_t> order = Blocks(block_size);
    Ints({1, static_cast<int64_t>(order.size())}, order);
  }

 private:
  std::vector<int32_t> Blocks(int64_t block_size) const {
    std::vector<int32_t> order(BlocksFor(block_size));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(7);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }

  OpCall call_;
  int64_t tokens_;
};

// Each makes a call and returns the bytes that a run must read and write.

int64_t KeyInsert(LatentCall& call) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {call.tokens(), kSize});
  call.Slots(kBlockSize);
  call.Bytes({call.BlocksFor(kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  call.op().AliasOutput(2);
  return call.tokens() * (2 * kSize + format.TokenBytes());
}

int64_t KeyGather(LatentCall& call) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {1, call.tokens(), kSize});
  call.Bytes({call.BlocksFor(kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  call.Ints({1}, {static_cast<int32_t>(call.tokens())});
  call.Table(kBlockSize);
  call.op().AliasOutput(0);
  return call.tokens() * (2 * kSize + format.TokenBytes());
}

int64_t LatentInsert(LatentCall& call, bool quantised) {
  const int64_t row_bytes = quantised ? 656 : 2 * 576;
  call.Normal(DataType::kBfloat16, {call.tokens(), 512});
  call.Normal(DataType::kBfloat16, {call.tokens(), 64});
  call.Slots(kBlockSize);
  if (quantised) {
    call.Bytes({call.BlocksFor(kBlockSize), kBlockSize, 656});
  } else {
    call.Normal(DataType::kBfloat16, {call.BlocksFor(kBlockSize), kBlockSize, 576});
  }
  call.op().Attribute("format", std::string(quantised ? "fp8_ds_mla" : "bf16"));
  call.op().AliasOutput(3);
  return call.tokens() * (2 * 576 + row_bytes);
}

int64_t LatentGather(LatentCall& call) {
  call.Bytes({call.BlocksFor(kBlockSize), kBlockSize, 656});
  call.Table(kBlockSize);
  call.Ints({1}, {static_cast<int32_t>(call.tokens())});
  call.Ints({1}, {0});
  call.op().Output(DataType::kBfloat16, {call.tokens(), 576});
  return call.tokens() * (2 * 576 + 656);
}

int64_t StateInsert(LatentCall& call) {
  constexpr int64_t kWidth = 1024, kRatio = 4;
  std::vector<int64_t> positions(call.tokens());
  std::iota(positions.begin(), positions.end(), 0);
  for (int i = 0; i < 2; ++i) call.Normal(DataType::kFloat, {call.tokens(), kWidth});
  call.Normal(DataType::kFloat, {kRatio, kWidth});
  call.Longs(positions);
  call.Slots(kRatio);
  call.Normal(DataType::kFloat, {call.BlocksFor(kRatio), kRatio, 2 * kWidth});
  call.op().Attribute("compress_ratio", kRatio);
  call.op().AliasOutput(5);
  return call.tokens() * 4 * kWidth * 4;
}

// Every token ends a window; the windows share one ring of state blocks.
int64_t CompressInsert(LatentCall& call, int64_t ratio, const std::string& format, int64_t size) {
  const int64_t overlap = ratio == 4 ? 1 : 0;
  const int64_t state_block = ratio == 4 ? 4 : 8;
  const int64_t state_row = 2 * (1 + overlap) * size;
  const int64_t window = (1 + overlap) * ratio;
  std::vector<int64_t> positions, slots;
  for (int64_t i = 0; i < call.tokens(); ++i) {
    positions.push_back((i % 16 + 2) * ratio - 1);
    slots.push_back(i);
  }
  const int64_t columns = 18 * ratio / state_block;
  std::vector<int32_t> table(columns);
  std::iota(table.begin(), table.end(), 0);
  const GroupedRowFormat row = format == "fp8_ue8m0"     ? Fp8Ue8m0Row()
                               : format == "indexer_fp8" ? IndexerFp8Row(size, size)
                                                         : IndexerMxfp4Row(size);
  call.Normal(DataType::kFloat, {columns, state_block, state_row});
  call.Ints({call.tokens()}, std::vector<int32_t>(call.tokens()));
  call.Longs(positions);
  call.Longs(slots);
  call.Ints({1, columns}, table);
  call.Normal(DataType::kBfloat16, {size});
  call.Normal(DataType::kFloat, {18 * ratio, kRotated});
  call.Longs(slots);
  call.Bytes({call.BlocksFor(kBlockSize), GroupedBlockBytes(row, kBlockSize)});
  call.op().Attribute("format", format);
  call.op().Attribute("compress_ratio", ratio);
  call.op().AliasOutput(8);
  return call.tokens() * (window * size * 2 * 4 + row.TokenBytes());
}

int64_t QueryNorm(LatentCall& call) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  call.Normal(DataType::kBfloat16, {call.tokens(), kHeads, kSize});
  call.Normal(DataType::kBfloat16, {call.tokens(), kSize});
  call.Bytes({call.BlocksFor(kBlockSize), GroupedBlockBytes(format, kBlockSize)});
  call.Slots(kBlockSize);
  call.Longs(std::vector<int64_t>(call.tokens(), 5));
  call.Normal(DataType::kFloat, {16, kRotated});
  call.op().Output(DataType::kBfloat16, {call.tokens(), kHeads, kSize});
  call.op().AliasOutput(2);
  return call.tokens() * (kHeads * kSize * 4 + kSize * 2 + format.TokenBytes());
}

int64_t InverseRope(LatentCall& call) {
  call.Normal(DataType::kBfloat16, {call.tokens(), kHeads, kSize});
  call.Longs(std::vector<int64_t>(call.tokens(), 5));
  call.Normal(DataType::kFloat, {16, kRotated});
  call.op().Attribute("n_groups", int64_t{8});
  call.op().Output(DataType::kFloat8E4M3FN, {call.tokens(), 8, kHeads / 8 * kSize});
  call.op().Output(DataType::kFloat, {call.tokens(), 8, kHeads / 8 * kSize / 128});
  return call.tokens() * kHeads * (kSize * 3 + 16);
}

struct Bench {
  std::string name, op;
  std::function<int64_t(LatentCall&)> make;
};

std::vector<Bench> Benches() {
  const auto compress = [](int64_t ratio, const char* format, int64_t size) {
    return [=](LatentCall& call) { return CompressInsert(call, ratio, format, size); };
  };
  return {
      {"fp8_ue8m0", "KCacheQuantInsert", KeyInsert},
      {"fp8_ue8m0", "KCacheDequantGather", KeyGather},
      {"fp8_ds_mla", "MlaCacheInsert", [](LatentCall& call) { return LatentInsert(call, true); }},
      {"bf16", "MlaCacheInsert", [](LatentCall& call) { return LatentInsert(call, false); }},
      {"fp8_ds_mla", "MlaGatherUpconvert", LatentGather},
      {"ratio4", "CompressorStateInsert", StateInsert},
      {"fp8_ue8m0_ratio4", "CompressCacheInsert", compress(4, "fp8_ue8m0", 512)},
      {"fp8_ue8m0_ratio128", "CompressCacheInsert", compress(128, "fp8_ue8m0", 512)},
      {"indexer_fp8", "CompressCacheInsert", compress(4, "indexer_fp8", 128)},
      {"indexer_mxfp4", "CompressCacheInsert", compress(4, "indexer_mxfp4", 128)},
      {"fp8_ue8m0_64_heads", "QNormRopeKvInsert", QueryNorm},
      {"64_heads", "InvRopeQuant", InverseRope}};
}

void RunBench(benchmark::State& state, const Bench& bench, const std::string& kernel) {
  LatentCall call(bench.op, state.range(0));
  const int64_t bytes = bench.make(call);
  if (!call.op().Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double copy_rate = CopyRate(bytes);
  double seconds = 0;
  for (auto _ : state) {
    const double start = Now();
    call.op().Run(kernel);
    seconds += Now() - start;
  }
  const double total = static_cast<double>(bytes * state.iterations());
  state.SetBytesProcessed(bytes * state.iterations());
  state.counters["share_of_copy"] = total / seconds / copy_rate;
}

void RegisterBenchmarks() {
  for (const Bench& bench : Benches()) {
    for (const char* kernel : {"hwy", "reference"}) {
      const std::string name = bench.op + "/" + kernel + "/" + bench.name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { RunBench(state, bench, kernel); })
          ->Arg(1)
          ->Arg(64)
          ->Arg(2048)
          ->UseRealTime();
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
