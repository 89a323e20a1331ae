#include "pagefuse/ops/kernels/linalg/packed_bf16.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include <sys/mman.h>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/pack_hwy.h"

namespace pagefuse {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Matrix `index` of those that alternate in `words`.
void PackMatrix(const PackedBf16& packed, const WeightView& weight, int index, uint16_t* words,
                const PackedBf16::ReleaseFn& release) {
  const int64_t matrices = packed.gated() ? 2 : 1;
  const int64_t row_blocks = packed.k_blocks();
  const int64_t columns = packed.column_blocks() / matrices;
  const int64_t column_words = row_blocks * PackedBf16::kBlockWords;
  // Either order reads a contiguous part of the source at a time: 32 whole rows of [k, n], 16 of
  // [n, k].
  const int64_t parts = weight.transposed ? columns : row_blocks;
  const int64_t rows = weight.transposed ? PackedBf16::kBlockColumns : PackedBf16::kBlockRows;
  const int64_t total_rows = weight.transposed ? weight.n : weight.k;
  const int64_t row_size = weight.transposed ? weight.k : weight.n;
  ParallelTasks(parts, [&](int64_t part) {
    if (weight.transposed) {
      PackColumns(weight, part, words + (part * matrices + index) * column_words);
    } else {
      PackRows(
          weight, part,
          {words + index * column_words + part * PackedBf16::kBlockWords, matrices * column_words});
    }
    const int64_t first = part * rows;
    const int64_t count = std::min(rows, total_rows - first);
    if (release) release(weight.data + first * row_size, count * row_size);
  });
}

}  // namespace

PackedBf16 PackedBf16::Over(const uint16_t* words, int64_t k, int64_t n, int matrices) {
  PackedBf16 packed;
  packed.k_ = k;
  packed.n_ = n;
  packed.matrices_ = matrices;
  packed.words_ = words;
  return packed;
}

void PackedBf16::PackInto(std::span<const WeightView> weights, uint16_t* words,
                          const ReleaseFn& release) {
  const PackedBf16 packed =
      Over(words, weights[0].k, weights[0].n, static_cast<int>(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    PF_CHECK(weights[i].k == packed.k() && weights[i].n == packed.n());
    PackMatrix(packed, weights[i], static_cast<int>(i), words, release);
  }
}

absl::StatusOr<PackedBf16> PackedBf16::PackAll(std::span<const WeightView> weights,
                                               const ReleaseFn& release) {
  PackedBf16 packed = Over(nullptr, weights[0].k, weights[0].n, static_cast<int>(weights.size()));
  const size_t bytes = packed.byte_size();
  if (bytes == 0) return packed;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  packed.own_.reset(static_cast<uint16_t*>(std::aligned_alloc(alignment, rounded)));
  if (packed.own_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of weights"));
  }
  // Whole huge pages only: the last, partial one would make bytes resident that hold nothing.
  if (bytes >= kHugePage) madvise(packed.own_.get(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  packed.words_ = packed.own_.get();
  PackInto(weights, packed.own_.get(), release);
  return packed;
}

absl::StatusOr<PackedBf16> PackedBf16::Pack(const WeightView& weight, const ReleaseFn& release) {
  return PackAll({&weight, 1}, release);
}

absl::StatusOr<PackedBf16> PackedBf16::PackGated(const WeightView& gate, const WeightView& up,
                                                 const ReleaseFn& release) {
  const WeightView both[] = {gate, up};
  return PackAll(both, release);
}

}  // namespace pagefuse
