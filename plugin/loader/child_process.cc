// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr unsigned kSeconds = 30;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { Close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  void Close() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

std::string ReadAll(int descriptor) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(descriptor, buffer, sizeof(buffer));
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return text;
    }
  }
}

void WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(descriptor, text.data(), text.size());
    if (put > 0) text.remove_prefix(static_cast<size_t>(put));
    if (put < 0 && errno != EINTR) return;
  }
}

// A byte for the code, then the message.
[[noreturn]] void RunChild(const std::function<absl::Status()>& attempt, int answer, int output) {
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(kSeconds);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  const absl::Status status = attempt();
  std::string text(1, static_cast<char>(status.code()));
  StrAppend(&text, StdView(status.message()));
  WriteAll(answer, text);
  _exit(0);
}

std::string LastLine(int output) {
  lseek(output, 0, SEEK_SET);
  std::string text = ReadAll(output);
  absl::StripTrailingAsciiWhitespace(&text);
  const size_t start = text.rfind('\n') + 1;  // 0 where there is none
  constexpr size_t kMost = 200;
  return text.substr(start, kMost);
}

std::string HowItEnded(int status) {
  if (!WIFSIGNALED(status)) return StrCat("exit status ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGALRM) return StrCat("it took longer than ", kSeconds, " seconds");
  return StrCat("signal ", signal, " (", std::string_view(strsignal(signal)), ")");
}

}  // namespace

absl::Status TryInChild(const std::function<absl::Status()>& attempt) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("no pipe for a child process");
  File read_end(ends[0]), write_end(ends[1]);
  const File output(memfd_create("pagefuse", MFD_CLOEXEC));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return absl::InternalError(StrCat("no child process: ", std::strerror(errno)));
  if (child == 0) RunChild(attempt, write_end.get(), output.get());
  write_end.Close();
  const std::string answer = ReadAll(read_end.get());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer.empty()) {
    return {static_cast<absl::StatusCode>(answer[0]), AbslView(std::string_view(answer).substr(1))};
  }
  const std::string said = LastLine(output.get());
  return absl::FailedPreconditionError(StrCat("ended the process that tried to load it: ",
                                              HowItEnded(status), said.empty() ? "" : ": ", said));
}

}  // namespace pagefuse
