// Speed of the matrix products as shares of what the machine can do, measured in the same run: read
// bandwidth for few rows, the peak of AVX-512 or AVX2 multiply-add, or of the unit for bfloat16,
// for many.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "peaks.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"

namespace pagefuse {
namespace {

struct Case {
  const char* name;
  int64_t k;
  int64_t n;
  bool transposed = false;
  bool gated = false;
};

// The products of Gemma 3 1B.
constexpr Case kCases[] = {{"q", 1152, 1024},    {"k,v", 1152, 256},
                           {"o", 1024, 1152},    {"gate+up", 1152, 6912, false, true},
                           {"down", 6912, 1152}, {"lm_head^T", 1152, 65536, true}};

// Weights in several copies, so that each call reads memory and not the last call's cache.
struct Weights {
  std::vector<float> values;
  std::vector<WeightView> views;
};

Weights MakeWeights(const Case& c) {
  constexpr int64_t kColdBytes = int64_t{1} << 30;
  const int64_t size = c.k * c.n;
  int64_t copies = std::clamp<int64_t>(kColdBytes / (size * 4), 2, 64);
  copies += copies % 2;
  Weights weights;
  weights.values.resize(size * copies);
  ParallelFor(size * copies, sizeof(float), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      weights.values[i] = static_cast<float>((i * 2654435761u >> 7 & 1023) - 512.0) * 1e-4f;
    }
  });
  for (int64_t i = 0; i < copies; ++i) {
    weights.views.push_back({weights.values.data() + i * size, c.k, c.n, c.transposed});
  }
  return weights;
}

struct Run {
  double seconds;
  double bytes;
  double flops;
};

void Print(const Case& c, const char* kind, int64_t m, const Run& run, const Peaks& peaks,
           double peak_flops) {
  std::printf(
      "%-10s %-8s m %4ld  %9.1f us  %6.1f GB/s (%3.0f%% of read)  %7.0f GF/s (%3.0f%% of peak)\n",
      c.name, kind, m, run.seconds * 1e6, run.bytes / run.seconds * 1e-9,
      100 * run.bytes / run.seconds / peaks.read_bytes, run.flops / run.seconds * 1e-9,
      100 * run.flops / run.seconds / peak_flops);
  std::fflush(stdout);
}

// The shortest mean over rounds; calls go through the weights in turn.
double Time(int64_t weights, const std::function<void(int64_t)>& call) {
  call(0);
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
    int64_t calls = 0;
    const double start = Now();
    double now = start;
    while (now - start < 0.15 || calls < 2) {
      call(calls++ % weights);
      now = Now();
    }
    best = std::min(best, (now - start) / calls);
  }
  return best;
}

void RunCase(const Case& c, const Peaks& peaks, const std::vector<int64_t>& rows) {
  const Weights weights = MakeWeights(c);
  const int64_t matrices = c.gated ? 2 : 1;
  const int64_t products = static_cast<int64_t>(weights.views.size()) / matrices;
  const int64_t max_m = *std::max_element(rows.begin(), rows.end());
  std::vector<float> x(max_m * c.k, 0.01f);
  std::vector<float> y(max_m * c.n);
  std::vector<PackedBf16> packed;
  for (int64_t i = 0; i < products; ++i) {
    const WeightView* w = &weights.views[i * matrices];
    packed.push_back(*(c.gated ? PackedBf16::PackGated(w[0], w[1]) : PackedBf16::Pack(w[0])));
  }
  for (int64_t m : rows) {
    const RowsView in{x.data(), m, c.k};
    const OutputView out{y.data(), c.n};
    const WeightView& first = weights.views[0];
    const double flops = 2.0 * m * c.k * c.n * matrices;
    std::vector<float> scratch(std::max({GatedLinearF32ScratchBytes(m, first) / sizeof(float),
                                         LinearF32ScratchBytes(m, first) / sizeof(float),
                                         LinearBf16ScratchBytes(m, c.k) / sizeof(float)}) +
                               size_t{1} * m * c.k + 64);
    float* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) / 4;
    double seconds = Time(products, [&](int64_t i) {
      const WeightView* w = &weights.views[i * matrices];
      const absl::Status status =
          c.gated ? GatedLinearF32(in, {w[0], w[1], Activation::kGeluTanh}, aligned, out)
                  : LinearF32(in, w[0], aligned, out);
      if (!status.ok()) std::abort();
    });
    Print(c, "float32", m, {seconds, 4.0 * c.k * c.n * matrices, flops}, peaks, peaks.fma_flops);
    const auto bf16 = [&](int64_t i) {
      if (c.gated) {
        GatedLinearBf16(in, packed[i], Activation::kGeluTanh, aligned, out);
      } else {
        LinearBf16(in, packed[i], aligned, out);
      }
    };
    const double bytes = 2.0 * c.k * c.n * matrices;
    if (HasBf16Tiles()) {
      seconds = Time(products, bf16);
      Print(c, "bf16/tiles", m, {seconds, bytes, flops}, peaks, peaks.bf16_flops);
    }
    const ScopedBf16Limit limit(Bf16Unit::kNone);
    seconds = Time(products, bf16);
    Print(c, "bf16/hwy", m, {seconds, bytes, flops}, peaks, peaks.fma_flops);
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  std::vector<int64_t> rows = {1, 4, 16, 64, 512};
  std::vector<std::string> names;
  std::vector<std::string> all;
  for (const pagefuse::Case& c : pagefuse::kCases) all.emplace_back(c.name);
  CLI::App app("Times products with weights");
  app.add_option("rows", rows, "numbers of rows")->check(CLI::PositiveNumber);
  app.add_option("--products", names, "all by default")->delimiter(',')->check(CLI::IsMember(all));
  CLI11_PARSE(app, argc, argv);
  const pagefuse::Peaks peaks = pagefuse::MeasurePeaks();
  std::printf("%d threads; read %.1f GB/s, multiply-add %.0f GF/s, %s bfloat16 %.0f GF/s\n",
              pagefuse::MaxWorkers(), peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9,
              pagefuse::Bf16UnitName(), peaks.bf16_flops * 1e-9);
  for (const pagefuse::Case& c : pagefuse::kCases) {
    if (!names.empty() && std::count(names.begin(), names.end(), c.name) == 0) continue;
    pagefuse::RunCase(c, peaks, rows);
  }
  return 0;
}
