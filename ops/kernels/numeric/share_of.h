// SPDX-License-Identifier: Apache-2.0
// A part of a whole number, exactly. Compiles for hosts and devices.
#pragma once

#include <cmath>
#include <cstdint>

namespace pagefuse {

// ceil(part * whole), exact for every part in [0, 1].
#ifdef __CUDACC__
__host__ __device__
#endif
    inline uint64_t
    ShareOf(double part, uint64_t whole) {
  __extension__ using Wide = unsigned __int128;
  int exponent = 0;
  const double mantissa = std::frexp(part, &exponent);
  // part = digits * 2^-shift
  const Wide product = Wide{static_cast<uint64_t>(std::ldexp(mantissa, 53))} * whole;
  const int shift = 53 - exponent;
  if (product == 0) return 0;
  if (shift >= 117) return 1;  // the product has 117 digits at most
  return static_cast<uint64_t>((product + ((Wide{1} << shift) - 1)) >> shift);
}

}  // namespace pagefuse
