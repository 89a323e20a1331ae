#include "tools/cli/progress_line.h"

#include <iostream>

#include <unistd.h>

namespace pagefuse::tools {
namespace {

constexpr std::string_view kToBegin = "\r\x1b[K";  // and the line is empty

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(std::string_view text) {
  if (!terminal_) return;
  std::cerr << kToBegin << text << std::flush;
  shown_ = true;
}

void ProgressLine::Clear() {
  if (!shown_) return;
  std::cerr << kToBegin << std::flush;
  shown_ = false;
}

}  // namespace pagefuse::tools
