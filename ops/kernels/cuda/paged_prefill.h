// SPDX-License-Identifier: Apache-2.0
// Paged attention of many tokens a sequence by tensor cores, over keys and values of 16 bits: prompts, and tokens of other sequences beside them.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/paged_attention.h"

namespace pagefuse::cuda {

// How a call is cut, by what no length changes. A CTA takes as many rows (token, head) of a sequence and a KV head as its tile has, and one split
// of their keys.
struct PrefillPlan {
  DataType element = DataType::kUndefined;  // of keys and values; kUndefined: the plain kernel's
  bool exact = false;                       // queries are float: they and weights are fed in parts
  AttentionCut cut;
};

inline constexpr int kPrefillWarps = 4;

// What a CTA has in shared memory: queries in their parts, then two stages of keys and values in turns, all of 16 bits, as rows whose pieces of
// 16 bytes are exchanged: piece c of row i lies at c ^ (i % 8). Behind them of each stage's keys where they lie, then what is known of each row,
// its queries' factor where halves need one, which keys there are, and what the CTA goes through.
struct PrefillTile {
  int head_size;
  int parts;   // of a query
  int blocks;  // of 16 rows that a warp has
  int keys;    // of a stage

  // Halves hold 11 bits of a float, bfloat16 8. Of longer heads a lane's registers hold the outputs of 16 rows, and of parts too.
  static constexpr PrefillTile Of(bool is_bfloat, int head_size, bool exact) {
    return {head_size,
            !exact      ? 1
            : is_bfloat ? 3
                        : 2,
            exact || head_size > 128 ? 1 : 2, head_size > 128 ? 32 : 64};
  }
  constexpr int rows() const { return kPrefillWarps * 16 * blocks; }
  constexpr int row_bytes() const { return 2 * head_size; }
  constexpr int part_bytes() const { return rows() * row_bytes(); }
  constexpr int stage_bytes() const { return 2 * keys * row_bytes(); }
  // Offsets.
  constexpr int stages() const { return parts * part_bytes(); }
  constexpr int places() const { return stages() + 2 * stage_bytes(); }
  constexpr int row_places() const { return places() + 2 * 8 * keys; }
  constexpr int factors() const { return row_places() + 12 * rows(); }
  constexpr int present() const { return factors() + (parts > 1 ? 4 * rows() : 0); }
  constexpr int task() const { return present() + 4 * 8; }
  constexpr int seen() const { return task() + 32; }
  constexpr int bytes() const { return seen() + 8 * kPrefillWarps; }
};

PrefillPlan PlanPrefill(const PagedAttention& p, int multiprocessors);

// What launches give where a CTA of the device has too little shared memory: cudaErrorNotSupported.
inline constexpr Error kNoPrefill = 801;

// Working memory is that of `plan.cut` (WorkspaceOf).
Error LaunchPagedPrefill(const PagedAttention& p, const PrefillPlan& plan, Stream stream);

// Its parts, one for each type of the caches.
Error LaunchPrefillBfloat16(const PagedAttention& p, const PrefillPlan& plan, Stream stream);
Error LaunchPrefillFloat16(const PagedAttention& p, const PrefillPlan& plan, Stream stream);

}  // namespace pagefuse::cuda
