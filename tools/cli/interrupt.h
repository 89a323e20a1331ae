// SPDX-License-Identifier: Apache-2.0
// Lets Ctrl-C end the current work instead of the program.
#pragma once

#include <csignal>

namespace pagefuse::tools {

// While one of these lives, SIGINT is noted and nothing else.
class InterruptCatcher {
 public:
  InterruptCatcher();
  ~InterruptCatcher();
  InterruptCatcher(const InterruptCatcher&) = delete;
  InterruptCatcher& operator=(const InterruptCatcher&) = delete;

  // Whether it came since the last call.
  static bool Take();
  static bool Pending();
  // Waits until `file` has something to read, or is at its end. False: an interrupt is pending, came it
  // before this call or while it waits, and to whichever thread.
  static bool WaitToRead(int file);

 private:
  struct sigaction before_;
};

}  // namespace pagefuse::tools
