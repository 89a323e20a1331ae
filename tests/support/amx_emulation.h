// SPDX-License-Identifier: Apache-2.0
// The tile instructions of AMX in software, so that every machine with AVX-512 tests the kernels
// that use them.
#pragma once

#include <signal.h>

namespace pagefuse::testing {

// While one lives, a tile instruction that the CPU does not know (#UD, SIGILL) is executed as the
// Intel SDM (volume 2, chapter 3 of the Instruction Set Extensions reference) describes it:
// ldtilecfg of palette 1, tilerelease, tilezero, tileloadd(t1), tilestored, tdpbf16ps. Each thread
// has tiles of its own. Another illegal instruction, and a tile instruction that the SDM would have
// fault, ends the process as SIGILL does. Linux on x86-64; elsewhere it does nothing. One at a
// time.
class AmxEmulation {
 public:
  AmxEmulation();
  ~AmxEmulation();
  AmxEmulation(const AmxEmulation&) = delete;
  AmxEmulation& operator=(const AmxEmulation&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace pagefuse::testing
