// SPDX-License-Identifier: Apache-2.0
// Which elements of a page of keys and values a lane feeds to mma.m16n8k16. The order of channels within a product of query and key, and that
// of the rows of an output, is free: so a lane feeds the 16 bytes that it loads as they lie. Compiles for hosts and devices.
//
// With g = lane / 4 and t = lane % 4 the instruction's fragments are, as pairs of 16-bit elements:
//   A [16, 16]  a0: row g, columns 2t; a1: row g + 8, columns 2t; a2: row g, columns 2t + 8; a3: row g + 8, columns 2t + 8
//   B [16, 8]   b0: rows 2t, column g; b1: rows 2t + 8, column g
//   C [16, 8]   c0, c1: row g, columns 2t, 2t + 1; c2, c3: row g + 8
// Floats take two products of eight columns for that, of the elements of a0, a1, b0 and of the others: 2t and 2t + 1 as columns t and t + 4.
//
//   scores  S^T [keys, heads] = K Q^T:        A = the page's 16 keys, B = queries of eight heads
//   values  O^T [channels, heads] = V^T P^T:  A = channels of two keys a register, B = weights, S^T's C transposed by movmatrix
#pragma once

#include <cstdint>

namespace pagefuse::cuda {

inline constexpr int kPageTokens = 16;  // a page of the decode kernels
inline constexpr int kSpanBytes = 128;  // of a row, that lie together in shared memory

// Rows of keys or values with elements of `element_bytes` in shared memory: spans [span][head][token][128 bytes], where the pieces of 16 bytes
// of token i are exchanged: piece c lies at c ^ (i % 8), which is what a tensor copy with 128-byte swizzle does.
struct PageLayout {
  int element_bytes;
  int head_size;
  int heads;  // in the page

  constexpr int spans() const { return head_size * element_bytes / kSpanBytes; }
  constexpr int piece() const { return 16 / element_bytes; }  // elements
  constexpr int span_elements() const { return kSpanBytes / element_bytes; }
  constexpr int head_bytes() const { return kPageTokens * kSpanBytes; }
  constexpr int span_bytes() const { return heads * head_bytes(); }
  constexpr int bytes() const { return spans() * span_bytes(); }
  // From the start of a page's keys or values to a piece.
  constexpr int Offset(int span, int head, int token, int piece) const {
    return span * span_bytes() + head * head_bytes() + token * kSpanBytes +
           (piece ^ (token % 8)) * 16;
  }

  // Scores. Lane (g, t) loads pieces 2t and 2t + 1 of each span of keys g and g + 8; a piece makes piece() / 4 steps of 16 channels, of which
  // this lane feeds four: a0 the first two of key g, a1 those of key g + 8, a2 and a3 the others.
  constexpr int steps() const { return head_size / 16; }
  constexpr int steps_of_piece() const { return piece() / 4; }
  // The first of these four channels: what B's lanes of the same t have to feed too.
  constexpr int ScoreChannel(int t, int step) const {
    const int steps_of_span = 2 * steps_of_piece();
    const int in_span = step % steps_of_span;
    return step / steps_of_span * span_elements() + (2 * t + in_span / steps_of_piece()) * piece() +
           in_span % steps_of_piece() * 4;
  }

  // Values. Lane (g, t) loads piece g of each span of keys 2t, 2t + 1, 2t + 8 and 2t + 9. A piece makes piece() / 2 tiles of 16 channels, of
  // which rows g and g + 8 are this lane's.
  constexpr int tiles() const { return head_size / 16; }
  constexpr int tiles_of_span() const { return piece() / 2; }
  // The channel of row g + 8 * upper of a tile.
  constexpr int ValueChannel(int g, int tile, int upper) const {
    return tile / tiles_of_span() * span_elements() + g * piece() + tile % tiles_of_span() * 2 +
           upper;
  }
};

// A row of 128 codes of four bits, 64 bytes that begin at a multiple of 4 or, `odd`, two bytes behind one. It is read as 16 aligned words: of an
// odd row words 0 to 14 are those inside it, and word 15 is its first and its last two bytes.
struct NibbleRow {
  bool odd;

  // The first of the two channels of byte `byte` of word `word`.
  constexpr int Channel(int word, int byte) const {
    if (!odd) return 8 * word + 2 * byte;
    if (word < 15) return 4 + 8 * word + 2 * byte;
    return byte < 2 ? 2 * byte : 120 + 2 * byte;
  }
};

}  // namespace pagefuse::cuda
