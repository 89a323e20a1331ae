// SPDX-License-Identifier: Apache-2.0
// Where the memory of kernels comes from: outputs, scratch memory, and what they prepare of
// constants.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

namespace pagefuse {

// Bytes of a device's memory.
struct MemoryRoom {
  size_t free = 0;
  size_t total = 0;
};

// The memory of one device. Thread-safe, and outlives what it gave.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Whether the host reads and writes it.
  virtual bool is_host() const { return true; }
  // How much there is and how much of it is free, for messages; nullopt if that is not known.
  virtual std::optional<MemoryRoom> Room() const { return std::nullopt; }
  // Zero-filled memory aligned to 64 bytes; null if there is none.
  virtual std::byte* Allocate(size_t bytes) = 0;
  // Takes back what Allocate gave for as many bytes.
  virtual void Free(std::byte* data, size_t bytes) = 0;
};

// The memory of the program's own machine: large blocks in huge pages where the system has them.
Allocator& HostAllocator();

// Memory that goes back to its allocator at the end.
struct ReturnToAllocator {
  Allocator* allocator = nullptr;
  size_t bytes = 0;
  void operator()(std::byte* data) const { allocator->Free(data, bytes); }
};
using AllocatedMemory = std::unique_ptr<std::byte, ReturnToAllocator>;

// Null if there is no memory.
inline AllocatedMemory AllocateFrom(Allocator& allocator, size_t bytes) {
  return {allocator.Allocate(bytes), {&allocator, bytes}};
}

}  // namespace pagefuse
