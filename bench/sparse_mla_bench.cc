// SparseMlaAttention against what the machine can do: prefill as a share of the peak of matrix
// products (AMX bf16 tiles where the call can use them, else multiply-adds), decode as a share of
// the memory bandwidth for the listed rows; both measured by this program.
//
// Every iteration uses the next of several layers, for decode so many that no cache of the
// processor holds them. Counters are those of the fastest iteration, since other programs disturb
// the rest.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "peaks.h"
#include <benchmark/benchmark.h>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/cache/grouped_row.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/sparse_mla_attention.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse {
namespace {

constexpr int64_t kRows = 16384;  // of a layer's cache
constexpr int64_t kListed = 2048;
constexpr int64_t kBlockSize = 64;
constexpr int64_t kValueSize = 512;
constexpr int64_t kDecodeBytes = int64_t{512} << 20;  // of all layers together

const Peaks& MachinePeaks() {
  static const Peaks peaks = MeasurePeaks();
  return peaks;
}

struct CacheKind {
  const char* name;
  const char* format;
  DataType query, cache;
  int64_t head_size;
};

constexpr CacheKind kKinds[] = {
    {"bf16_576", "bf16", DataType::kBfloat16, DataType::kBfloat16, 576},
    {"bf16_512", "bf16", DataType::kBfloat16, DataType::kBfloat16, 512},
    {"fp8_ds_mla", "fp8_ds_mla", DataType::kBfloat16, DataType::kUint8, 576},
    {"fp8_ue8m0", "fp8_ue8m0", DataType::kBfloat16, DataType::kUint8, 512},
    {"f32_576", "bf16", DataType::kFloat, DataType::kFloat, 576},
};

struct CallShape {
  int64_t tokens, heads;
  bool dense;
};

// One call over one layer's cache, ready to run.
class Layer {
 public:
  Layer(const CacheKind& kind, const CallShape& shape, uint64_t seed) : random_(seed) {
    args_.inputs.resize(kSmNumInputs);
    Normals(kSmQuery, kind.query, {shape.tokens, shape.heads, kind.head_size});
    Cache(kind);
    if (shape.dense) {
      std::vector<int32_t> table(kRows / kBlockSize);
      std::iota(table.begin(), table.end(), 0);
      std::shuffle(table.begin(), table.end(), random_);
      Ints(kSmBlockTable, {1, kRows / kBlockSize}, table);
      Ints(kSmSeqLens, {1}, {static_cast<int32_t>(DenseLength(shape))});
      Ints(kSmQueryStartLoc, {2}, {0, static_cast<int32_t>(shape.tokens)});
    } else {
      std::vector<int32_t> indices(shape.tokens * kListed);
      for (int32_t& i : indices) i = static_cast<int32_t>(random_() % kRows);
      Ints(kSmIndices, {shape.tokens, kListed}, indices);
    }
    const int64_t outputs = shape.tokens * shape.heads;
    args_.outputs = {{kind.query,
                      {shape.tokens, shape.heads, kValueSize},
                      Bytes(outputs * kValueSize * BitWidth(kind.query) / 8)},
                     {DataType::kFloat, {shape.tokens, shape.heads}, Bytes(outputs * 4)}};
    MakeNode(kind);
  }

  // Length of the sequence of a dense call: prefill from its start, decode of a whole cache.
  static int64_t DenseLength(const CallShape& shape) {
    return shape.tokens > 8 ? std::max(shape.tokens, kListed) : kRows;
  }

  void Run(const Kernel& kernel, Scratch& scratch) {
    args_.scratch = &scratch;
    PF_CHECK(kernel.run(args_).ok());
  }

 private:
  void* Bytes(size_t size) {
    memory_.push_back(std::make_unique<std::byte[]>(size + 64));
    const auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  }
  void Ints(int input, std::vector<int64_t> dims, const std::vector<int32_t>& values) {
    void* data = Bytes(values.size() * 4);
    std::memcpy(data, values.data(), values.size() * 4);
    args_.inputs[input] = {DataType::kInt32, std::move(dims), data};
  }
  void Normals(int input, DataType type, std::vector<int64_t> dims) {
    std::vector<float> values(*ElementCount(dims));
    std::normal_distribution<float> normal;
    for (float& x : values) x = normal(random_);
    void* data = Bytes(values.size() * 4);
    PF_CHECK(EncodeFromFloat(type, values.data(), static_cast<int64_t>(values.size()), data).ok());
    args_.inputs[input] = {type, std::move(dims), data};
  }

  // Rows are copies of a few random ones: what they hold does not change how long it takes.
  void Cache(const CacheKind& kind) {
    constexpr int64_t kDistinct = 64;
    std::vector<float> x(kDistinct * kind.head_size);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random_);
    const auto source = [&](int64_t row) { return x.data() + row % kDistinct * kind.head_size; };
    if (kind.cache != DataType::kUint8) {
      const int64_t row_bytes = kind.head_size * BitWidth(kind.cache) / 8;
      auto* data = static_cast<std::byte*>(Bytes(kRows * row_bytes));
      for (int64_t row = 0; row < kRows; ++row) {
        PF_CHECK(
            EncodeFromFloat(kind.cache, source(row), kind.head_size, data + row * row_bytes).ok());
      }
      args_.inputs[kSmCache] = {kind.cache, {kRows / kBlockSize, kBlockSize, kind.head_size}, data};
      return;
    }
    const bool ds_mla = std::string(kind.format) == "fp8_ds_mla";
    const GroupedRowFormat format = ds_mla ? Fp8DsMlaRow() : Fp8Ue8m0Row();
    const PagedBytes paged = {kRows / kBlockSize, kBlockSize,
                              GroupedBlockBytes(format, kBlockSize)};
    void* data = Bytes(paged.num_blocks * paged.block_bytes);
    const CacheRows rows = GroupedRows(format, paged, data);
    const std::vector<uint16_t> tail(format.plain, 0x3F80);
    for (int64_t row = 0; row < kRows; ++row) {
      EncodeGroupedRow(format, source(row), tail.data(), rows.AtSlot(row, 0));
    }
    std::vector<int64_t> dims = {paged.num_blocks, paged.block_bytes};
    if (ds_mla) dims = {paged.num_blocks, kBlockSize, format.TokenBytes()};
    args_.inputs[kSmCache] = {kind.cache, std::move(dims), data};
  }

  void MakeNode(const CacheKind& kind) {
    std::vector<Value*> inputs;
    for (const TensorArg& arg : args_.inputs) {
      inputs.push_back(arg.present() ? graph_.AddValue(graph_.UniqueName("x"), arg.dtype)
                                     : nullptr);
    }
    Node* node = graph_.AddNode("pagefuse", "SparseMlaAttention", inputs,
                                {graph_.AddValue("out"), graph_.AddValue("lse")});
    node->SetAttribute("format", Attribute{std::string(kind.format), "", ""});
    node->SetAttribute("scale", Attribute{0.07f, "", ""});
    args_.node = node;
  }

  Graph graph_;
  KernelArgs args_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

const Kernel& VectorKernel() {
  for (const Kernel& kernel :
       OpRegistry::Global().Find("pagefuse", "SparseMlaAttention", 1)->kernels()) {
    if (kernel.name == "hwy") return kernel;
  }
  PF_CHECK(false);
}

// Runs `count` layers in turn and returns the seconds of the fastest run.
double RunLayers(benchmark::State& state, const CacheKind& kind, const CallShape& shape,
                 int64_t count) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (int64_t i = 0; i < count; ++i) layers.push_back(std::make_unique<Layer>(kind, shape, i));
  Scratch scratch;
  const Kernel& kernel = VectorKernel();
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

void Decode(benchmark::State& state, const CacheKind& kind, const CallShape& shape) {
  int64_t row_bytes = kind.head_size * BitWidth(kind.cache) / 8;
  if (kind.cache == DataType::kUint8) {
    row_bytes = (kind.head_size == 576 ? Fp8DsMlaRow() : Fp8Ue8m0Row()).TokenBytes();
  }
  const int64_t count = std::max<int64_t>(2, kDecodeBytes / (kRows * row_bytes));
  const double best = RunLayers(state, kind, shape, count);
  const int64_t rows = shape.dense ? Layer::DenseLength(shape) : shape.tokens * kListed;
  const double bytes = static_cast<double>(rows * row_bytes);
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["share"] = bytes / best / MachinePeaks().read_bytes;
}

void Prefill(benchmark::State& state, const CacheKind& kind, const CallShape& shape) {
  const double best = RunLayers(state, kind, shape, 2);
  double pairs = static_cast<double>(shape.tokens * kListed);  // of a token and a row
  if (shape.dense) {
    const int64_t context = Layer::DenseLength(shape) - shape.tokens;
    pairs = static_cast<double>(shape.tokens * context + shape.tokens * (shape.tokens + 1) / 2);
  }
  const double flops = pairs * static_cast<double>(2 * shape.heads * (kind.head_size + kValueSize));
  const Peaks& peaks = MachinePeaks();
  const bool tiles = peaks.amx_flops > 0 && kind.query == DataType::kBfloat16;
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["share"] = flops / best / (tiles ? peaks.amx_flops : peaks.fma_flops);
}

void Register() {
  const auto add = [](std::string name, auto run, const CacheKind& kind, const CallShape& shape) {
    name += std::string(shape.dense ? "/dense/" : "/listed/") + kind.name + "/tokens_" +
            std::to_string(shape.tokens) + "/heads_" + std::to_string(shape.heads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { run(state, kind, shape); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const CacheKind& kind : kKinds) {
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
  std::fprintf(stderr, "peaks: %.1f GB/s read, %.1f GFLOP/s multiply-add, %.1f GFLOP/s AMX bf16\n",
               peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9, peaks.amx_flops * 1e-9);
}
