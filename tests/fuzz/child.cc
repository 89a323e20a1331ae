// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>
#include <sstream>

#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "pagefuse/base/thread_pool.h"

// Only there with AddressSanitizer.
extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));
// What sanitizers do by default here: end with the stack of a hang, and refuse single allocations
// that no case needs.
extern "C" const char* __asan_default_options() {
  return "handle_abort=1:max_allocation_size_mb=1024:detect_leaks=1:quarantine_size_mb=32";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

namespace pagefuse::fuzz {
namespace {

constexpr int kLeakCode = 77;
constexpr int64_t kNanos = 1'000'000'000;

int64_t ProcessorTime(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return int64_t{time.tv_sec} * kNanos + time.tv_nsec;
}

int64_t ResidentBytes(pid_t pid) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

[[noreturn]] void Child(Progress& progress, FILE* log, const std::function<void(Progress&)>& work) {
  dup2(fileno(log), STDERR_FILENO);
  ThreadPool alone(1);
  const ScopedWorkerPool scope(&alone);
  work(progress);
  const bool leaks =
      __lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0;
  _exit(leaks ? kLeakCode : 0);
}

// The stack of a child that hangs is in its log if it reacts to a signal.
void End(pid_t pid) {
  kill(pid, SIGABRT);
  for (int i = 0; i < 100; ++i) {
    siginfo_t info = {};
    if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) return;
    usleep(100'000);
  }
  kill(pid, SIGKILL);
}

std::string ReadLog(FILE* log) {
  constexpr size_t kMaxLog = 200'000;
  std::string text(kMaxLog, '\0');
  rewind(log);
  text.resize(fread(text.data(), 1, text.size(), log));
  return text;
}

// Names of values and nodes say nothing of the finding.
std::string WithoutNames(const std::string& line) {
  std::string text;
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (!quoted) text += c;
  }
  return text;
}

}  // namespace

void Progress::Begin(uint64_t piece) {
  current = piece;
  begin_ns = ProcessorTime(CLOCK_PROCESS_CPUTIME_ID);
}

const char* EndingName(Ending ending) {
  static constexpr const char* kNames[] = {"done", "crash", "hang", "memory", "leak"};
  return kNames[static_cast<int>(ending)];
}

Progress& SharedProgress() {
  void* memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return *new (memory) Progress();
}

ChildResult RunInChild(Progress& progress, const ChildLimits& limits,
                       const std::function<void(Progress&)>& work) {
  ChildResult result;
  FILE* log = tmpfile();
  if (log == nullptr) std::abort();
  progress.begin_ns = 0;
  fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid == 0) Child(progress, log, work);
  clockid_t clock = CLOCK_MONOTONIC;
  clock_getcpuclockid(pid, &clock);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    const int64_t used = ProcessorTime(clock) - progress.begin_ns;
    if (static_cast<double>(used) > limits.piece_seconds * static_cast<double>(kNanos)) {
      result.ending = Ending::kHang;
    } else if (ResidentBytes(pid) > limits.resident_bytes) {
      result.ending = Ending::kMemory;
    }
    if (result.ending != Ending::kDone) {
      End(pid);
      waitpid(pid, &status, 0);
      break;
    }
    usleep(10'000);
  }
  result.log = ReadLog(log);
  fclose(log);
  if (result.ending == Ending::kDone && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
    const bool leak = WIFEXITED(status) && WEXITSTATUS(status) == kLeakCode;
    result.ending = leak ? Ending::kLeak : Ending::kCrash;
  }
  return result;
}

std::string FindingKey(const ChildResult& result) {
  std::istringstream lines(result.log);
  std::string key = EndingName(result.ending), line;
  int frames = 0;
  while (std::getline(lines, line) && frames < 3) {
    for (const char* words : {"runtime error: ", "broken invariant", "internal error"}) {
      if (line.find(words) != std::string::npos) return key + " " + WithoutNames(line);
    }
    // Frames of the project: neither libraries nor the fuzzer.
    const size_t at = line.find(" in ");
    const bool frame = at != std::string::npos && line.find("    #") == 0;
    if (!frame || line.find("/usr/") != std::string::npos ||
        line.find(" in __interceptor") != std::string::npos ||
        line.find("sanitizer") != std::string::npos) {
      continue;
    }
    if (line.find("/fuzz/") != std::string::npos) break;
    key += line.substr(at + 3);
    ++frames;
  }
  return key;
}

}  // namespace pagefuse::fuzz
