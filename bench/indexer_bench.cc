// The lightning indexer against what the machine can do: scores as a share of the peak of AMX tiles
// or of multiply-adds, scores over a paged cache as a share of the memory bandwidth, the quantising
// ops and those of slots as a share of a plain copy, and top-k in time a row.
//
// Counters are those of the fastest iteration, since other programs disturb the rest.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "indexer_calls.h"
#include "run_calls.h"
#include "slot_calls.h"

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

void Packed(benchmark::State& state, int64_t queries, int64_t length) {
  constexpr int64_t kSequences = 8;
  const int64_t keys = kSequences * length;
  const double best =
      RunCalls(state,
               MakeCalls(keys * kPackedTokenBytes,
                         [&] { return PackedMqaLogitsCall(kSequences, queries, length); }),
               "hwy");
  const double flops = 2.0 * static_cast<double>(keys * queries * kIndexerHeads * kIndexerHeadSize);
  state.counters["share_of_flops"] = flops / best / PeakOf("hwy");
}

void TopK(benchmark::State& state, LogitOrder order, int64_t rows, int64_t columns) {
  const double best =
      RunCalls(state, OneCall(IndexerTopKCall(order, rows, columns, /*topk=*/2048)), "hwy");
  state.counters["us_a_row"] = best * 1e6 / static_cast<double>(rows);
  state.counters["GB/s"] = static_cast<double>(rows * columns * 4) / best * 1e-9;
}

// `make(tokens)` makes a call, `bytes(tokens)` are what it reads and writes.
template <typename Make, typename Bytes>
void AddCopy(const std::string& name, const Make& make, const Bytes& bytes) {
  const auto run = [=](benchmark::State& state) {
    const int64_t tokens = state.range(0);
    RunCopies(state, bytes(tokens), state.range(1) != 0, make(tokens)->BestKernel(),
              [&] { return make(tokens); });
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->Apply(CopyArgs);
}

void RegisterCopies() {
  AddCopy("IndexerKQuantInsert", IndexerKQuantInsertCall,
          [](int64_t tokens) { return tokens * (2 * kIndexerHeadSize + kIndexerTokenBytes); });
  AddCopy("IndexerKGather", IndexerKGatherCall,
          [](int64_t tokens) { return tokens * 2 * kIndexerTokenBytes; });
  for (const std::string format : {"fp8", "mxfp4"}) {
    const auto make = [=](int64_t tokens) { return IndexerQRopeQuantCall(format, tokens); };
    AddCopy("IndexerQRopeQuant/" + format, make, [=](int64_t tokens) {
      return tokens * kIndexerHeads * 2 * kIndexerHeadSize + make(tokens)->output_bytes(0);
    });
  }
  // Of all their tensors.
  AddCopy("TopKSlots", TopKSlotsCall,
          [](int64_t tokens) { return TopKSlotsCall(tokens)->TensorBytes(); });
  AddCopy("ReqIndexToSlot", ReqIndexToSlotCall,
          [](int64_t tokens) { return ReqIndexToSlotCall(tokens)->TensorBytes(); });
  AddCopy("CombineTopKWindow", CombineTopKWindowCall,
          [](int64_t tokens) { return CombineTopKWindowCall(tokens)->TensorBytes(); });
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

void RegisterPackedScores() {
  for (const int64_t queries : {1, 2}) {
    Add("PagedMqaLogits/mxfp4/n" + std::to_string(queries) + "/4096",
        [=](benchmark::State& state) { Packed(state, queries, 4096); });
  }
}

void RegisterTopK() {
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
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  pagefuse::RegisterScores();
  pagefuse::RegisterPackedScores();
  pagefuse::RegisterTopK();
  pagefuse::RegisterCopies();
  benchmark::RunSpecifiedBenchmarks();
  const pagefuse::Peaks& peaks = pagefuse::MachinePeaks();
  std::fprintf(stderr,
               "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s %s bfloat16\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9, peaks.bf16_flops * 1e-9,
               pagefuse::Bf16UnitName());
}
