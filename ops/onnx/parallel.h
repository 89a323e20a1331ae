// Splits a loop over OpenMP threads if it is long enough to pay for them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace pagefuse::onnx_ops {

// Calls f(begin, end) on disjoint ranges that cover [0, count). One call, on this thread, unless
// every thread would get at least `grain` steps. `f` must not return early with an error: whatever
// can fail is checked before.
template <typename F>
void ParallelFor(int64_t count, int64_t grain, const F& f) {
  if (count <= 0) return;
  const int64_t threads = std::min<int64_t>(omp_in_parallel() ? 1 : omp_get_max_threads(),
                                            count / std::max<int64_t>(grain, 1));
  if (threads <= 1) {
    f(int64_t{0}, count);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
  for (int64_t t = 0; t < threads; ++t) f(count * t / threads, count * (t + 1) / threads);
}

// Elements of cheap arithmetic that a thread should have: below, starting it costs more than it
// saves.
inline constexpr int64_t kElementGrain = 1 << 15;

}  // namespace pagefuse::onnx_ops
