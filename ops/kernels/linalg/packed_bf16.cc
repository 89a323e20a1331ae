// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/pack_hwy.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// Of rows that go back to their file at one time: 1 MiB.
constexpr int64_t kReleasedWords = int64_t{1} << 19;

}  // namespace

int64_t PackedBf16::Words(int64_t k, int64_t n) {
  const PackedBf16 packed(nullptr, k, n);
  return packed.k_blocks() * packed.column_blocks() * kBlockWords;
}

void PackedBf16::Pack(const Rows& rows, uint16_t* words, const ReleaseFn& release) {
  const PackedBf16 packed(words, rows.k, rows.n);
  const int64_t blocks = packed.column_blocks();
  const int64_t block_words = packed.k_blocks() * kBlockWords;
  const auto row_of = [&](int64_t block) {
    return rows.words + (block / blocks * rows.n + block % blocks * kBlockColumns) * rows.k;
  };
  PF_CHECK(words != rows.words || IsWhole(rows.k, rows.n));
  ParallelFor(rows.count * blocks, block_words * sizeof(uint16_t), [&](int64_t begin, int64_t end) {
    // Read front to back, as memory likes it, and put in order in cache.
    std::vector<uint16_t> copy(static_cast<size_t>(kBlockColumns * rows.k));
    const uint16_t* held = row_of(begin);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t columns = std::min(kBlockColumns, rows.n - i % blocks * kBlockColumns);
      const uint16_t* from = row_of(i);
      std::copy_n(from, columns * rows.k, copy.data());
      PackColumns(copy.data(), rows.k, columns, words + i * block_words);
      const uint16_t* read_to = from + columns * rows.k;
      if (!release || (i + 1 < end && read_to - held < kReleasedWords)) continue;
      release(held, read_to - held);
      held = read_to;
    }
  });
}

void PackedBf16::CopyColumn(int64_t column, uint16_t* out) const {
  const uint16_t* pairs =
      column_block(column / kBlockColumns * matrices()) + column % kBlockColumns * 2;
  for (int64_t k = 0; k < k_; k += 2, pairs += 2 * kBlockColumns) {
    out[k] = pairs[0];
    if (k + 1 < k_) out[k + 1] = pairs[1];
  }
}

void RoundToRows(const WeightView& weight, uint16_t* rows,
                 const std::function<void(const float* begin, int64_t count)>& release) {
  // Rows of the source of a unit of work; of [k, n] they become runs of 128 bytes.
  constexpr int64_t kRows = 64;
  const int64_t total = weight.transposed ? weight.n : weight.k;
  const int64_t size = weight.transposed ? weight.k : weight.n;
  ParallelTasks((total + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t first = task * kRows;
    const int64_t count = std::min(kRows, total - first);
    const float* from = weight.data + first * size;
    if (weight.transposed) {
      EncodeFromFloat(DataType::kBfloat16, from, count * size, rows + first * size).IgnoreError();
    } else {
      RoundTransposed(weight, first, count, rows);
    }
    if (release) release(from, count * size);
  });
}

}  // namespace pagefuse
