// Speed of products with 4- and 8-bit weights, and of grouped products, as shares of what the
// machine can do, measured in the same run.
//
//   quantised_bench [PRODUCT ..]    of those with these names only: "int4 1152 x 6912", experts
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "peaks.h"

#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

namespace pagefuse {
namespace {

constexpr int64_t kColdBytes = int64_t{1} << 29;  // more than caches hold

// The shortest mean over rounds; calls go through the copies in turn.
double Time(int64_t copies, const std::function<absl::Status(int64_t)>& call) {
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
    int64_t calls = 0;
    const double start = Now();
    double now = start;
    while (now - start < 0.15 || calls < 2) {
      if (!call(calls++ % copies).ok()) std::abort();
      now = Now();
    }
    best = std::min(best, (now - start) / static_cast<double>(calls));
  }
  return best;
}

void Print(const std::string& name, int64_t m, double seconds, double bytes, double flops,
           const Peaks& peaks, double peak_flops) {
  std::printf(
      "%-24s m %4ld  %9.1f us  %6.1f GB/s (%3.0f%% of read)  %7.0f GF/s (%3.0f%% of peak)\n",
      name.c_str(), static_cast<long>(m), seconds * 1e6, bytes / seconds * 1e-9,
      100 * bytes / seconds / peaks.read_bytes, flops / seconds * 1e-9,
      100 * flops / seconds / peak_flops);
  std::fflush(stdout);
}

std::string NameOf(int bits, int64_t k, int64_t n) {
  return "int" + std::to_string(bits) + " " + std::to_string(k) + " x " + std::to_string(n);
}

void RunNBits(const std::string& name, int bits, std::pair<int64_t, int64_t> sizes,
              const Peaks& peaks) {
  const auto [k, n] = sizes;
  constexpr int64_t kBlock = 32;
  NBitsWeight w;
  w.bits = bits;
  w.k = k;
  w.n = n;
  w.block = kBlock;
  w.row_bytes = k * bits / 8;
  const int64_t size = n * w.row_bytes;
  const int64_t copies = std::max<int64_t>(kColdBytes / size, 2);
  std::vector<uint8_t> codes(static_cast<size_t>(size * copies));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  const std::vector<float> scales(static_cast<size_t>(n * k / kBlock * copies), 0.01f);
  for (const int64_t m : {1, 4, 16, 32, 64, 512}) {
    const std::vector<float> x(static_cast<size_t>(m * k), 0.01f);
    std::vector<float> y(static_cast<size_t>(m * n));
    Scratch scratch;
    const auto run = [&](NBitsPrecision precision) {
      return Time(copies, [&](int64_t copy) {
        w.codes = codes.data() + copy * size;
        w.scales = scales.data() + copy * (n * k / kBlock);
        return LinearNBits({x.data(), m, k}, w, precision, scratch.Get(NBitsScratchBytes(m, w)),
                           {y.data(), n});
      });
    };
    const double bytes = static_cast<double>(size + n * k / kBlock * 4);
    const double flops = 2.0 * static_cast<double>(m * n * k);
    Print(name, m, run(NBitsPrecision::kFloat32), bytes, flops, peaks, peaks.fma_flops);
    const double rounded = Time(copies, [&](int64_t copy) {
      w.codes = codes.data() + copy * size;
      w.scales = scales.data() + copy * (n * k / kBlock);
      LinearNBitsInt8({x.data(), m, k}, w, scratch.Get(NBitsInt8ScratchBytes(m, w)), {y.data(), n});
      return absl::OkStatus();
    });
    Print("  activations in int8", m, rounded, bytes, flops, peaks, peaks.fma_flops);
    if (m < 64 || !HasBf16Tiles()) continue;
    Print("  bfloat16", m, run(NBitsPrecision::kBfloat16), bytes, flops, peaks, peaks.bf16_flops);
  }
}

// A layer of DeepSeek-V2-Lite: 64 experts of 2048 x 1408, six of them a token.
void RunGrouped(const Peaks& peaks) {
  constexpr int64_t kExperts = 64, kChosen = 6, kK = 2048, kN = 1408;
  const std::vector<float> weights(static_cast<size_t>(kExperts * kK * kN), 0.01f);
  for (const int64_t tokens : {1, 4, 16, 128}) {
    const std::vector<float> x(static_cast<size_t>(tokens * kK), 0.01f);
    std::vector<float> y(static_cast<size_t>(tokens * kChosen * kN));
    Scratch scratch;
    double read = 0;
    const double seconds = Time(16, [&](int64_t call) {
      std::vector<int64_t> experts;
      for (int64_t i = 0; i < tokens * kChosen; ++i)
        experts.push_back((i * 11 + call * 17) % kExperts);
      const ExpertGroups groups = GroupByExpert(experts, kExperts);
      read = static_cast<double>(groups.groups.size()) * kK * kN * 4;
      return GroupedProduct(
          groups, {x.data(), kChosen, y.data(), kK, kN},
          [&](int64_t expert, const RowsView& rows, const OutputView& out, Scratch& memory) {
            const WeightView w{weights.data() + expert * kK * kN, kK, kN, true};
            const size_t bytes = LinearF32ScratchBytes(rows.m, w);
            return LinearF32(rows, w, bytes > 0 ? memory.Get(bytes) : nullptr, out);
          },
          scratch);
    });
    const double flops = 2.0 * static_cast<double>(tokens * kChosen * kK * kN);
    Print("experts 6 of 64", tokens, seconds, read, flops, peaks, peaks.fma_flops);
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  const std::vector<std::string> asked(argv + 1, argv + argc);
  const auto wanted = [&](const std::string& name) {
    return asked.empty() || std::count(asked.begin(), asked.end(), name) > 0;
  };
  const pagefuse::Peaks peaks = pagefuse::MeasurePeaks();
  const std::pair<int64_t, int64_t> sizes[] = {
      {1152, 6912}, {6912, 1152}, {4096, 4096}, {4096, 14336}};
  for (const int bits : {4, 8}) {
    for (const auto& [k, n] : sizes) {
      const std::string name = pagefuse::NameOf(bits, k, n);
      if (wanted(name)) pagefuse::RunNBits(name, bits, {k, n}, peaks);
    }
  }
  if (wanted("experts")) pagefuse::RunGrouped(peaks);
  return 0;
}
