// SPDX-License-Identifier: Apache-2.0
// The implementations of packed bfloat16 products: AMX tiles, AVX512-BF16 dot products, and Highway
// for all other machines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/ops/kernels/linalg/linear_bf16.h"

namespace pagefuse {

// One call. `gate` is read if `weight` is gated.
struct Bf16Product {
  const PackedBf16* weight;
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
