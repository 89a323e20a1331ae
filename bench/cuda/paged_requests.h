// SPDX-License-Identifier: Apache-2.0
// Inputs of calls on paged caches, and rows that count the bytes which a call moves.
#pragma once

#include <cstdint>
#include <vector>

#include "device_call.h"
#include "rows.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda_bench {

inline CallInput Int64s(const std::vector<int64_t>& values) {
  return Known(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

inline Measured Moved(const Gpu& gpu, const CallSpec& spec, int64_t bytes) {
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), static_cast<double>(bytes)};
}

// Sequences of one length, whose pages lie anywhere in a cache that has no others.
struct PagedRequests {
  int64_t requests, length;
  int64_t page = 64;  // tokens

  int64_t tokens() const { return requests * length; }
  int64_t columns() const { return (length + page - 1) / page; }
  int64_t pages() const { return requests * columns(); }
  std::vector<int32_t> Order() const { return Shuffled(static_cast<int32_t>(pages()), 1); }
  CallInput Table() const { return Int32s({requests, columns()}, Order()); }
  CallInput Lengths() const {
    return Int32s({requests}, std::vector<int32_t>(static_cast<size_t>(requests),
                                                   static_cast<int32_t>(length)));
  }
  // Where requests begin if they stand one behind the other, and where the last one ends.
  std::vector<int32_t> Begins() const {
    std::vector<int32_t> begins;
    for (int64_t r = 0; r <= requests; ++r) begins.push_back(static_cast<int32_t>(r * length));
    return begins;
  }
  // Of all tokens, request by request.
  std::vector<int64_t> Slots() const {
    const std::vector<int32_t> order = Order();
    std::vector<int64_t> slots;
    for (int64_t r = 0; r < requests; ++r) {
      for (int64_t t = 0; t < length; ++t) {
        slots.push_back(order[static_cast<size_t>(r * columns() + t / page)] * page + t % page);
      }
    }
    return slots;
  }
  // [pages, page, bytes of a row]; no code and no scale is NaN, whatever the format.
  CallInput Cache(const GroupedRowFormat& format) const {
    return Random(DataType::kUint8, {pages(), page, format.TokenBytes()}, Fill::kFloat8);
  }
  // [pages, bytes] of DeepSeek-V4's rows: codes, then scales, filled up to whole units.
  CallInput BlockCache() const {
    constexpr int64_t kUnit = 576;
    const int64_t bytes = page * Fp8Ue8m0Row().TokenBytes();
    return Random(DataType::kUint8, {pages(), (bytes + kUnit - 1) / kUnit * kUnit}, Fill::kFloat8);
  }
};

}  // namespace pagefuse::cuda_bench
