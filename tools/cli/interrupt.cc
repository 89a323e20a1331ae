// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/interrupt.h"

#include <cerrno>
#include <cstdint>
#include <iterator>

#include <poll.h>
#include <unistd.h>

#include <sys/eventfd.h>

namespace pagefuse::tools {
namespace {

// Readable while an interrupt is pending. It lives as long as the program, as a handler may run at any
// moment.
int Event() {
  static const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return event;
}

volatile std::sig_atomic_t interrupted = 0;

void Note(int) {
  const int error = errno;
  interrupted = 1;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(Event(), &one, sizeof one);
  errno = error;
}

}  // namespace

InterruptCatcher::InterruptCatcher() {
  Event();  // is made outside the handler
  struct sigaction action {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: reading a line ends, too.
  sigaction(SIGINT, &action, &before_);
}

InterruptCatcher::~InterruptCatcher() { sigaction(SIGINT, &before_, nullptr); }

bool InterruptCatcher::Pending() { return interrupted != 0; }

bool InterruptCatcher::Take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(Event(), &count, sizeof count);
  const bool came = Pending();
  interrupted = 0;
  return came;
}

bool InterruptCatcher::WaitToRead(int file) {
  pollfd waits[] = {{file, POLLIN, 0}, {Event(), POLLIN, 0}};
  while (!Pending()) {
    if (poll(waits, std::size(waits), -1) < 0 && errno != EINTR) return true;  // reading tells why
    if (waits[0].revents != 0 && !Pending()) return true;
  }
  return false;
}

}  // namespace pagefuse::tools
