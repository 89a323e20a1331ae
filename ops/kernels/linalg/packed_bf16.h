// Weights rounded to bfloat16 and stored in blocks that units for bfloat16 and SIMD streaming read
// alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/linalg/matrix.h"

namespace pagefuse {

// A matrix [k, n], or two of them (gate and up of a gated MLP) whose column blocks alternate. The
// memory is its own, or a caller's that was packed before.
//
// A block holds 32 rows and 16 columns in 1024 bytes, rows in pairs (the VNNI order of AMX-BF16 and
// AVX512-BF16):
//   element (k, n) at 16-bit word ((k % 32) / 2) * 32 + (n % 16) * 2 + k % 2
// The blocks of 16 columns follow each other over k, so that a column block is one stream of
// k_blocks * 1024 bytes:
//   one matrix:   column block n / 16
//   gate and up:  column block 2 * (n / 16) for gate, 2 * (n / 16) + 1 for up
// Rows and columns past the matrix are zero.
class PackedBf16 {
 public:
  static constexpr int64_t kBlockRows = 32;
  static constexpr int64_t kBlockColumns = 16;
  static constexpr int64_t kBlockWords = kBlockRows * kBlockColumns;

  // Called after source elements [begin, begin + count) were read for the last time, from any
  // thread, in any order.
  using ReleaseFn = std::function<void(const float* begin, int64_t count)>;

  // Packs with the workers of the call; reads the source once, front to back. ResourceExhausted if
  // there is no memory.
  static absl::StatusOr<PackedBf16> Pack(const WeightView& weight, const ReleaseFn& release = {});
  // `gate` and `up` have the same k and n.
  static absl::StatusOr<PackedBf16> PackGated(const WeightView& gate, const WeightView& up,
                                              const ReleaseFn& release = {});

  // Over words that PackInto wrote, which outlive it.
  static PackedBf16 Over(const uint16_t* words, int64_t k, int64_t n, int matrices = 1);
  // Packs one matrix, or gate and up of equal sizes, into the words that such a matrix has.
  static void PackInto(std::span<const WeightView> weights, uint16_t* words,
                       const ReleaseFn& release = {});
  // The bits of one element.
  uint16_t Word(int64_t row, int64_t column, int matrix = 0) const {
    const int64_t block = column / kBlockColumns * matrices_ + matrix;
    return column_block(block)[row / kBlockRows * kBlockWords + row % kBlockRows / 2 * kBlockRows +
                               column % kBlockColumns * 2 + row % 2];
  }

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }  // columns of one matrix
  bool gated() const { return matrices_ == 2; }
  int64_t k_blocks() const { return (k_ + kBlockRows - 1) / kBlockRows; }
  int64_t column_blocks() const { return (n_ + kBlockColumns - 1) / kBlockColumns * matrices_; }
  size_t byte_size() const { return k_blocks() * column_blocks() * kBlockWords * sizeof(uint16_t); }
  // The stream of column block `block`.
  const uint16_t* column_block(int64_t block) const {
    return words_ + block * k_blocks() * kBlockWords;
  }

 private:
  struct Free {
    void operator()(uint16_t* words) const { std::free(words); }
  };

  static absl::StatusOr<PackedBf16> PackAll(std::span<const WeightView> weights,
                                            const ReleaseFn& release);

  int64_t k_ = 0;
  int64_t n_ = 0;
  int matrices_ = 1;
  const uint16_t* words_ = nullptr;
  std::unique_ptr<uint16_t, Free> own_;  // null: the memory is a caller's
};

}  // namespace pagefuse
