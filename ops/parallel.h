// Splits a range of equal work items among the OpenMP threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace pagefuse {

// Calls body(begin, end) on disjoint parts of [0, count), in parallel where the work is worth a
// fork: `item_bytes` is what one item reads and writes, or costs as much as. Parts are contiguous.
template <typename Body>
void ParallelFor(int64_t count, int64_t item_bytes, const Body& body) {
  // A fork and join costs a few microseconds, in which one core moves about this much.
  constexpr int64_t kMinBytesPerThread = 32 << 10;
  const int64_t useful = std::max<int64_t>(count * item_bytes / kMinBytesPerThread, 1);
  const int threads = static_cast<int>(
      std::min<int64_t>({useful, count, static_cast<int64_t>(omp_get_max_threads())}));
  if (threads <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    // The team may be smaller than asked for.
    const int64_t parts = omp_get_num_threads();
    const int64_t part = omp_get_thread_num();
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    if (begin < end) body(begin, end);
  }
}

}  // namespace pagefuse
