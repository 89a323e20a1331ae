// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "pagefuse/base/parallel.h"

namespace pagefuse {
namespace {

constexpr int64_t kLanes = NBitsLanes::kLanes;

constexpr size_t kReleasedBytes =
    1 << 20;  // at a time: each call goes to the system, for whole pages

// Bytes that were read one behind the other, released many at a time.
class ReadBytes {
 public:
  explicit ReadBytes(const ReleaseRowsFn& release) : release_(release) {}
  ~ReadBytes() { Release(); }
  ReadBytes(const ReadBytes&) = delete;
  ReadBytes& operator=(const ReadBytes&) = delete;

  void Add(const std::byte* begin, size_t bytes) {
    if (bytes_ == 0) begin_ = begin;
    bytes_ += bytes;
    if (bytes_ >= kReleasedBytes) Release();
  }

 private:
  void Release() {
    if (release_ && bytes_ > 0) release_(begin_, bytes_);
    bytes_ = 0;
  }

  const ReleaseRowsFn& release_;
  const std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

// Rows are copied before they are written side by side: the copy stays in the second cache.
template <typename T>
void Pack(const void* from, const LaneRows& rows, T* to, const ReleaseRowsFn& release = {}) {
  const int64_t groups = rows.groups();
  const int64_t row_bytes = rows.each * static_cast<int64_t>(sizeof(T));
  ParallelFor(rows.count * groups, 2 * kLanes * row_bytes, [&](int64_t begin, int64_t end) {
    std::vector<T> copy(static_cast<size_t>(kLanes * rows.each));
    ReadBytes read(release);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % groups * kLanes, valid = std::min(kLanes, rows.n - first);
      const auto* source =
          static_cast<const std::byte*>(from) + (i / groups * rows.n + first) * row_bytes;
      const auto bytes = static_cast<size_t>(valid * row_bytes);
      std::memcpy(copy.data(), source, bytes);
      std::fill(copy.begin() + valid * rows.each, copy.end(), T{});
      T* group = to + i * kLanes * rows.each;
      for (int64_t k = 0; k < rows.each; ++k) {
        for (int64_t c = 0; c < kLanes; ++c) group[k * kLanes + c] = copy[c * rows.each + k];
      }
      read.Add(source, bytes);
    }
  });
}

}  // namespace

void PackLanes(const void* from, const LaneRows& rows, uint32_t* to, const ReleaseRowsFn& release) {
  Pack(from, rows, to, release);
}
void PackLanes(const void* from, const LaneRows& rows, float* to) { Pack(from, rows, to); }
void PackLanes(const void* from, const LaneRows& rows, Float16* to) { Pack(from, rows, to); }
void PackLanes(const void* from, const LaneRows& rows, uint8_t* to) { Pack(from, rows, to); }

uint8_t NBitsLanes::Code(int64_t row, int64_t column) const {
  const int64_t bit = column * bits;
  const uint32_t word = codes[At(row / kLanes, words(), bit / 32) + row % kLanes];
  return static_cast<uint8_t>(word >> (bit % 32) & ((1U << bits) - 1));
}

float NBitsLanes::Scale(int64_t row, int64_t index) const {
  const int64_t at = At(row / kLanes, blocks(), index) + row % kLanes;
  return half_scales != nullptr ? static_cast<float>(half_scales[at]) : scales[at];
}

OwnedLanes::OwnedLanes(const NBitsWeight& w) {
  view_ = {.bits = w.bits, .n = w.n, .k = w.k, .block = w.block};
  const LaneRows of_codes{.n = w.n, .each = view_.words()};
  codes_.resize(static_cast<size_t>(of_codes.lane_size()));
  PackLanes(w.codes, of_codes, codes_.data());
  view_.codes = codes_.data();

  const LaneRows of_blocks{.n = w.n, .each = w.blocks()};
  const auto size = static_cast<size_t>(of_blocks.lane_size());
  const std::vector<Float16> halves = HalfScales(w.scales, w.n * w.blocks());
  if (!halves.empty()) {
    half_scales_.resize(size);
    PackLanes(halves.data(), of_blocks, half_scales_.data());
    view_.half_scales = half_scales_.data();
  } else {
    scales_.resize(size);
    PackLanes(w.scales, of_blocks, scales_.data());
    view_.scales = scales_.data();
  }
  if (w.zeros != nullptr) {
    zeros_.resize(size);
    PackLanes(w.zeros, of_blocks, zeros_.data());
    view_.zeros = zeros_.data();
  } else if (w.zero_codes != nullptr) {
    std::vector<uint8_t> zero_codes(static_cast<size_t>(w.n * w.blocks()));
    for (int64_t i = 0; i < w.n * w.blocks(); ++i) {
      zero_codes[i] = static_cast<uint8_t>(w.Zero(i / w.blocks(), i % w.blocks()));
    }
    zero_codes_.resize(size);
    PackLanes(zero_codes.data(), of_blocks, zero_codes_.data());
    view_.zero_codes = zero_codes_.data();
  }
}

}  // namespace pagefuse
