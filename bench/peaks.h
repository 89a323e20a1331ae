// SPDX-License-Identifier: Apache-2.0
// What the machine can do at most, measured: the yardstick of the benchmarks.
#pragma once

#include <cstdint>

namespace pagefuse {

struct Peaks {
  double read_bytes = 0;  // bytes a second, all threads reading memory
  double fma_flops = 0;   // float32 operations a second of the widest multiply-add
  double bf16_flops = 0;  // bf16 operations a second of the best unit, in registers; 0 without one
};

// What the best unit for bfloat16 is called.
const char* Bf16UnitName();

// Takes about a second. All workers of the caller's pool.
Peaks MeasurePeaks();

// Bytes a second (read and written) of a plain copy of half as many bytes, by one thread or all,
// whichever is faster, between `places` pairs of blocks in turn: one stays in the caches that hold
// it. Measured once a size and number.
double CopyRate(int64_t bytes, int64_t places = 1);

// The largest resident size of this process so far in bytes, mapped files included.
int64_t PeakResidentBytes();

// Seconds of a monotonic clock.
double Now();

}  // namespace pagefuse
