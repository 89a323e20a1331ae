// SPDX-License-Identifier: Apache-2.0
// The implementations of packed bfloat16 products: AMX tiles, AVX512-BF16 dot products, and Highway
// for all other machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pagefuse/ops/kernels/linalg/bf16_tiles.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"

namespace pagefuse {

// What a weight is read as: column blocks of PackedBf16, where they lie, or decoded from codes.
class Bf16Source {
 public:
  explicit Bf16Source(const PackedBf16& blocks)
      : k_(blocks.k()), n_(blocks.n()), gated_(blocks.gated()), blocks_(&blocks) {}
  // Codes, or those of gate and up.
  explicit Bf16Source(const NBitsLanes& codes, const NBitsLanes* up = nullptr)
      : k_(codes.k), n_(codes.n), gated_(up != nullptr), codes_{&codes, up} {}

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }  // of one matrix
  bool gated() const { return gated_; }
  bool decodes() const { return blocks_ == nullptr; }
  int64_t k_blocks() const { return (k_ + kTileDepth - 1) / kTileDepth; }
  // Of both matrices: those of gate and up alternate.
  int64_t column_blocks() const {
    return (n_ + kTileColumns - 1) / kTileColumns * (gated_ ? 2 : 1);
  }
  // The stream of a column block, of a source that does not decode.
  const uint16_t* column_block(int64_t block) const { return blocks_->column_block(block); }
  // Blocks [k, k + count) of a column block, in `memory` if they are decoded.
  const uint16_t* Blocks(int64_t column_block, int64_t k, int64_t count, uint16_t* memory) const;
  // What is read for them.
  std::span<const std::byte> Read(int64_t column_block, int64_t k, int64_t count) const;

 private:
  const NBitsLanes& CodesOf(int64_t column_block) const {
    return *codes_[gated_ ? column_block % 2 : 0];
  }

  int64_t k_, n_;
  bool gated_;
  const PackedBf16* blocks_ = nullptr;
  const NBitsLanes* codes_[2] = {};
};

// One call. `gate` is read if `weight` is gated. Only AMX's kernel takes one that decodes.
struct Bf16Product {
  const Bf16Source* weight;
  int64_t m;
  Gate gate;
  OutputView y;
};

// `tiles`: for each 16 rows the tiles that PackTileRows makes, k_blocks * 1024 bytes apart.
// `stages`: AmxStageBytes(m) bytes, aligned to 64. Needs HasAmxBf16().
void Bf16ProductAmx(const Bf16Product& product, const uint16_t* tiles, void* stages);
size_t AmxStageBytes(int64_t m);

// `tiles` as above. Needs Bf16Unit::kAvx512.
void Bf16ProductAvx512(const Bf16Product& product, const uint16_t* tiles);

// `rows`: m rows that RoundRow made, k_blocks * 32 floats apart.
void Bf16ProductHwy(const Bf16Product& product, const float* rows);

}  // namespace pagefuse
