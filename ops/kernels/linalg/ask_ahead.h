// SPDX-License-Identifier: Apache-2.0
// Asking for memory before it is read, where the processor's own prefetch has to find its stride
// anew: what is read next begins on other pages.
#pragma once

namespace pagefuse {

// Into the second-level cache: the first one is for what is in use. An address where nothing is does
// no harm.
inline __attribute__((always_inline)) void AskAhead(const void* at) {
  constexpr int kSecondLevel = 2;
  __builtin_prefetch(at, 0, kSecondLevel);
}

}  // namespace pagefuse
