// SPDX-License-Identifier: Apache-2.0
// Slots of TurboQuant with 128 channels as the decode kernel reads them: where fields lie, which channels a lane has, and how codes become
// halves. Compiles for hosts and devices.
//
// Keys: a lane (g, t) has 32 channels of key g, in pairs: 16 registers of the scores' first operand, and of the queries. Values: it has 16
// channels of four keys, which are rows g and g + 8 of eight tiles.
#pragma once

#include "pagefuse/ops/kernels/cuda/convert.h"
#include "pagefuse/ops/kernels/cuda/fragments.h"

namespace pagefuse::cuda::slots {

constexpr int kSize = 128;  // channels

template <int key_bits, int value_bits>
struct SlotFormat {
  static constexpr int kKeyBits = key_bits, kValueBits = value_bits;
  static constexpr bool kHasCentroids = key_bits != 8;
  // Of a slot.
  static constexpr int kNormOffset = kSize * key_bits / 8;
  static constexpr int kValueOffset = kNormOffset + (kHasCentroids ? 2 : 0);
  static constexpr int kScaleOffset = kValueOffset + kSize * value_bits / 8;
  static constexpr int kZeroOffset = kScaleOffset + 2;
  // The table takes two codes to their centroids as halves; a row has a copy of the entry for each bank. With four bits the codes are a byte
  // and a row is followed by as many bytes that nobody reads: so an address is one byte permutation.
  static constexpr int kTableEntries = kHasCentroids ? 1 << (2 * key_bits) : 0;
  static constexpr int kTableRow = key_bits == 4 ? 256 : 128;
  static constexpr int kTableBytes = kTableEntries * kTableRow;

  // The first of the two channels of pair `pair` of lanes t. `odd`: keys begin at 2 mod 4.
  static constexpr int KeyChannel(int t, int pair, bool odd) {
    if (key_bits == 4) return NibbleRow{odd}.Channel(t + 4 * (pair / 4), pair % 4);
    if (key_bits == 3) return 32 * t + 2 * pair;
    return 4 * (t + 4 * (pair / 2)) + 2 * (pair % 2);
  }
};

// --- codes of three bits ---

// Pair `pair` of the 32 codes that three words hold, at bits 7 to 12; other bits are anything.
PF_HOST_DEVICE inline uint32_t KeyPairOf(const uint32_t (&words)[3], int pair) {
  constexpr int kPlace = 7;
  const int bit = 6 * pair, word = bit / 32, in_word = bit % 32;
  if (in_word < kPlace) return words[word] << (kPlace - in_word);
  if (in_word <= 26) return words[word] >> (in_word - kPlace);
#ifdef __CUDA_ARCH__
  return __funnelshift_r(words[word], words[word + 1], in_word - kPlace);
#else
  const uint64_t both = uint64_t{words[word + 1]} << 32 | words[word];
  return static_cast<uint32_t>(both >> (in_word - kPlace));
#endif
}
constexpr uint32_t kKeyPairMask = 0x3F << 7;

// Codes of 16 channels are 48 bits: units of 16 bits, of two keys each in a register. Masked bits are halves that are subnormal numbers: the
// code times 2^(TripletExponent - 24).
constexpr int TripletExponent(int code) {
  const int bit = 3 * code % 16;
  return bit > 13 ? 0 : bit > 7 ? bit - 8 : bit;
}
PF_HOST_DEVICE inline uint32_t TripletOf(const uint32_t (&units)[3], int code) {
  const int unit = 3 * code / 16, bit = 3 * code % 16;
  if (bit == 15) return (units[unit] >> 15 & 0x00010001u) | (units[unit + 1] << 1 & 0x00060006u);
  if (bit == 14) return (units[unit] >> 14 & 0x00030003u) | (units[unit + 1] << 2 & 0x00040004u);
  return (bit > 7 ? units[unit] >> 8 : units[unit]) & 0x00070007u << TripletExponent(code);
}
// What brings such a number back to its code.
constexpr float TripletUnit(int code) {
  return static_cast<float>(1 << (24 - TripletExponent(code)));
}
// Code `upper` of a tile of lane group g: the channel of row g + 8 upper.
constexpr int TripletChannel(int g, int tile, int upper) { return 16 * g + 2 * tile + upper; }

}  // namespace pagefuse::cuda::slots
