// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/turboquant/turboquant.h"

namespace pagefuse {
namespace {

// The rotation, rounded to float16.
std::vector<float> RoundedRotation(const TurboQuantDequantCall& call) {
  const int64_t size = call.cache.format.head_size;
  const float* rotation = call.cache.tables.rotation;
  const float entry = HadamardEntry(size);
  std::vector<float> rounded(size * size);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t d = 0; d < size; ++d) {
      const bool negative = std::popcount(static_cast<uint64_t>(i & d)) % 2 != 0;
      const float hadamard = negative ? -entry : entry;
      const float x = rotation != nullptr ? rotation[i * size + d] : hadamard;
      rounded[i * size + d] = static_cast<float>(Float16(x));
    }
  }
  return rounded;
}

void DequantRow(const TurboQuantDequantCall& call, const std::vector<float>& rotation,
                const uint8_t* slot, Float16* key, Float16* value) {
  const TurboQuantFormat& format = call.cache.format;
  const int64_t size = format.head_size;
  std::vector<float> row(size);
  const float factor = DecodeTurboQuantKey(format, call.cache.tables.centroids,
                                           call.cache.norm_correction, slot, row.data());
  for (int64_t d = 0; d < size; ++d) key[d] = Float16(row[d] * factor);
  if (call.inverse_rotate) {
    for (int64_t d = 0; d < size; ++d) row[d] = static_cast<float>(key[d]);
    for (int64_t d = 0; d < size; ++d) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        sum += static_cast<double>(row[i]) * rotation[i * size + d];
      }
      key[d] = Float16(static_cast<float>(sum));
    }
  }
  DecodeTurboQuantValue(format, slot, row.data());
  for (int64_t d = 0; d < size; ++d) value[d] = Float16(row[d]);
}

// All positions of one head of sequence b; zeros behind its last.
void DequantHead(const TurboQuantDequantCall& call, const std::vector<float>& rotation, int64_t b,
                 int64_t head) {
  const int64_t size = call.cache.format.head_size;
  for (int64_t j = 0; j < call.num_positions; ++j) {
    const int64_t at = ((b * call.num_heads + head) * call.num_positions + j) * size;
    if (j < call.seq_lens[b]) {
      DequantRow(call, rotation, call.Slot(b, head, j), call.key + at, call.value + at);
      continue;
    }
    std::fill_n(call.key + at, size, Float16::FromBits(0));
    std::fill_n(call.value + at, size, Float16::FromBits(0));
  }
}

}  // namespace

void DequantTurboQuant(const TurboQuantDequantCall& call) {
  std::vector<float> rotation;
  if (call.inverse_rotate) rotation = RoundedRotation(call);
  for (int64_t b = 0; b < call.num_sequences; ++b) {
    for (int64_t head = 0; head < call.num_heads; ++head) DequantHead(call, rotation, b, head);
  }
}

}  // namespace pagefuse
