// SPDX-License-Identifier: Apache-2.0
// Reads lines that people type: edited and with a history on a terminal, as they are from a pipe.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace pagefuse::tools {

class LineEditor {
 public:
  // On a terminal, libedit's keys: those of Emacs, or what ~/.editrc says. Prompts and what is typed
  // go to the error stream, so that the output has the answers alone. `words`: what the tab key
  // completes at the beginning of a line.
  explicit LineEditor(std::vector<std::string> words);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Input and error stream are a terminal.
  bool terminal() const { return state_ != nullptr; }

  enum class Result { kLine, kInterrupted, kEnd };
  // The next line without its end. kInterrupted: Ctrl-C came (InterruptCatcher), and what was typed
  // is forgotten; a pipe ends then. On a terminal a line that ends with a backslash goes on in the
  // next.
  Result Read(std::string& line);

 private:
  struct State;
  Result ReadPart(std::string& part);

  std::unique_ptr<State> state_;  // null where there is no terminal
};

}  // namespace pagefuse::tools
