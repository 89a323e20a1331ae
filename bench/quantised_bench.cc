// SPDX-License-Identifier: Apache-2.0
// Microseconds of products with weights of 4 and 8 bits, by rows of x: activations rounded to 8 bits
// ("integers") and float ones.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "code_lanes.h"
#include "peaks.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlock = 32;

// Copies of one weight, so many that each call reads memory and not a cache.
struct Weights {
  Weights(int bits, int64_t k, int64_t n) {
    constexpr int64_t kBytes = int64_t{1} << 28;
    shape.bits = bits;
    shape.k = k;
    shape.n = n;
    shape.block = kBlock;
    shape.row_bytes = k * bits / 8;
    copies = std::clamp<int64_t>(kBytes / (n * shape.row_bytes), 2, 64);
    codes.resize(static_cast<size_t>(copies * n * shape.row_bytes));
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    }
    scales.assign(static_cast<size_t>(copies * n * shape.blocks()), 0.01f);
    half_scales.assign(static_cast<size_t>(n * shape.blocks()), Float16(0.01f));
  }
  NBitsWeight Copy(int64_t i) const {
    NBitsWeight w = shape;
    w.codes = codes.data() + i % copies * w.n * w.row_bytes;
    w.scales = scales.data() + i % copies * w.n * w.blocks();
    return w;
  }

  NBitsWeight shape;
  int64_t copies;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<Float16> half_scales;  // of one copy
};

// The shortest call in a second, in microseconds.
double Microseconds(const std::function<void(int64_t)>& call) {
  call(0);
  double best = 1e30;
  int64_t calls = 1;
  for (const double start = Now(); Now() - start < 1 || calls < 6; ++calls) {
    const double before = Now();
    call(calls);
    best = std::min(best, Now() - before);
  }
  return best * 1e6;
}

void Run(int bits, int64_t k, int64_t n, const std::vector<int64_t>& rows) {
  const Weights weights(bits, k, n);
  for (const int64_t m : rows) {
    const std::vector<float> x(static_cast<size_t>(m * k), 0.01f);
    std::vector<float> y(static_cast<size_t>(m * n));
    Scratch scratch;
    const RowsView in{x.data(), m, k};
    const OutputView out{y.data(), n};
    const double integers = Microseconds([&](int64_t i) {
      const NBitsLanes w = AsLanes(weights.Copy(i), weights.half_scales.data());
      LinearNBitsInt8(in, w, scratch.Get(NBitsInt8ScratchBytes(m, w)), out);
    });
    const double floats = Microseconds([&](int64_t i) {
      const NBitsWeight w = weights.Copy(i);
      void* memory = scratch.Get(NBitsScratchBytes(m, w));
      if (!LinearNBits(in, w, NBitsPrecision::kFloat32, memory, out).ok()) std::abort();
    });
    std::printf("int%d %5ld x %5ld  m %4ld  integers %10.1f us  floats %10.1f us\n", bits,
                static_cast<long>(k), static_cast<long>(n), static_cast<long>(m), integers, floats);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  std::vector<int64_t> rows = {1, 16, 512};
  CLI::App app("Times products with weights of 4 and 8 bits");
  app.add_option("rows", rows, "numbers of rows")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  std::printf("%d threads\n", pagefuse::MaxWorkers());
  for (const int bits : {4, 8}) {
    for (const auto& [k, n] : {std::pair{1152, 6912}, {6912, 1152}, {4096, 4096}}) {
      pagefuse::Run(bits, k, n, rows);
    }
  }
  return 0;
}
