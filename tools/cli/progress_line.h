// A line on the terminal that shows progress, and disappears at the end.
#pragma once

#include <string_view>

namespace pagefuse::tools {

// Writes to the error stream, if that is a terminal; nothing else sees it.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(std::string_view text);
  void Clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace pagefuse::tools
