// SPDX-License-Identifier: Apache-2.0
// Matrices of bfloat16 in the order in which products read them: blocks for matrix units and SIMD alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// A matrix [k, n], or two of one size (gate and up of a gated MLP). The memory is the caller's.
//
// A block holds 32 rows and 16 columns in 1024 bytes, rows in pairs (the VNNI order of AMX-BF16 and
// AVX512-BF16):
//   element (k, n) at 16-bit word ((k % 32) / 2) * 32 + (n % 16) * 2 + k % 2
// The blocks of 16 columns follow each other over k, so that a column block is one stream of
// k_blocks * 1024 bytes. Rows and columns past the matrix are zero.
class PackedBf16 {
 public:
  static constexpr int64_t kBlockRows = 32;
  static constexpr int64_t kBlockColumns = 16;
  static constexpr int64_t kBlockWords = kBlockRows * kBlockColumns;

  // Over words that Pack wrote.
  PackedBf16() = default;
  PackedBf16(const uint16_t* words, int64_t k, int64_t n) : k_(k), n_(n), words_{words, nullptr} {}
  // Gate and up.
  PackedBf16(const uint16_t* gate, const uint16_t* up, int64_t k, int64_t n)
      : k_(k), n_(n), words_{gate, up} {}

  // Words of one packed matrix.
  static int64_t Words(int64_t k, int64_t n);
  // True if it is whole blocks: it can be packed where its rows lie.
  static bool IsWhole(int64_t k, int64_t n) {
    return k % kBlockRows == 0 && n % kBlockColumns == 0;
  }
  // `count` matrices, one behind the other, as rows [n, k].
  struct Rows {
    const uint16_t* words = nullptr;
    int64_t count = 1, n = 0, k = 0;
  };
  // Called after words [begin, begin + count) of the rows were read for the last time, from any
  // thread, in any order.
  using ReleaseFn = std::function<void(const uint16_t* begin, int64_t count)>;
  // Packs them one behind the other, with the workers of the call. `words` may be those of the rows
  // if a matrix is whole blocks.
  static void Pack(const Rows& rows, uint16_t* words, const ReleaseFn& release = {});

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }  // columns of one matrix
  bool gated() const { return words_[1] != nullptr; }
  int64_t k_blocks() const { return (k_ + kBlockRows - 1) / kBlockRows; }
  // Of both matrices: those of gate and up alternate.
  int64_t column_blocks() const { return (n_ + kBlockColumns - 1) / kBlockColumns * matrices(); }
  size_t byte_size() const { return k_blocks() * column_blocks() * kBlockWords * sizeof(uint16_t); }
  // The stream of column block `block`.
  const uint16_t* column_block(int64_t block) const {
    return words_[block % matrices()] + block / matrices() * k_blocks() * kBlockWords;
  }
  // Column n, which is row n of what was packed: k words.
  void CopyColumn(int64_t column, uint16_t* out) const;

 private:
  int64_t matrices() const { return gated() ? 2 : 1; }

  int64_t k_ = 0;
  int64_t n_ = 0;
  const uint16_t* words_[2] = {};
};

// Rounds a weight of either order to rows [n, k] of bfloat16, with the workers of the call.
// `release` is called after elements [begin, begin + count) of the source were read for the last
// time, from any thread, in any order.
void RoundToRows(const WeightView& weight, uint16_t* rows,
                 const std::function<void(const float* begin, int64_t count)>& release = {});

}  // namespace pagefuse
