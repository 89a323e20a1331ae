// The TurboQuant ops against what the machine can do: decode as time relative to PagedAttention
// over a bfloat16 cache and as a share of the memory's read bandwidth; insert and dequantisation as
// a share of what a plain copy of as many bytes reaches, in caches and in memory.
//
// Decoding goes through enough layers in turn that no cache of the processor holds them all; the
// two sides of a ratio alternate, and the fastest run of each counts.
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "paged_layer.h"
#include "peaks.h"

namespace pagefuse {
namespace {

constexpr ModelShape kShape = {"hq32_hk8_d128", 32, 8, 128, 0};

void Decode(double seconds, const Peaks& peaks) {
  const CacheKind numbers = NumbersOf(DataType::kBfloat16);
  std::printf("%-20s %8s %10s %10s %14s %14s\n", "decode", "context", "us", "bf16 us",
              "time of bf16", "of bandwidth");
  for (int64_t length = 1024; length <= 32768; length *= 2) {
    CallSeries baseline(MakeCalls(VisibleBytes(kShape, numbers, length),
                                  [&] { return PagedAttentionCall(kShape, numbers, 1, length); }),
                        "hwy");
    for (const TurboQuantPreset& preset : kTurboQuantPresets) {
      const int64_t bytes = TurboQuantBytes(kShape, preset, length);
      CallSeries series(
          MakeCalls(bytes, [&] { return TurboQuantAttentionCall(kShape, preset, length); }), "hwy");
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

// `bytes`: read and written by one call. In caches, and for calls of some size in memory.
template <typename Make>
void ShareOfCopy(const std::string& name, double seconds, int64_t bytes, const Make& make) {
  const auto share = [&](OpCalls calls, int64_t places) {
    CallSeries series(std::move(calls), "hwy");
    for (const double end = Now() + seconds; Now() < end;) series.RunOnce();
    std::printf("  %10.1f us %5.2f of a copy", series.best() * 1e6,
                static_cast<double>(bytes) / series.best() / CopyRate(bytes, places));
  };
  std::printf("%-40s", name.c_str());
  share(OneCall(make()), 1);
  if (bytes > int64_t{1} << 20) share(MakeCalls(bytes, make), SeriesLength(bytes));
  std::printf("\n");
}

// Keys and values of 16 bits an element, and slots.
int64_t ConvertedBytes(const TurboQuantPreset& preset, int64_t tokens) {
  return 2 * tokens * kShape.kv_heads * kShape.head_size * 2 +
         TurboQuantBytes(kShape, preset, tokens);
}

void InsertAndDequant(double seconds) {
  std::printf("%-40s  %29s  %29s\n", "", "one place", "many places in turn");
  constexpr int64_t kMostTokens = 2048;
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    const std::string name(preset.name);
    for (const int64_t tokens : {int64_t{1}, int64_t{64}, kMostTokens}) {
      ShareOfCopy("insert " + name + " " + std::to_string(tokens), seconds,
                  ConvertedBytes(preset, tokens),
                  [&] { return TurboQuantInsertCall(kShape, preset, tokens); });
    }
    if (preset.key_bits < 8) {  // float8 keys are not rotated
      ShareOfCopy(
          "insert, given matrix " + name, seconds, ConvertedBytes(preset, kMostTokens), [&] {
            return TurboQuantInsertCall(kShape, preset, kMostTokens, KeyRotation::kGivenMatrix);
          });
    }
    constexpr int64_t kLength = 8192;
    for (const bool inverse : {false, true}) {
      ShareOfCopy(std::string(inverse ? "dequant, rotated back " : "dequant ") + name, seconds,
                  ConvertedBytes(preset, kLength),
                  [&] { return TurboQuantDequantCall(kShape, preset, kLength, inverse); });
    }
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  double seconds = 0.5;
  CLI::App app("Times the TurboQuant ops");
  app.add_option("seconds", seconds, "for each figure")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const pagefuse::Peaks peaks = pagefuse::MeasurePeaks();
  pagefuse::Decode(seconds, peaks);
  pagefuse::InsertAndDequant(seconds);
  std::printf("peak: %.1f GB/s read\n", peaks.read_bytes * 1e-9);
}
