// SPDX-License-Identifier: Apache-2.0
// Reads numbers that are stored as bytes in a cache: where they lie, whatever shape the graph gives
// the cache.
#pragma once

#include <optional>

#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"

namespace pagefuse {

// Codes of e4m3fn: of that type, or as their bytes.
inline bool IsCodeType(DataType type) {
  return type == DataType::kFloat8E4M3FN || type == DataType::kUint8;
}

// The place of an element among all of its tensor; nullopt if sizes but the first are not known.
std::optional<IndexExpr> AddressOf(const Element& element);

// A number of `count` bytes, the lowest first, from `first` on.
struct ByteNumber {
  Value* bytes = nullptr;
  IndexExpr first;
  int count = 0;
};
// BitCast of an integer that is put together of bytes.
std::optional<ByteNumber> BytesOf(IndexingAnalysis& reader, const Element& element);

}  // namespace pagefuse
