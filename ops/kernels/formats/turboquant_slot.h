// SPDX-License-Identifier: Apache-2.0
// The TurboQuant cache: keys and values of one (token, KV head) in one slot of a few hundred bits.
//
// A key is stored as its norm and, rotated and divided by it, as codes of the Lloyd-Max quantiser
// of N(0, 1/D): after an orthogonal rotation elements are nearly Gaussian (TurboQuant, Zandieh et
// al., ICLR 2026; before it DRIVE, EDEN, HIGGS). Or it is stored as e4m3fn, not rotated. A value is
// stored as codes of a uniform quantiser with scale and zero.
//
// Slot of head size D (also the meaning of vLLM's turboquant_* caches):
//   [0, kd)               key codes: ceil(D * key_bits / 8) bytes; D e4m3fn bytes with 8-bit keys
//   [kd, kd + 2)          norm, float16; not with 8-bit keys
//   [kb, kb + vd)         value codes: ceil(D * value_bits / 8) bytes
//   [kb + vd, kb + vd+2)  scale, float16
//   [.., + 2)             zero, float16
//   the rest              padding, never touched
// Codes lie as packing.h says; float16 is little-endian.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {

// What one slot holds. A value type.
struct TurboQuantFormat {
  int key_bits = 4;    // 3 or 4: codes of centroids; 8: e4m3fn
  int value_bits = 4;  // 3 or 4
  int64_t head_size = 0;

  // Keys are norms and codes of centroids in the rotated space.
  constexpr bool has_centroids() const { return key_bits != 8; }
  constexpr int64_t NumCentroids() const { return int64_t{1} << key_bits; }
  constexpr int64_t KeyDataBytes() const { return PackedBytes(head_size, key_bits); }
  constexpr int64_t KeyBytes() const { return KeyDataBytes() + (has_centroids() ? 2 : 0); }
  constexpr int64_t ValueDataBytes() const { return PackedBytes(head_size, value_bits); }
  constexpr int64_t ValueBytes() const { return ValueDataBytes() + 4; }
  constexpr int64_t SlotBytes() const { return KeyBytes() + ValueBytes(); }
};

// Below these norms and scales would divide by zero; under the root of the norm correction.
inline constexpr float kTurboQuantNormFloor = 1e-8f;
inline constexpr float kTurboQuantScaleFloor = 1e-8f;
inline constexpr float kTurboQuantSquareFloor = 1e-16f;

}  // namespace pagefuse
