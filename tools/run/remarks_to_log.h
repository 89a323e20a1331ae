// SPDX-License-Identifier: Apache-2.0
// What loading says to people on the error stream, as lines of a server's log: whoever reads it reads nothing else there.
#pragma once

#include <iostream>
#include <sstream>
#include <string>

#include "pagefuse/serve/log.h"

namespace pagefuse::tools {

// As long as it lives. Not for several threads.
class RemarksToLog final : public std::stringbuf {
 public:
  explicit RemarksToLog(serve::Log* log) : log_(log), before_(std::cerr.rdbuf(this)) {}
  ~RemarksToLog() override { std::cerr.rdbuf(before_); }
  RemarksToLog(const RemarksToLog&) = delete;
  RemarksToLog& operator=(const RemarksToLog&) = delete;

 protected:
  // Behind each piece that is written, which may be less than a line.
  int sync() override {
    constexpr std::string_view kProgram = "pagefuse: ";
    text_ += str();
    str("");
    for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      const std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      log_->Add("remark",
                {{"text", line.starts_with(kProgram) ? line.substr(kProgram.size()) : line}});
    }
    return 0;
  }

 private:
  serve::Log* log_;
  std::streambuf* before_;
  std::string text_;
};

}  // namespace pagefuse::tools
