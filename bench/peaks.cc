// SPDX-License-Identifier: Apache-2.0
#include "peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/ops/kernels/linalg/x86_intrinsics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peaks.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The sum of n floats in four streams.
float ReadSum(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const int64_t quarter = n / 4 / lanes * lanes;
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  for (int64_t i = 0; i < quarter; i += lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + quarter + i));
    s2 = hn::Add(s2, hn::LoadU(d, x + 2 * quarter + i));
    s3 = hn::Add(s3, hn::LoadU(d, x + 3 * quarter + i));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// `steps` rounds of 10 independent multiply-adds; returns something that depends on all. Sets
// *flops.
float MultiplyAdds(int64_t steps, float seed, double* flops) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, seed);
  auto a = hn::Set(d, seed), b = hn::Set(d, seed + 1), c = hn::Set(d, seed + 2);
  auto e = hn::Set(d, seed + 3), f = hn::Set(d, seed + 4), g = hn::Set(d, seed + 5);
  auto h = hn::Set(d, seed + 6), i = hn::Set(d, seed + 7), j = hn::Set(d, seed + 8);
  auto k = hn::Set(d, seed + 9);
  for (int64_t step = 0; step < steps; ++step) {
    a = hn::MulAdd(a, factor, term), b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term), e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term), g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term), i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term), k = hn::MulAdd(k, factor, term);
  }
  *flops = 20.0 * steps * hn::Lanes(d);
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)),
                           hn::Add(hn::Add(f, g), hn::Add(hn::Add(h, i), hn::Add(j, k))));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {

HWY_EXPORT(ReadSum);
HWY_EXPORT(MultiplyAdds);

namespace {

volatile float sink;

// Memory as tensors have it: large blocks in huge pages.
class Block {
 public:
  explicit Block(size_t bytes) {
    absl::StatusOr<std::shared_ptr<Buffer>> buffer = Buffer::Allocate(bytes);
    PF_CHECK(buffer.ok());
    buffer_ = *std::move(buffer);
  }
  std::byte* data() const { return buffer_->data(); }

 private:
  std::shared_ptr<Buffer> buffer_;
};

double Best(int rounds, const std::function<void()>& call) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double start = Now();
    call();
    best = std::min(best, Now() - start);
  }
  return best;
}

double ReadBandwidth() {
  const int64_t size = int64_t{1} << 28;
  const Block block(size * sizeof(float));
  auto* values = reinterpret_cast<float*>(block.data());
  std::fill_n(values, size, 1.0f);
  constexpr int64_t kParts = 64;
  const double seconds = Best(5, [&] {
    ParallelTasks(kParts, [&](int64_t part) {
      sink = HWY_DYNAMIC_DISPATCH(ReadSum)(values + size / kParts * part, size / kParts);
    });
  });
  return size * sizeof(float) / seconds;
}

double MultiplyAddPeak() {
  std::atomic<double> flops = 0;  // of one thread
  const int threads = MaxWorkers();
  const double seconds = Best(5, [&] {
    ParallelTasks(threads, [&](int64_t) {
      double mine = 0;
      sink = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(2000000, 0.001f, &mine);
      flops = mine;
    });
  });
  return flops * threads / seconds;
}

#if defined(__x86_64__)

// Four products of full tiles in registers, the pattern of a blocked product; returns operations.
__attribute__((target("amx-tile,amx-bf16"))) double AmxProducts(int64_t steps) {
  alignas(64) uint8_t config[64] = {1};
  for (int t = 0; t < 8; ++t) {
    config[16 + 2 * t] = 64;
    config[48 + t] = 16;
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(steps);
}

// Sixteen sums of dot products in registers; returns operations.
__attribute__((target("avx512f,avx512bf16"))) double DotProducts(int64_t steps) {
  constexpr int kSums = 16;
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const auto pairs = (__m512bh)_mm512_set1_epi32(0);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, pairs, pairs);
      asm volatile("" : "+v"(sum));  // not one multiple of a constant
    }
  }
  return static_cast<double>(kSums * 2 * 2 * 16) * static_cast<double>(steps);
}

double Bf16Peak() {
  if (!HasBf16Tiles()) return 0;
  std::atomic<double> flops = 0;  // of one thread
  const int threads = MaxWorkers();
  const double seconds = Best(5, [&] {
    ParallelTasks(threads, [&](int64_t) {
      flops = HasAmxBf16() ? AmxProducts(200000) : DotProducts(1000000);
    });
  });
  return flops * threads / seconds;
}

#else

double Bf16Peak() { return 0; }

#endif

}  // namespace

const char* Bf16UnitName() {
  if (HasAmxBf16()) return "AMX";
  return HasBf16Tiles() ? "AVX512-BF16" : "no unit for";
}

Peaks MeasurePeaks() {
  return {.read_bytes = ReadBandwidth(), .fma_flops = MultiplyAddPeak(), .bf16_flops = Bf16Peak()};
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CopyRate(int64_t bytes, int64_t places) {
  static std::map<std::pair<int64_t, int64_t>, double> known;
  double& best = known[{bytes, places}];
  if (best > 0) return best;
  const auto half = static_cast<size_t>(bytes / 2);
  std::vector<Block> from, to;
  for (int64_t place = 0; place < places; ++place) {
    from.emplace_back(half);
    to.emplace_back(half);
    std::memset(from.back().data(), 1, half);
    std::memset(to.back().data(), 0, half);
  }
  const int64_t repeats = std::max((int64_t{1} << 30) / bytes, std::max<int64_t>(5, 2 * places));
  // Small copies are faster on one thread.
  for (const int64_t threads : {1, MaxWorkers()}) {
    for (int64_t i = 0; i < repeats; ++i) {
      const std::byte* source = from[i % places].data();
      std::byte* target = to[i % places].data();
      const double start = Now();
      ParallelTasks(threads, [&](int64_t part) {
        const size_t begin = half * part / threads;
        std::memcpy(target + begin, source + begin, half * (part + 1) / threads - begin);
      });
      // The copy is needed: another place reads it.
      asm volatile("" ::"r"(target) : "memory");
      best = std::max(best, static_cast<double>(bytes) / (Now() - start));
    }
  }
  return best;
}

int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace pagefuse
#endif  // HWY_ONCE
