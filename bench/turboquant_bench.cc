// The TurboQuant ops against what the machine can do: decode as time relative to PagedAttention
// over a bfloat16 cache and as a share of the memory's read bandwidth; insert and dequantisation as
// a share of what a plain copy of as many bytes reaches.
//
// Runs go through enough layers in turn that no cache of the processor holds them all; the two
// sides of a ratio alternate, and the fastest run of each counts.
//
//   turboquant_bench [seconds for each figure, 0.5 by default]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "op_call.h"
#include "paged_layer.h"
#include "peaks.h"

#include "pagefuse/ops/cache/turboquant_format.h"

namespace pagefuse {
namespace {

constexpr ModelShape kShape = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr CacheKind kBaseline = {"bf16", KvQuantMode::kNone, DataType::kBfloat16,
                                 DataType::kBfloat16};

// A cache of random slots and what the ops over it share.
class TurboQuantCall : public BenchCall {
 public:
  explicit TurboQuantCall(const TurboQuantPreset& preset)
      : preset_(preset), format_{preset.key_bits, preset.value_bits, kShape.head_size} {}

  // Bytes of `tokens` slots.
  int64_t SlotBytes(int64_t tokens) const { return tokens * kShape.kv_heads * format_.SlotBytes(); }

 protected:
  void Cache(size_t input, int64_t blocks) {
    const int64_t slots = blocks * kBenchBlockSize * kShape.kv_heads;
    const int64_t bytes = format_.SlotBytes();
    auto* data = static_cast<uint8_t*>(Bytes(slots * bytes));
    TurboQuantTables tables;
    if (format_.has_centroids()) {
      tables.centroids = DefaultCentroids(kShape.head_size, preset_.key_bits).data();
    }
    std::normal_distribution<float> normal;
    std::vector<float> x(kShape.head_size);
    constexpr int64_t kDistinct = 64;  // what slots hold does not change how long it takes
    for (int64_t i = 0; i < slots; ++i) {
      if (i >= kDistinct) {
        std::memcpy(data + i * bytes, data + i % kDistinct * bytes, bytes);
        continue;
      }
      for (float& v : x) v = normal(random_);
      EncodeTurboQuantKey(format_, tables, x.data(), data + i * bytes);
      EncodeTurboQuantValue(format_, x.data(), data + i * bytes);
    }
    Set(input, DataType::kUint8, {blocks, kBenchBlockSize, kShape.kv_heads, bytes}, data);
  }
  void SetBits(Node* node, bool norm_correction) {
    node->SetAttribute("key_bits", Attribute{int64_t{preset_.key_bits}, "", ""});
    node->SetAttribute("value_bits", Attribute{int64_t{preset_.value_bits}, "", ""});
    if (!norm_correction) return;
    node->SetAttribute("norm_correction",
                       Attribute{int64_t{preset_.norm_correction ? 1 : 0}, "", ""});
  }

  const TurboQuantPreset preset_;
  const TurboQuantFormat format_;
};

class AttentionLayer : public TurboQuantCall {
 public:
  AttentionLayer(const TurboQuantPreset& preset, int64_t length) : TurboQuantCall(preset) {
    const int64_t blocks = (length + kBenchBlockSize - 1) / kBenchBlockSize;
    const std::vector<int64_t> rows = {1, kShape.heads, kShape.head_size};
    Random(0, DataType::kBfloat16, rows);
    Cache(1, blocks);
    BlockTable(2, blocks);
    Ints(3, {1}, {static_cast<int32_t>(length)});
    Output(DataType::kBfloat16, rows);
    SetBits(MakeNode("TurboQuantAttention"), true);
  }
};

class InsertLayer : public TurboQuantCall {
 public:
  InsertLayer(const TurboQuantPreset& preset, int64_t tokens)
      : TurboQuantCall(preset), tokens_(tokens) {
    const std::vector<int64_t> rows = {tokens, kShape.kv_heads, kShape.head_size};
    const int64_t blocks = std::max<int64_t>(2 * tokens / kBenchBlockSize, 1);
    Random(0, DataType::kBfloat16, rows);
    Random(1, DataType::kBfloat16, rows);
    Cache(2, blocks);
    std::vector<int32_t> slots(tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      slots[t] = static_cast<int32_t>(t / kBenchBlockSize * 37 % blocks * kBenchBlockSize +
                                      t % kBenchBlockSize);
    }
    Ints(3, {tokens}, slots);
    args_.outputs = {args_.inputs[2]};
    SetBits(MakeNode("TurboQuantInsert"), false);
  }
  // Read and written.
  int64_t bytes() const {
    return 2 * tokens_ * kShape.kv_heads * kShape.head_size * 2 + SlotBytes(tokens_);
  }

 private:
  int64_t tokens_;
};

class DequantLayer : public TurboQuantCall {
 public:
  DequantLayer(const TurboQuantPreset& preset, int64_t length, bool inverse)
      : TurboQuantCall(preset), length_(length) {
    const int64_t blocks = length / kBenchBlockSize;
    Cache(0, blocks);
    BlockTable(1, blocks);
    Ints(2, {1}, {static_cast<int32_t>(length)});
    for (int i = 0; i < 2; ++i) {
      Output(DataType::kFloat16, {1, kShape.kv_heads, length, kShape.head_size});
    }
    Node* node = MakeNode("TurboQuantDequant");
    SetBits(node, true);
    node->SetAttribute("head_size", Attribute{kShape.head_size, "", ""});
    node->SetAttribute("inverse_rotate", Attribute{int64_t{inverse ? 1 : 0}, "", ""});
  }
  int64_t bytes() const {
    return 2 * length_ * kShape.kv_heads * kShape.head_size * 2 + SlotBytes(length_);
  }

 private:
  int64_t length_;
};

// Layers that take turns, and the fastest of their runs.
class Series {
 public:
  Series(const std::string& op, std::vector<std::unique_ptr<BenchCall>> layers)
      : kernel_(BenchKernel(op, "hwy")), layers_(std::move(layers)) {
    layers_[0]->Run(kernel_, scratch_);
  }
  void RunOnce() {
    next_ = (next_ + 1) % layers_.size();
    const double start = Now();
    layers_[next_]->Run(kernel_, scratch_);
    best_ = std::min(best_, Now() - start);
  }
  double best() const { return best_; }

 private:
  const Kernel& kernel_;
  std::vector<std::unique_ptr<BenchCall>> layers_;
  Scratch scratch_;
  size_t next_ = 0;
  double best_ = 1e30;
};

template <typename Make>
std::vector<std::unique_ptr<BenchCall>> MakeLayers(int64_t bytes, const Make& make) {
  std::vector<std::unique_ptr<BenchCall>> layers;
  for (int64_t i = 0; i < NumBenchLayers(bytes); ++i) layers.push_back(make());
  return layers;
}

void Decode(double seconds, const Peaks& peaks) {
  std::printf("%-20s %8s %10s %10s %14s %14s\n", "decode", "context", "us", "bf16 us",
              "time of bf16", "of bandwidth");
  for (int64_t length = 1024; length <= 32768; length *= 2) {
    const int64_t baseline_bytes = length * kShape.kv_heads * kShape.head_size * 4;
    Series baseline("PagedAttention", MakeLayers(baseline_bytes, [&] {
                      return std::make_unique<PagedLayer>(kShape, kBaseline, 1, length);
                    }));
    for (const TurboQuantPreset& preset : kTurboQuantPresets) {
      const int64_t bytes = TurboQuantCall(preset).SlotBytes(length);
      Series series("TurboQuantAttention", MakeLayers(bytes, [&] {
                      return std::make_unique<AttentionLayer>(preset, length);
                    }));
      for (const double end = Now() + seconds; Now() < end;) {
        baseline.RunOnce();
        series.RunOnce();
      }
      std::printf("%-20s %8ld %10.1f %10.1f %14.2f %14.2f\n", std::string(preset.name).c_str(),
                  static_cast<long>(length), series.best() * 1e6, baseline.best() * 1e6,
                  series.best() / baseline.best(),
                  static_cast<double>(bytes) / series.best() / peaks.read_bytes);
    }
  }
}

template <typename Layer, typename Make>
void ShareOfCopy(const std::string& op, const std::string& name, double seconds, const Make& make) {
  const auto one = make();
  const int64_t bytes = static_cast<const Layer&>(*one).bytes();
  Series series(op, MakeLayers(bytes, make));
  for (const double end = Now() + seconds; Now() < end;) series.RunOnce();
  std::printf("%-40s %10.1f us %14.2f of a copy\n", name.c_str(), series.best() * 1e6,
              static_cast<double>(bytes) / series.best() / CopyRate(bytes));
}

void InsertAndDequant(double seconds) {
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    const std::string name(preset.name);
    for (const int64_t tokens : {1, 64, 2048}) {
      ShareOfCopy<InsertLayer>("TurboQuantInsert", "insert " + name + " " + std::to_string(tokens),
                               seconds,
                               [&] { return std::make_unique<InsertLayer>(preset, tokens); });
    }
    for (const bool inverse : {false, true}) {
      ShareOfCopy<DequantLayer>(
          "TurboQuantDequant", std::string(inverse ? "dequant, rotated back " : "dequant ") + name,
          seconds, [&] { return std::make_unique<DequantLayer>(preset, 8192, inverse); });
    }
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  const pagefuse::Peaks peaks = pagefuse::MeasurePeaks();
  pagefuse::Decode(seconds, peaks);
  pagefuse::InsertAndDequant(seconds);
  std::printf("peak: %.1f GB/s read\n", peaks.read_bytes * 1e-9);
}
