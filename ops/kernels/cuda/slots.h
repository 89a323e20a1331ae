// SPDX-License-Identifier: Apache-2.0
// Token indices to rows on the device: TopKSlots and ReqIndexToSlot, CombineTopKWindow.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// Of TopKSlots and ReqIndexToSlot: an index v of a token becomes table[request, v / block_size] * block_size +
// v % block_size; with a prefill request, starts[prefill] + v. -1 for v < 0 and for v >= limit.
struct SlotLookup {
  int64_t tokens = 0, count = 0;
  const int32_t* indices = nullptr;   // [tokens, count]
  const int32_t* requests = nullptr;  // [tokens]
  const int32_t* table = nullptr;     // [num_requests, columns]
  int64_t num_requests = 0, columns = 0;
  int32_t block_size = 1;
  int64_t limit = 0;                  // columns * block_size, at most 2^31
  const uint8_t* valid = nullptr;     // [tokens], 0: all of them -1. May be null
  const int32_t* prefills = nullptr;  // [tokens], negative: none. May be null
  const int32_t* starts = nullptr;    // [num_starts]
  int64_t num_starts = 0;
  int32_t* slots = nullptr;   // [tokens, count]
  int32_t* counts = nullptr;  // [tokens]: slots that are not -1

  // What is out of range gives -1 and is told; so is an index past the limit where that `has_limit`.
  IndexErrors errors;
  bool has_limit = false;
  struct Inputs {
    int indices, requests, table, prefills, starts;
  } inputs = {};
};
Error LaunchSlotLookup(const SlotLookup& call, Stream stream);

// Of CombineTopKWindow. Token t of request r with `seen` tokens up to itself gets min(seen / ratio, most) rows
// topk[t, i] + workspace_rows * r, then the rows of its last min(seen, window) tokens, then -1.
struct TopKWindow {
  int64_t tokens = 0, columns = 0, requests = 0;
  const int32_t* topk = nullptr;     // [tokens, columns]
  const int32_t* starts = nullptr;   // [requests + 1], the first need not be 0
  const int32_t* lengths = nullptr;  // [requests]
  const int32_t* gathered =
      nullptr;  // [requests]: of the length, the last that are in the workspace
  const int64_t* workspace_rows = nullptr;  // one number: of a request
  const int64_t* window_offset = nullptr;   // one number: behind compressed rows
  int32_t window = 0, ratio = 1, most = 0;
  int64_t width = 0;            // a multiple of 128
  int32_t* combined = nullptr;  // [tokens, width]
  int32_t* counts = nullptr;    // [tokens]: rows that are not filled up

  IndexErrors errors;  // a token with anything out of range gets -1 alone
  struct Inputs {
    int topk, starts, lengths, gathered, workspace_rows, window_offset;
  } inputs = {};
};
Error LaunchTopKWindow(const TopKWindow& call, Stream stream);

}  // namespace pagefuse::cuda
