// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/interrupt.h"

namespace pagefuse::tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void Note(int) { interrupted = 1; }

}  // namespace

InterruptCatcher::InterruptCatcher() {
  struct sigaction action {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: reading a line ends, too.
  sigaction(SIGINT, &action, &before_);
}

InterruptCatcher::~InterruptCatcher() { sigaction(SIGINT, &before_, nullptr); }

bool InterruptCatcher::Pending() { return interrupted != 0; }

bool InterruptCatcher::Take() {
  const bool came = Pending();
  interrupted = 0;
  return came;
}

}  // namespace pagefuse::tools
