// The lightning indexer against what the machine can do: scores as a share of the peak of AMX tiles
// or of multiply-adds, scores over a paged cache as a share of the memory bandwidth, the quantising
// ops as a share of a plain copy, and top-k in time a row.
//
// Counters are those of the fastest iteration, since other programs disturb the rest.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "op_call.h"
#include "peaks.h"
#include <benchmark/benchmark.h>

#include "pagefuse/ir/status_macros.h"

namespace pagefuse {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kHeadSize = 128;
constexpr int64_t kBlockSize = 64;
constexpr int64_t kTokenBytes = kHeadSize + 4;
constexpr int64_t kCacheBytes = int64_t{512} << 20;  // of all layers together

const Peaks& MachinePeaks() {
  static const Peaks peaks = MeasurePeaks();
  return peaks;
}

using Calls = std::vector<std::unique_ptr<OpCall>>;

// Runs the calls in turn and returns the seconds of the fastest run.
double RunCalls(benchmark::State& state, Calls& calls, const std::string& kernel) {
  double best = 1e30;
  size_t next = 0;
  calls[0]->Run(kernel);
  for (auto _ : state) {
    next = (next + 1) % calls.size();
    const double start = Now();
    calls[next]->Run(kernel);
    const double seconds = Now() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["best_us"] = best * 1e6;
  return best;
}

void Fill(int32_t* values, int64_t count, int64_t value) {
  std::fill_n(values, count, static_cast<int32_t>(value));
}

double PeakOf(const std::string& kernel) {
  return kernel == "amx" ? MachinePeaks().amx_flops : MachinePeaks().fma_flops;
}

// `rows` queries that all see `keys` keys.
void Dense(benchmark::State& state, const std::string& kernel, int64_t rows, int64_t keys) {
  Calls calls;
  calls.push_back(std::make_unique<OpCall>("pagefuse", "MqaLogits"));
  OpCall& call = *calls[0];
  call.RandomInput(DataType::kFloat8E4M3FN, {rows, kHeads, kHeadSize}, 2);
  call.RandomInput(DataType::kFloat8E4M3FN, {keys, kHeadSize}, 2);
  std::fill_n(call.Input<float>(DataType::kFloat, {keys}), keys, 0.01f);
  call.RandomInput(DataType::kFloat, {rows, kHeads}, 0.1f);
  Fill(call.Input<int32_t>(DataType::kInt32, {rows}), rows, 0);
  Fill(call.Input<int32_t>(DataType::kInt32, {rows}), rows, keys);
  call.Output(DataType::kFloat, {rows, keys});
  if (!call.Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double best = RunCalls(state, calls, kernel);
  const double flops = 2.0 * static_cast<double>(rows * kHeads * kHeadSize * keys);
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / PeakOf(kernel);
}

// One layer's cache and `sequences` sequences of `length` keys with `queries` queries each.
std::unique_ptr<OpCall> PagedLayer(int64_t sequences, int64_t queries, int64_t length) {
  auto call = std::make_unique<OpCall>("pagefuse", "PagedMqaLogits");
  const int64_t columns = length / kBlockSize;
  const int64_t blocks = sequences * columns;
  call->RandomInput(DataType::kFloat8E4M3FN, {sequences, queries, kHeads, kHeadSize}, 2);
  auto* cache = call->Input<uint8_t>(DataType::kUint8, {blocks, kBlockSize, 1, kTokenBytes});
  // Codes and scales alike are small positive numbers.
  std::fill_n(cache, blocks * kBlockSize * kTokenBytes, uint8_t{0x38});
  call->RandomInput(DataType::kFloat, {sequences * queries, kHeads}, 0.1f);
  Fill(call->Input<int32_t>(DataType::kInt32, {sequences}), sequences, length);
  auto* table = call->Input<int32_t>(DataType::kInt32, {sequences, columns});
  std::iota(table, table + blocks, 0);
  std::shuffle(table, table + blocks, std::mt19937(1));
  call->Output(DataType::kFloat, {sequences * queries, length});
  return call;
}

void Paged(benchmark::State& state, const std::string& kernel, int64_t queries, int64_t length) {
  constexpr int64_t kSequences = 8;
  const int64_t bytes = kSequences * length * kTokenBytes;
  Calls calls;
  for (int64_t i = 0; i < std::max<int64_t>(kCacheBytes / bytes, 2); ++i) {
    calls.push_back(PagedLayer(kSequences, queries, length));
  }
  if (!calls[0]->Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double best = RunCalls(state, calls, kernel);
  const double flops =
      2.0 * static_cast<double>(kSequences * queries * kHeads * kHeadSize * length);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_read"] = static_cast<double>(bytes) / best / MachinePeaks().read_bytes;
  state.counters["share_of_flops"] = flops / best / PeakOf(kernel);
}

enum class Order { kRandom, kRising, kFewValues };

void TopK(benchmark::State& state, Order order, int64_t rows, int64_t columns) {
  constexpr int64_t kTopK = 2048;
  Calls calls;
  calls.push_back(std::make_unique<OpCall>("pagefuse", "IndexerTopK"));
  OpCall& call = *calls[0];
  auto* logits = call.Input<float>(DataType::kFloat, {rows, columns});
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto column = static_cast<float>(i % columns);
    const float number = normal(random);
    logits[i] = order == Order::kRandom   ? number
                : order == Order::kRising ? column
                                          : static_cast<float>(static_cast<int>(number));
  }
  Fill(call.Input<int32_t>(DataType::kInt32, {rows}), rows, 0);
  Fill(call.Input<int32_t>(DataType::kInt32, {rows}), rows, columns);
  call.Attribute("topk", kTopK);
  call.Output(DataType::kInt32, {rows, kTopK});
  const double best = RunCalls(state, calls, "hwy");
  state.counters["us_a_row"] = best * 1e6 / static_cast<double>(rows);
  state.counters["GB/s"] = static_cast<double>(rows * columns * 4) / best * 1e-9;
}

void KeyInsert(benchmark::State& state, int64_t tokens) {
  Calls calls;
  calls.push_back(std::make_unique<OpCall>("pagefuse", "IndexerKQuantInsert"));
  OpCall& call = *calls[0];
  const int64_t blocks = std::max<int64_t>(2 * tokens / kBlockSize, 1);
  call.RandomInput(DataType::kBfloat16, {tokens, kHeadSize}, 2);
  auto* slots = call.Input<int64_t>(DataType::kInt64, {tokens});
  std::iota(slots, slots + tokens, 0);
  const int64_t cache_bytes = blocks * kBlockSize * kTokenBytes;
  std::fill_n(call.Input<uint8_t>(DataType::kUint8, {blocks, kBlockSize, kTokenBytes}), cache_bytes,
              uint8_t{0});
  call.AliasOutput(2);
  const int64_t bytes = tokens * (2 * kHeadSize + kTokenBytes);
  const double copy_rate = CopyRate(bytes);
  const double best = RunCalls(state, calls, "hwy");
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

void QueryQuant(benchmark::State& state, const std::string& format, int64_t tokens) {
  constexpr int64_t kRotated = 64;
  constexpr int64_t kPositions = 4096;
  const bool mxfp4 = format == "mxfp4";
  Calls calls;
  calls.push_back(std::make_unique<OpCall>("pagefuse", "IndexerQRopeQuant"));
  OpCall& call = *calls[0];
  auto* positions = call.Input<int64_t>(DataType::kInt64, {tokens});
  std::iota(positions, positions + tokens, 0);
  call.RandomInput(DataType::kBfloat16, {tokens, kHeads, kHeadSize}, 2);
  call.RandomInput(DataType::kFloat, {kPositions, kRotated}, 0.5f);
  call.RandomInput(DataType::kBfloat16, {tokens, kHeads}, 1);
  call.Attribute("format", format);
  call.Attribute("softmax_scale", 0.088f);
  call.Attribute("head_scale", 0.125f);
  if (mxfp4) {
    call.Output(DataType::kUint8, {tokens, kHeads, kHeadSize / 2});
  } else {
    call.Output(DataType::kFloat8E4M3FN, {tokens, kHeads, kHeadSize});
  }
  call.Output(DataType::kFloat, {tokens, kHeads});
  if (mxfp4) call.Output(DataType::kUint8, {tokens, kHeads, kHeadSize / 32});
  const int64_t bytes = tokens * kHeads * 2 * kHeadSize + call.output_bytes(0);
  const double copy_rate = CopyRate(bytes);
  const double best = RunCalls(state, calls, "hwy");
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

template <typename Body>
void Add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void RegisterScores() {
  for (const std::string kernel : {"amx", "hwy"}) {
    for (const int64_t rows : {64, 512}) {
      for (const int64_t keys : {4096, 32768}) {
        Add("MqaLogits/" + kernel + "/" + std::to_string(rows) + "x" + std::to_string(keys),
            [=](benchmark::State& state) { Dense(state, kernel, rows, keys); });
      }
    }
    for (const int64_t queries : {1, 2}) {
      for (const int64_t length : {4096, 32768}) {
        Add("PagedMqaLogits/" + kernel + "/n" + std::to_string(queries) + "/" +
                std::to_string(length),
            [=](benchmark::State& state) { Paged(state, kernel, queries, length); });
      }
    }
  }
}

void RegisterOthers() {
  const std::pair<const char*, Order> orders[] = {
      {"random", Order::kRandom}, {"rising", Order::kRising}, {"few_values", Order::kFewValues}};
  for (const auto& [name, order] : orders) {
    for (const int64_t columns : {4096, 32768, 131072}) {
      for (const int64_t rows : {1, 32}) {
        Add("IndexerTopK/" + std::string(name) + "/" + std::to_string(rows) + "x" +
                std::to_string(columns),
            [=, order = order](benchmark::State& state) { TopK(state, order, rows, columns); });
      }
    }
  }
  for (const int64_t tokens : {1, 64, 2048}) {
    const std::string count = std::to_string(tokens);
    Add("IndexerKQuantInsert/" + count, [=](benchmark::State& state) { KeyInsert(state, tokens); });
    for (const std::string format : {"fp8", "mxfp4"}) {
      Add("IndexerQRopeQuant/" + format + "/" + count,
          [=](benchmark::State& state) { QueryQuant(state, format, tokens); });
    }
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  pagefuse::RegisterScores();
  pagefuse::RegisterOthers();
  benchmark::RunSpecifiedBenchmarks();
  const pagefuse::Peaks& peaks = pagefuse::MachinePeaks();
  std::fprintf(stderr, "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s AMX\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9, peaks.amx_flops * 1e-9);
}
