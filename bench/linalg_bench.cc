// SPDX-License-Identifier: Apache-2.0
// Speed of the matrix products as shares of what the machine can do, measured in the same run: read
// bandwidth for few rows, the peak of AVX-512 or AVX2 multiply-add, or of the unit for bfloat16,
// for many. Weights of float32, bfloat16, 4 and 8 bits, and of experts.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "code_lanes.h"
#include "hwy/aligned_allocator.h"
#include "peaks.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"

namespace pagefuse {
namespace {

struct Product {
  std::string name;
  int64_t k;
  int64_t n;
  bool transposed = false;
  bool gated = false;
  int bits = 32;  // 4, 8: codes in blocks of 32

  double matrices() const { return gated ? 2 : 1; }
  double elements() const { return static_cast<double>(k * n) * matrices(); }
};

// Those of Gemma 3 1B, then weights of codes.
std::vector<Product> Products() {
  std::vector<Product> products = {{"q", 1152, 1024},    {"k,v", 1152, 256},
                                   {"o", 1024, 1152},    {"gate+up", 1152, 6912, false, true},
                                   {"down", 6912, 1152}, {"lm_head^T", 1152, 65536, true}};
  for (const int bits : {4, 8}) {
    for (const auto& [k, n] : {std::pair{1152, 6912}, {6912, 1152}, {4096, 4096}, {4096, 14336}}) {
      products.push_back(
          {"int" + std::to_string(bits) + " " + std::to_string(k) + " x " + std::to_string(n), k, n,
           false, false, bits});
    }
  }
  return products;
}

// Copies of weights of `bytes` bytes, so many that each call reads memory and not a cache.
int64_t Copies(double bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(1 << 30) / bytes), 2, 64);
}

void Check(const absl::Status& status) {
  if (!status.ok()) std::abort();
}

// The shortest mean over rounds; calls go through the copies in turn.
double Time(int64_t copies, const std::function<void(int64_t)>& call) {
  call(0);
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
    int64_t calls = 0;
    const double start = Now();
    double now = start;
    while (now - start < 0.15 || calls < 2) {
      call(calls++ % copies);
      now = Now();
    }
    best = std::min(best, (now - start) / static_cast<double>(calls));
  }
  return best;
}

struct Figure {
  const char* kind;
  int64_t m;
  double seconds, bytes, flops;
  bool tiles = false;  // of the unit for bfloat16
};

void Print(const std::string& name, const Figure& f, const Peaks& peaks) {
  const double peak = f.tiles ? peaks.bf16_flops : peaks.fma_flops;
  std::printf(
      "%-17s %-10s m %4ld  %9.1f us  %6.1f GB/s (%3.0f%% of read)  %7.0f GF/s (%3.0f%% of peak)\n",
      name.c_str(), f.kind, static_cast<long>(f.m), f.seconds * 1e6, f.bytes / f.seconds * 1e-9,
      100 * f.bytes / f.seconds / peaks.read_bytes, f.flops / f.seconds * 1e-9,
      100 * f.flops / f.seconds / peak);
  std::fflush(stdout);
}

void RunNumbers(const Product& p, const Peaks& peaks, const std::vector<int64_t>& rows) {
  const int64_t size = p.k * p.n, matrices = p.gated ? 2 : 1;
  const int64_t copies = Copies(4 * p.elements());
  std::vector<float> values(static_cast<size_t>(size * matrices * copies));
  ParallelFor(size * matrices * copies, sizeof(float), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = static_cast<float>((i * 2654435761u >> 7 & 1023) - 512.0) * 1e-4f;
    }
  });
  std::vector<WeightView> views;
  for (int64_t i = 0; i < copies * matrices; ++i) {
    views.push_back({values.data() + i * size, p.k, p.n, p.transposed});
  }
  const auto words = static_cast<size_t>(PackedBf16::Words(p.k, p.n));
  const auto blocks = hwy::AllocateAligned<uint16_t>(words * views.size());
  std::vector<uint16_t> row_words(static_cast<size_t>(size));
  for (size_t i = 0; i < views.size(); ++i) {
    RoundToRows(views[i], row_words.data());
    PackedBf16::Pack({.words = row_words.data(), .n = p.n, .k = p.k}, blocks.get() + i * words);
  }
  std::vector<PackedBf16> packed;
  for (int64_t i = 0; i < copies; ++i) {
    const uint16_t* first = blocks.get() + static_cast<size_t>(i * matrices) * words;
    packed.push_back(p.gated ? PackedBf16(first, first + words, p.k, p.n)
                             : PackedBf16(first, p.k, p.n));
  }
  for (const int64_t m : rows) {
    const std::vector<float> x(static_cast<size_t>(m * p.k), 0.01f);
    std::vector<float> y(static_cast<size_t>(m * p.n));
    const RowsView in{x.data(), m, p.k};
    const OutputView out{y.data(), p.n};
    Scratch memory;
    void* scratch = memory.Get(
        std::max({GatedLinearF32ScratchBytes(m, views[0]), LinearF32ScratchBytes(m, views[0]),
                  LinearBf16ScratchBytes(m, p.k), size_t{64}}));
    const double flops = 2.0 * static_cast<double>(m) * p.elements();
    const double seconds = Time(copies, [&](int64_t i) {
      const WeightView* w = &views[i * matrices];
      if (p.gated) {
        GatedLinearF32(in, {w[0], w[1], Activation::kGeluTanh}, scratch, out);
      } else {
        LinearF32(in, w[0], scratch, out);
      }
    });
    Print(p.name, {"float32", m, seconds, 4 * p.elements(), flops}, peaks);
    const auto bf16 = [&](int64_t i) {
      if (p.gated) {
        GatedLinearBf16(in, packed[i], Activation::kGeluTanh, scratch, out);
      } else {
        LinearBf16(in, packed[i], scratch, out);
      }
    };
    if (HasBf16Tiles()) {
      const double tiles = Time(copies, bf16);
      Print(p.name, {"bf16/tiles", m, tiles, 2 * p.elements(), flops, true}, peaks);
    }
    const ScopedBf16Limit limit(Bf16Unit::kNone);
    Print(p.name, {"bf16/hwy", m, Time(copies, bf16), 2 * p.elements(), flops}, peaks);
  }
}

void RunCodes(const Product& p, const Peaks& peaks, const std::vector<int64_t>& rows) {
  constexpr int64_t kBlock = 32;
  NBitsWeight w;
  w.bits = p.bits;
  w.k = p.k;
  w.n = p.n;
  w.block = kBlock;
  w.row_bytes = p.k * p.bits / 8;
  const int64_t size = p.n * w.row_bytes, blocks = p.n * p.k / kBlock;
  const int64_t copies = Copies(static_cast<double>(size));
  std::vector<uint8_t> codes(static_cast<size_t>(size * copies));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  const std::vector<float> scales(static_cast<size_t>(blocks * copies), 0.01f);
  const std::vector<Float16> half_scales(static_cast<size_t>(blocks), Float16(0.01f));
  for (const int64_t m : rows) {
    const std::vector<float> x(static_cast<size_t>(m * p.k), 0.01f);
    std::vector<float> y(static_cast<size_t>(m * p.n));
    const RowsView in{x.data(), m, p.k};
    const OutputView out{y.data(), p.n};
    Scratch scratch;
    const auto time = [&](const auto& product) {
      return Time(copies, [&](int64_t copy) {
        w.codes = codes.data() + copy * size;
        w.scales = scales.data() + copy * blocks;
        product();
      });
    };
    const auto rounded_to = [&](NBitsPrecision precision) {
      return time(
          [&] { Check(LinearNBits(in, w, precision, scratch.Get(NBitsScratchBytes(m, w)), out)); });
    };
    const auto bytes = static_cast<double>(size + blocks * 4);
    const double flops = 2.0 * static_cast<double>(m) * p.elements();
    Print(p.name, {"float32", m, rounded_to(NBitsPrecision::kFloat32), bytes, flops}, peaks);
    const double integers = time([&] {
      const NBitsLanes lanes = AsLanes(w, half_scales.data());
      LinearNBitsInt8(in, lanes, scratch.Get(NBitsInt8ScratchBytes(m, lanes)), out);
    });
    Print(p.name, {"int8 rows", m, integers, bytes, flops}, peaks);
    if (ReadsCodesAsBf16()) {
      const double decoded = time([&] {
        LinearCodesBf16(in, AsLanes(w, half_scales.data()),
                        scratch.Get(LinearBf16ScratchBytes(m, w.k)), out);
      });
      Print(p.name, {"as bf16", m, decoded, bytes, flops, true}, peaks);
    }
    if (m < 64 || !HasBf16Tiles()) continue;
    Print(p.name, {"bf16/tiles", m, rounded_to(NBitsPrecision::kBfloat16), bytes, flops, true},
          peaks);
  }
}

// A layer of DeepSeek-V2-Lite: 64 experts of 2048 x 1408, six of them a token.
void RunExperts(const Peaks& peaks, const std::vector<int64_t>& rows) {
  constexpr int64_t kExperts = 64, kChosen = 6, kK = 2048, kN = 1408;
  const std::vector<float> weights(static_cast<size_t>(kExperts * kK * kN), 0.01f);
  for (const int64_t tokens : rows) {
    const std::vector<float> x(static_cast<size_t>(tokens * kK), 0.01f);
    std::vector<float> y(static_cast<size_t>(tokens * kChosen * kN));
    Scratch scratch;
    double read = 0;
    const double seconds = Time(16, [&](int64_t call) {
      std::vector<int64_t> experts;
      for (int64_t i = 0; i < tokens * kChosen; ++i) {
        experts.push_back((i * 11 + call * 17) % kExperts);
      }
      const ExpertGroups groups = GroupByExpert(experts, kExperts);
      read = static_cast<double>(groups.groups.size()) * kK * kN * 4;
      Check(GroupedProduct(
          groups, {x.data(), kChosen, y.data(), kK, kN},
          [&](int64_t expert, const RowsView& in, const OutputView& out, Scratch& memory) {
            const WeightView w{weights.data() + expert * kK * kN, kK, kN, true};
            LinearF32(in, w, memory.Get(LinearF32ScratchBytes(in.m, w)), out);
            return absl::OkStatus();
          },
          scratch));
    });
    Print("experts", {"6 of 64", tokens, seconds, read, 2.0 * tokens * kChosen * kK * kN}, peaks);
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  std::vector<int64_t> rows = {1, 4, 16, 32, 64, 512};
  const std::vector<pagefuse::Product> products = pagefuse::Products();
  std::vector<std::string> all = {"experts"}, names;
  for (const pagefuse::Product& product : products) all.push_back(product.name);
  CLI::App app("Times products with weights");
  app.add_option("rows", rows, "numbers of rows")->check(CLI::PositiveNumber);
  app.add_option("--products", names, "all by default")->check(CLI::IsMember(all));
  CLI11_PARSE(app, argc, argv);
  const auto wanted = [&](const std::string& name) {
    return names.empty() || std::count(names.begin(), names.end(), name) > 0;
  };
  const pagefuse::Peaks peaks = pagefuse::MeasurePeaks();
  std::printf("%d threads; read %.1f GB/s, multiply-add %.0f GF/s, %s bfloat16 %.0f GF/s\n",
              pagefuse::MaxWorkers(), peaks.read_bytes * 1e-9, peaks.fma_flops * 1e-9,
              pagefuse::Bf16UnitName(), peaks.bf16_flops * 1e-9);
  for (const pagefuse::Product& product : products) {
    if (!wanted(product.name)) continue;
    (product.bits < 32 ? pagefuse::RunCodes : pagefuse::RunNumbers)(product, peaks, rows);
  }
  if (wanted("experts")) pagefuse::RunExperts(peaks, rows);
  return 0;
}
