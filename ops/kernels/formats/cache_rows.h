// SPDX-License-Identifier: Apache-2.0
// Where the bytes and scales of cache rows lie. Compiles for devices too.
#pragma once

#include <cstdint>

namespace pagefuse {

// The bytes of one row. `scale` is null where the format has no row scales.
struct RowAddress {
  uint8_t* data = nullptr;
  uint8_t* scale = nullptr;  // may be unaligned
};

// Where the rows of one paged cache lie, in bytes: a dense tensor [blocks, block_size, heads, size]
// and a dense scale tensor beside it, or rows and scales in two parts of a block: the strides tell.
struct CacheRows {
  struct Strides {
    int64_t block = 0;
    int64_t row = 0;
    int64_t head = 0;
  };
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;  // null: no row scales
  int64_t num_blocks = 0;
  int64_t block_size = 1;
  Strides data_strides;
  Strides scale_strides;

  constexpr RowAddress At(int64_t block, int64_t row, int64_t head) const {
    RowAddress bytes;
    bytes.data =
        data + block * data_strides.block + row * data_strides.row + head * data_strides.head;
    if (scales != nullptr) {
      bytes.scale = scales + block * scale_strides.block + row * scale_strides.row +
                    head * scale_strides.head;
    }
    return bytes;
  }
  constexpr RowAddress AtSlot(int64_t slot, int64_t head) const {
    return At(slot / block_size, slot % block_size, head);
  }
};

// The shape of a cache: [blocks, block_size, kv_heads, head_size], head_size counting elements
// before any packing.
struct CacheShape {
  int64_t num_blocks = 0;
  int64_t block_size = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
};

}  // namespace pagefuse
