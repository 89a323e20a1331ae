// Numbers that lie as bytes in a cache: where, whatever the shape that a graph sees them in.
#pragma once

#include <optional>

#include "pagefuse/passes/words/element.h"

namespace pagefuse {

// The place of an element among all of its tensor; nullopt if sizes but the first are not known.
std::optional<IndexForm> AddressOf(const Element& element);

// A number of `count` bytes, the lowest first, from `first` on.
struct ByteNumber {
  Value* bytes = nullptr;
  IndexForm first;
  int count = 0;
};
// BitCast of an integer that is put together of bytes.
std::optional<ByteNumber> BytesOf(ElementReader& reader, const Element& element);

}  // namespace pagefuse
