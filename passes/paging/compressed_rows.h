// SPDX-License-Identifier: Apache-2.0
// Keys that stand for windows of tokens (DeepSeek-V4): compressed, normed, and rotated by the place
// where their window begins.
//
//   rows = WindowCompress <ratio = m> (kv, gate, bias)                      [B, S/m, D]
//   key  = RMSNormalization (rows), of which the last R channels go through
//          RotaryEmbedding <interleaved = 1> by the angles of places 0, m, 2m, ..
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

// cos and sin of place * frequency, times a factor.
struct RotaryAngles {
  Value* frequencies = nullptr;  // a constant of `pairs` numbers
  int64_t pairs = 0;
  float factor = 1;
};

struct CompressedRows {
  Value* kv = nullptr;    // [B, S, W], rows of tokens; W = (1 + overlap) * size
  Value* gate = nullptr;  // likewise
  Value* bias = nullptr;  // [ratio, W]
  int64_t ratio = 1;
  bool overlap = false;
  int64_t size = 0;              // D
  Value* norm_weight = nullptr;  // [D]
  float epsilon = 0;
  RotaryAngles angles;
  // What a graph that goes on from this one's would be given: rows of tokens and of windows.
  std::vector<const Value*> states;

  int64_t width() const { return (overlap ? 2 : 1) * size; }
};

// What `key` is at (b, j, d): `window` is j, which runs over all windows, `channel` is d, which runs
// over all channels. FailedPrecondition saying what differs from the form above.
struct CompressedKey {
  Element key;
  IndexExpr batch;
  IndexSymbolPtr window, channel;
};
absl::StatusOr<CompressedRows> ReadCompressedRows(IndexingAnalysis& reader,
                                                  const CompressedKey& key);

// cos of each place, then sin: [T, 2 * pairs], of int64 places [T].
Value* CosSinRows(GraphBuilder& builder, const RotaryAngles& angles, Value* places);

}  // namespace pagefuse
