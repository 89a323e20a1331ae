// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/allocator.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include <sys/mman.h>

namespace pagefuse {
namespace {

constexpr size_t kAlignment = 64;
// From here on memory comes from mmap: zero pages cost nothing until they are written.
constexpr size_t kMapThreshold = size_t{1} << 20;
// From here on in huge pages where the system has them: blocks of a cache are read in any order, and
// weights once a token; with pages of 4 KiB looking up their addresses takes longer than reading them.
constexpr size_t kHugePage = size_t{2} << 20;

// Zero pages from mmap, whole huge pages where there is room for one; null without memory.
void* MapPages(size_t bytes) {
  const auto map = [](size_t size) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  if (bytes < kHugePage) {
    void* data = map(bytes);
    return data == MAP_FAILED ? nullptr : data;
  }
  // More than is asked for, of which the first and last part go back: then it starts at a huge page.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  void* mapped = map(whole + kHugePage);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const size_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (skipped > 0) munmap(first, skipped);
  if (skipped < kHugePage) munmap(first + skipped + whole, kHugePage - skipped);
#if defined(MADV_HUGEPAGE)
  // The last, partial one would make bytes resident that hold nothing. Failure costs time, nothing else.
  (void)madvise(first + skipped, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return first + skipped;
}

class MachineAllocator final : public Allocator {
 public:
  std::byte* Allocate(size_t bytes) override {
    if (bytes >= kMapThreshold) return static_cast<std::byte*>(MapPages(bytes));
    const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data != nullptr) std::memset(data, 0, rounded);
    return static_cast<std::byte*>(data);
  }

  void Free(std::byte* data, size_t bytes) override {
    if (bytes < kMapThreshold) return std::free(data);
    munmap(data, bytes);
  }
};

}  // namespace

Allocator& HostAllocator() {
  // Never destroyed: memory may be given back as late as by other statics.
  static Allocator& allocator = *new MachineAllocator;
  return allocator;
}

}  // namespace pagefuse
