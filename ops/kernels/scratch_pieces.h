// SPDX-License-Identifier: Apache-2.0
// The arrays of a kernel's task in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefuse {

// Cuts memory into arrays, each of which begins a cache line. Without memory it only counts what
// they take, and the arrays are null.
class ScratchPieces {
 public:
  explicit ScratchPieces(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t count) {
    constexpr int64_t kLine = 64;
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace pagefuse
