// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/line_editor.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <iostream>
#include <string_view>
#include <utility>

#include <histedit.h>
#include <unistd.h>

#include "tools/cli/interrupt.h"

namespace pagefuse::tools {
namespace {

constexpr int kHistoryLines = 1000;

const char kPrompt[] = "> ";
const char kMore[] = "... ";

// A character of the terminal. libedit's own reader tries again when a signal ends its read, so that
// the first Ctrl-C would be lost; so would one be that comes between two reads.
int ReadCharacter(EditLine*, wchar_t* character) {
  std::mbstate_t state = {};
  while (true) {
    if (!InterruptCatcher::WaitToRead(STDIN_FILENO)) return -1;
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    // A window that changes its size interrupts a read too.
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? -1 : 0;
    const size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;
    // A byte that is no character is left out.
    if (length == static_cast<size_t>(-1)) {
      state = {};
      continue;
    }
    return 1;
  }
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::vector<std::string> words;
  bool continues = false;  // the line that is read goes on from the one before

  static State& Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) {
    return const_cast<char*>(Of(editor).continues ? kMore : kPrompt);  // which is read only
  }
  // The tab key: the rest of the one word that begins as the line does.
  static unsigned char Complete(EditLine* editor, wint_t) {
    const LineInfo* info = el_line(editor);
    const std::string_view typed(info->buffer, info->cursor - info->buffer);
    std::string_view rest;
    int matches = 0;
    for (const std::string& word : Of(editor).words) {
      if (typed.empty() || !word.starts_with(typed)) continue;
      rest = std::string_view(word).substr(typed.size());
      ++matches;
    }
    if (matches != 1 || rest.empty()) return CC_REFRESH_BEEP;
    el_insertstr(editor, std::string(rest).c_str());
    return CC_REFRESH;
  }
};

LineEditor::LineEditor(std::vector<std::string> words) {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return;
  // Characters are what the terminal's locale says; without one they are UTF-8, as texts are.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  state_ = std::make_unique<State>();
  state_->words = std::move(words);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  EditLine* editor = state_->editor = el_init("pagefuse", stdin, stderr, stderr);
  el_set(editor, EL_CLIENTDATA, static_cast<void*>(state_.get()));
  el_set(editor, EL_PROMPT, &State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, state_->history);
  el_set(editor, EL_GETCFN, &ReadCharacter);
  // The narrow form copies its texts and never frees them.
  el_wset(editor, EL_ADDFN, L"complete-command", L"completes a command", &State::Complete);
  el_set(editor, EL_BIND, "^I", "complete-command", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);
}

LineEditor::~LineEditor() {
  if (state_ == nullptr) return;
  el_end(state_->editor);
  history_end(state_->history);
}

LineEditor::Result LineEditor::ReadPart(std::string& part) {
  int length = 0;
  const char* typed = el_gets(state_->editor, &length);
  if (typed != nullptr && length > 0) {
    part.assign(typed, length);
    if (part.ends_with('\n')) part.pop_back();
    return Result::kLine;
  }
  std::cerr << "\n";
  if (!InterruptCatcher::Take()) return Result::kEnd;
  el_reset(state_->editor);
  return Result::kInterrupted;
}

LineEditor::Result LineEditor::Read(std::string& line) {
  if (state_ == nullptr) {
    if (std::getline(std::cin, line)) return Result::kLine;
    return InterruptCatcher::Take() ? Result::kInterrupted : Result::kEnd;
  }
  line.clear();
  state_->continues = false;
  while (true) {
    std::string part;
    const Result result = ReadPart(part);
    if (result != Result::kLine) return result;
    line += part;
    if (!line.ends_with('\\')) break;
    line.back() = '\n';
    state_->continues = true;
  }
  HistEvent event;
  if (!line.empty()) history(state_->history, &event, H_ENTER, line.c_str());
  return Result::kLine;
}

}  // namespace pagefuse::tools
