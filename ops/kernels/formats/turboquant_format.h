// SPDX-License-Identifier: Apache-2.0
// TurboQuant: how keys and values become the slots of turboquant_slot.h, and back.
//
// The scalar functions here are the definition; turboquant_codec-inl.h holds the vector ones.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/formats/turboquant_slot.h"

namespace pagefuse {

// InvalidArgument `expected ..., got ...` if the head size does not fill whole bytes.
absl::Status CheckHeadSize(const TurboQuantFormat& format);

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
