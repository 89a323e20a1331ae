// The lightning indexer against what the machine can do: scores as a share of the peak of AMX tiles
// or of multiply-adds, scores over a paged cache as a share of the memory bandwidth, the quantising
// ops as a share of a plain copy, and top-k in time a row.
//
// Counters are those of the fastest iteration, since other programs disturb the rest.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "indexer_calls.h"
#include "run_calls.h"

namespace pagefuse {
namespace {

double PeakOf(const std::string& kernel) {
  return kernel == "tiles" ? MachinePeaks().bf16_flops : MachinePeaks().fma_flops;
}

void Dense(benchmark::State& state, const std::string& kernel, int64_t rows, int64_t keys) {
  std::unique_ptr<OpCall> call = MqaLogitsCall(rows, keys);
  if (!call->Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double best = RunCalls(state, OneCall(std::move(call)), kernel);
  const double flops = 2.0 * static_cast<double>(rows * kIndexerHeads * kIndexerHeadSize * keys);
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / PeakOf(kernel);
}

void Paged(benchmark::State& state, const std::string& kernel, int64_t queries, int64_t length) {
  constexpr int64_t kSequences = 8;
  const int64_t keys = kSequences * length;
  const auto bytes = static_cast<double>(keys * kIndexerTokenBytes);
  OpCalls calls = MakeCalls(keys * kIndexerTokenBytes,
                            [&] { return PagedMqaLogitsCall(kSequences, queries, length); });
  if (!calls[0]->Has(kernel)) return state.SkipWithError("no such kernel on this machine");
  const double best = RunCalls(state, std::move(calls), kernel);
  const double flops = 2.0 * static_cast<double>(keys * queries * kIndexerHeads * kIndexerHeadSize);
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["share_of_read"] = bytes / best / MachinePeaks().read_bytes;
  state.counters["share_of_flops"] = flops / best / PeakOf(kernel);
}

void TopK(benchmark::State& state, LogitOrder order, int64_t rows, int64_t columns) {
  const double best =
      RunCalls(state, OneCall(IndexerTopKCall(order, rows, columns, /*topk=*/2048)), "hwy");
  state.counters["us_a_row"] = best * 1e6 / static_cast<double>(rows);
  state.counters["GB/s"] = static_cast<double>(rows * columns * 4) / best * 1e-9;
}

// `bytes`: read and written.
void ShareOfCopy(benchmark::State& state, std::unique_ptr<OpCall> call, int64_t bytes) {
  const double copy_rate = CopyRate(bytes);
  const double best = RunCalls(state, OneCall(std::move(call)), "hwy");
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share_of_copy"] = static_cast<double>(bytes) / best / copy_rate;
}

void KeyInsert(benchmark::State& state, int64_t tokens) {
  ShareOfCopy(state, IndexerKQuantInsertCall(tokens),
              tokens * (2 * kIndexerHeadSize + kIndexerTokenBytes));
}

void QueryQuant(benchmark::State& state, const std::string& format, int64_t tokens) {
  std::unique_ptr<OpCall> call = IndexerQRopeQuantCall(format, tokens);
  const int64_t bytes = tokens * kIndexerHeads * 2 * kIndexerHeadSize + call->output_bytes(0);
  ShareOfCopy(state, std::move(call), bytes);
}

template <typename Body>
void Add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void RegisterScores() {
  for (const std::string kernel : {"tiles", "hwy"}) {
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
  const std::pair<const char*, LogitOrder> orders[] = {{"random", LogitOrder::kRandom},
                                                       {"rising", LogitOrder::kRising},
                                                       {"few_values", LogitOrder::kFewValues}};
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
  std::fprintf(stderr,
               "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s %s bfloat16\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9, peaks.bf16_flops * 1e-9,
               pagefuse::Bf16UnitName());
}
