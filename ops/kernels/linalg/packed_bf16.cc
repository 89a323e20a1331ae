#include "pagefuse/kernels/linalg/packed_bf16.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include <sys/mman.h>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/kernels/linalg/pack_hwy.h"

namespace pagefuse {

absl::StatusOr<PackedBf16> PackedBf16::Allocate(int64_t k, int64_t n, int matrices) {
  constexpr size_t kHugePage = size_t{2} << 20;
  PackedBf16 packed;
  packed.k_ = k;
  packed.n_ = n;
  packed.matrices_ = matrices;
  const size_t bytes = packed.byte_size();
  if (bytes == 0) return packed;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  packed.words_.reset(static_cast<uint16_t*>(std::aligned_alloc(alignment, rounded)));
  if (packed.words_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of weights"));
  }
  // Whole huge pages only: the last, partial one would make bytes resident that hold nothing.
  if (bytes >= kHugePage)
    madvise(packed.words_.get(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return packed;
}

void PackedBf16::PackMatrix(const WeightView& weight, int index, const ReleaseFn& release) {
  const int64_t row_blocks = k_blocks();
  const int64_t columns = (n_ + kBlockColumns - 1) / kBlockColumns;
  const int64_t column_words = row_blocks * kBlockWords;
  // Either order reads a contiguous part of the source at a time: 32 whole rows of [k, n], 16 of
  // [n, k].
  const int64_t parts = weight.transposed ? columns : row_blocks;
  const int64_t rows = weight.transposed ? kBlockColumns : kBlockRows;
  const int64_t total_rows = weight.transposed ? n_ : k_;
  const int64_t row_size = weight.transposed ? k_ : n_;
  ParallelTasks(parts, [&](int64_t part) {
    if (weight.transposed) {
      PackColumns(weight, part, words_.get() + (part * matrices_ + index) * column_words);
    } else {
      PackRows(
          weight, part,
          {words_.get() + index * column_words + part * kBlockWords, matrices_ * column_words});
    }
    const int64_t first = part * rows;
    const int64_t count = std::min(rows, total_rows - first);
    if (release) release(weight.data + first * row_size, count * row_size);
  });
}

absl::StatusOr<PackedBf16> PackedBf16::Pack(const WeightView& weight, const ReleaseFn& release) {
  PF_ASSIGN_OR_RETURN(PackedBf16 packed, Allocate(weight.k, weight.n, 1));
  packed.PackMatrix(weight, 0, release);
  return packed;
}

absl::StatusOr<PackedBf16> PackedBf16::PackGated(const WeightView& gate, const WeightView& up,
                                                 const ReleaseFn& release) {
  PF_CHECK(gate.k == up.k && gate.n == up.n);
  PF_ASSIGN_OR_RETURN(PackedBf16 packed, Allocate(gate.k, gate.n, 2));
  packed.PackMatrix(gate, 0, release);
  packed.PackMatrix(up, 1, release);
  return packed;
}

}  // namespace pagefuse
