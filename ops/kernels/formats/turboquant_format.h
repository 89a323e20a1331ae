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
//
// The scalar functions here are the definition; turboquant_codec-inl.h holds the vector ones.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {

// What one slot holds. A value type.
struct TurboQuantFormat {
  int key_bits = 4;    // 3 or 4: codes of centroids; 8: e4m3fn
  int value_bits = 4;  // 3 or 4
  int64_t head_size = 0;

  // InvalidArgument `expected ..., got ...` if the head size does not fill whole bytes.
  absl::Status CheckHeadSize() const;

  // Keys are norms and codes of centroids in the rotated space.
  bool has_centroids() const { return key_bits != 8; }
  int64_t NumCentroids() const { return int64_t{1} << key_bits; }
  int64_t KeyDataBytes() const { return PackedBytes(head_size, key_bits); }
  int64_t KeyBytes() const { return KeyDataBytes() + (has_centroids() ? 2 : 0); }
  int64_t ValueDataBytes() const { return PackedBytes(head_size, value_bits); }
  int64_t ValueBytes() const { return ValueDataBytes() + 4; }
  int64_t SlotBytes() const { return KeyBytes() + ValueBytes(); }
};

// A named mix of bits.
struct TurboQuantPreset {
  std::string_view name;
  int key_bits;
  int value_bits;
  bool norm_correction;
};
inline constexpr TurboQuantPreset kTurboQuantPresets[] = {
    {"turboquant_k8v4", 8, 4, false},
    {"turboquant_4bit_nc", 4, 4, true},
    {"turboquant_k3v4_nc", 3, 4, true},
    {"turboquant_3bit_nc", 3, 3, true},
};

// What slots are read and written with; not stored in them. Unused with 8-bit keys.
struct TurboQuantTables {
  // P, [D, D], orthogonal, y_i = sum_j P_ij x_j. Null: the Sylvester-Hadamard matrix / sqrt(D),
  // for powers of two.
  const float* rotation = nullptr;
  const float* centroids = nullptr;  // [2^key_bits], ascending
};

// A cache of slots: keys in the rotated space, so queries are rotated once instead.
struct TurboQuantCache {
  TurboQuantFormat format;
  bool norm_correction = false;
  TurboQuantTables tables;
};

// The Lloyd-Max quantiser of N(0, 1/head_size) with 2^bits levels, ascending. Milliseconds.
std::vector<float> SolveCentroids(int64_t head_size, int bits);
// The same, solved once for each head size and kept for ever. Thread-safe.
std::span<const float> DefaultCentroids(int64_t head_size, int bits);
// Borders between neighbouring centroids, one fewer than these.
std::vector<float> Midpoints(std::span<const float> centroids);

// y = P x, x and y of `head_size` elements that do not overlap.
void RotateTurboQuant(const float* rotation, const float* x, int64_t head_size, float* y);
// The same, vectorised.
void RotateTurboQuantHwy(const float* rotation, const float* x, int64_t head_size, float* y);

// Below these norms and scales would divide by zero; under the root of the norm correction.
inline constexpr float kTurboQuantNormFloor = 1e-8f;
inline constexpr float kTurboQuantScaleFloor = 1e-8f;
inline constexpr float kTurboQuantSquareFloor = 1e-16f;

// Writes the slot's key bytes, or its value bytes, and no others. Numbers that a field cannot hold
// saturate (e4m3fn) or become infinite (float16).
void EncodeTurboQuantKey(const TurboQuantFormat& format, const TurboQuantTables& tables,
                         const float* key, uint8_t* slot);
void EncodeTurboQuantValue(const TurboQuantFormat& format, const float* value, uint8_t* slot);

// Decodes the key to codes[0, D) and returns their factor: element d is codes[d] * factor, in the
// rotated space where the format has one. `norm_correction` makes codes a vector of length 1.
float DecodeTurboQuantKey(const TurboQuantFormat& format, const float* centroids,
                          bool norm_correction, const uint8_t* slot, float* codes);
void DecodeTurboQuantValue(const TurboQuantFormat& format, const uint8_t* slot, float* value);

}  // namespace pagefuse
