// PagedAttention against what the machine can do: decode as a share of the memory bandwidth,
// prefill as a share of the multiply-add peak, both measured by this program.
//
// Every iteration uses the next of enough layers that no cache of the processor holds them all, as
// in a model. Counters are those of the fastest iteration, since other programs disturb the rest:
// GB/s or GFLOP/s, and the share of the peak.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "peaks.h"
#include <benchmark/benchmark.h>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/paged_attention.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlockSize = 16;
constexpr int64_t kLayerBytes = int64_t{512} << 20;  // of all layers together

const Peaks& MachinePeaks() {
  static const Peaks peaks = MeasurePeaks();
  return peaks;
}

struct CacheKind {
  const char* name;
  KvQuantMode mode;
  DataType type;
  DataType query;
};

constexpr CacheKind kKinds[] = {
    {"f32", KvQuantMode::kNone, DataType::kFloat, DataType::kFloat},
    {"bf16", KvQuantMode::kNone, DataType::kBfloat16, DataType::kBfloat16},
    {"f16", KvQuantMode::kNone, DataType::kFloat16, DataType::kFloat16},
    {"fp8", KvQuantMode::kFp8PerTensor, DataType::kFloat8E4M3FN, DataType::kBfloat16},
    {"int8_head", KvQuantMode::kInt8PerTokenHead, DataType::kInt8, DataType::kBfloat16},
    {"fp8_head", KvQuantMode::kFp8PerTokenHead, DataType::kFloat8E4M3FN, DataType::kBfloat16},
    {"int4_head", KvQuantMode::kInt4PerTokenHead, DataType::kUint8, DataType::kBfloat16},
};

struct ModelShape {
  const char* name;
  int64_t heads, kv_heads, head_size, window;
};

constexpr ModelShape kLlama = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr ModelShape kGemmaLocal = {"gemma_hq4_hk1_d256_w512", 4, 1, 256, 512};
constexpr ModelShape kGemmaGlobal = {"gemma_hq4_hk1_d256", 4, 1, 256, 0};

// One sequence over one layer's cache, ready to run.
class Layer {
 public:
  Layer(const ModelShape& shape, const CacheKind& kind, int64_t queries, int64_t length)
      : shape_(shape), format_(*CacheFormat::Make(kind.mode, kind.type)) {
    const int64_t blocks = (length + kBlockSize - 1) / kBlockSize;
    args_.inputs.resize(18);
    Random(kPaQuery, kind.query, {queries, shape.heads, shape.head_size});
    Cache(kPaKeyCache, kPaKScaleCache, kind.type, blocks);
    Cache(kPaValueCache, kPaVScaleCache, kind.type, blocks);
    Ints(kPaQueryStartLoc, {2}, {0, static_cast<int32_t>(queries)});
    Ints(kPaSeqLens, {1}, {static_cast<int32_t>(length)});
    std::vector<int32_t> table(blocks);
    for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), random_);
    Ints(kPaBlockTable, {1, blocks}, table);
    for (int i : {kPaKScale, kPaVScale}) {
      if (format_.has_tensor_scale()) Floats(i, {1}, {0.02f});
    }
    if (format_.needs_signs())
      Floats(kPaRhtSigns, {shape.head_size}, std::vector<float>(shape.head_size, 1));
    output_.resize(queries * shape.heads * shape.head_size * BitWidth(kind.query) / 8);
    args_.outputs = {{kind.query, {queries, shape.heads, shape.head_size}, output_.data()}};
    MakeNode(kind);
  }

  // Bytes of keys, values and scales that the last query token sees.
  int64_t VisibleBytes(int64_t length) const {
    const int64_t visible = shape_.window > 0 ? std::min(length, shape_.window) : length;
    return visible * format_.BytesPerToken(shape_.kv_heads, shape_.head_size, shape_.head_size);
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
  void Set(int input, DataType type, std::vector<int64_t> dims, void* data) {
    args_.inputs[input] = {type, std::move(dims), data};
  }
  void Ints(int input, std::vector<int64_t> dims, const std::vector<int32_t>& values) {
    void* data = Bytes(values.size() * 4);
    std::memcpy(data, values.data(), values.size() * 4);
    Set(input, DataType::kInt32, std::move(dims), data);
  }
  void Floats(int input, std::vector<int64_t> dims, const std::vector<float>& values) {
    void* data = Bytes(values.size() * 4);
    std::memcpy(data, values.data(), values.size() * 4);
    Set(input, DataType::kFloat, std::move(dims), data);
  }
  void Random(int input, DataType type, std::vector<int64_t> dims) {
    std::vector<float> values(*ElementCount(dims));
    std::normal_distribution<float> normal;
    for (float& x : values) x = normal(random_);
    void* data = Bytes(values.size() * 4);
    PF_CHECK(EncodeFromFloat(type, values.data(), static_cast<int64_t>(values.size()), data).ok());
    Set(input, type, std::move(dims), data);
  }

  // Rows are copies of a few random ones: what they hold does not change how long it takes.
  void Cache(int input, int scales, DataType type, int64_t blocks) {
    const CacheShape shape{blocks, kBlockSize, shape_.kv_heads, shape_.head_size};
    const int64_t rows = blocks * kBlockSize * shape_.kv_heads;
    const int64_t row_bytes = format_.RowBytes(shape_.head_size);
    auto* data = static_cast<uint8_t*>(Bytes(rows * row_bytes));
    auto* scale = static_cast<uint8_t*>(Bytes(rows * sizeof(float)));
    const std::vector<float> signs(shape_.head_size, 1);
    std::vector<float> x(shape_.head_size);
    std::normal_distribution<float> normal;
    constexpr int64_t kDistinct = 64;
    for (int64_t row = 0; row < rows; ++row) {
      if (row >= kDistinct) {
        std::memcpy(data + row * row_bytes, data + row % kDistinct * row_bytes, row_bytes);
        std::memcpy(scale + row * 4, scale + row % kDistinct * 4, 4);
        continue;
      }
      for (float& v : x) v = normal(random_);
      EncodeRow(format_, {.tensor_scale = 0.02f, .rht_signs = signs.data()}, x.data(),
                shape_.head_size, {data + row * row_bytes, scale + row * 4});
    }
    Set(input, type,
        {blocks, kBlockSize, shape_.kv_heads, format_.StoredElements(shape_.head_size)}, data);
    if (format_.has_row_scales()) {
      Set(scales, DataType::kFloat, {blocks, kBlockSize, shape_.kv_heads}, scale);
    }
  }

  void MakeNode(const CacheKind& kind) {
    std::vector<Value*> inputs;
    for (const TensorArg& arg : args_.inputs) {
      inputs.push_back(arg.present() ? graph_.AddValue(graph_.UniqueName("x"), arg.dtype)
                                     : nullptr);
    }
    Node* node = graph_.AddNode("pagefuse", "PagedAttention", inputs, {graph_.AddValue("y")});
    node->SetAttribute("kv_quant_mode", Attribute{std::string(KvQuantModeName(kind.mode)), "", ""});
    node->SetAttribute("sliding_window", Attribute{shape_.window, "", ""});
    args_.node = node;
  }

  ModelShape shape_;
  CacheFormat format_;
  Graph graph_;
  KernelArgs args_;
  std::mt19937 random_{1};
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::byte> output_;
};

const Kernel& VectorKernel() {
  for (const Kernel& kernel :
       OpRegistry::Global().Find("pagefuse", "PagedAttention", 1)->kernels()) {
    if (kernel.name == "hwy") return kernel;
  }
  PF_CHECK(false);
}

// Runs the layers in turn and returns the seconds of the fastest run.
double RunLayers(benchmark::State& state, std::vector<std::unique_ptr<Layer>>& layers) {
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

void Decode(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
            int64_t length) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Layer>(shape, kind, 1, length));
  const int64_t bytes = layers[0]->VisibleBytes(length);
  const int64_t count = std::clamp<int64_t>(kLayerBytes / bytes, 2, 256);
  while (static_cast<int64_t>(layers.size()) < count) {
    layers.push_back(std::make_unique<Layer>(shape, kind, 1, length));
  }
  const double best = RunLayers(state, layers);
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["share"] = static_cast<double>(bytes) / best / MachinePeaks().read_bytes;
}

void Prefill(benchmark::State& state, const ModelShape& shape, const CacheKind& kind,
             int64_t length) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (int i = 0; i < 4; ++i) {
    layers.push_back(std::make_unique<Layer>(shape, kind, length, length));
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
