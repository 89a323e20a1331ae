// SPDX-License-Identifier: Apache-2.0
// The pool itself: callers at once, its life, and what it never waits for.
#include "pagefuse/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include <unistd.h>

#include "gtest/gtest.h"
#include <sys/wait.h>

namespace pagefuse {
namespace {

using std::chrono::milliseconds;

int64_t ThreadsOfThisProcess() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

// Runs a loop of `count` tasks on `pool`; true if each ran once.
bool RunsAll(WorkerPool& pool, int64_t count) {
  const ScopedWorkerPool scope(&pool);
  std::vector<int> times(static_cast<size_t>(count), 0);
  ParallelTasks(count, [&](int64_t task) { ++times[task]; });
  return times == std::vector<int>(static_cast<size_t>(count), 1);
}

TEST(ThreadPool, OfOneStartsNoThread) {
  const int64_t before = ThreadsOfThisProcess();
  ThreadPool pool(1);
  EXPECT_EQ(pool.size(), 1);
  EXPECT_TRUE(RunsAll(pool, 100));
  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST(ThreadPool, StartsOneThreadLessThanItsSizeAndEndsThemAll) {
  const int64_t before = ThreadsOfThisProcess();
  {
    ThreadPool pool(4);
    EXPECT_EQ(pool.size(), 4);
    EXPECT_EQ(ThreadsOfThisProcess(), before + 3);
  }
  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST(ThreadPool, KeepsItsSizeWithinBounds) {
  EXPECT_EQ(ThreadPool(0).size(), 1);
  EXPECT_EQ(ThreadPool(-5).size(), 1);
}

TEST(ThreadPool, ThreadsHelpWithALoop) {
  ThreadPool pool(3);
  const ScopedWorkerPool scope(&pool);
  // Each task waits for the two others, so three threads must be there.
  std::atomic<int> here = 0;
  ParallelTasks(3, [&](int64_t) {
    ++here;
    while (here < 3) std::this_thread::yield();
  });
  EXPECT_EQ(here, 3);
}

TEST(ThreadPool, IsDestroyedIdleAwakeOrAsleep) {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(3);
    EXPECT_TRUE(RunsAll(pool, 10));
    if (round % 10 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  for (int round = 0; round < 100; ++round) ThreadPool unused(3);
}

TEST(ThreadPool, WakesThreadsThatSleep) {
  ThreadPool pool(2);
  const ScopedWorkerPool scope(&pool);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(milliseconds(5));
    std::atomic<int> here = 0;
    ParallelTasks(2, [&](int64_t) {
      ++here;
      while (here < 2) std::this_thread::yield();
    });
    EXPECT_EQ(here, 2);
  }
}

// More callers than the pool can show loops to its threads at once: the others work alone.
// By loop: into how many parts it was cut, one after the other behind threads that sleep.
std::vector<int> PartsOfLoops(int loops, int64_t item_bytes) {
  ThreadPool pool(2);
  const ScopedWorkerPool scope(&pool);
  std::vector<int> parts;
  // What finds a thread awake is always shared.
  int asked = 0;
  while (pool.SharesLittle() && ++asked < 1000) std::this_thread::sleep_for(milliseconds(10));
  for (int loop = 0; loop < loops; ++loop) {
    std::atomic<int> calls = 0;
    ParallelFor(1000, item_bytes, [&](int64_t, int64_t) { ++calls; });
    parts.push_back(calls);
  }
  return parts;
}

TEST(ThreadPool, WakesNoThreadForALoopThatIsOverBeforeItComes) {
  const std::vector<int> parts = PartsOfLoops(7, 200);
  EXPECT_EQ(std::vector<int>(parts.begin(), parts.begin() + 6), std::vector<int>(6, 1));
  // One was asked for when the thread was found asleep: the eighth in a row.
  EXPECT_GT(parts[6], 1);
}

TEST(ThreadPool, WakesThreadsForALongLoop) { EXPECT_GT(PartsOfLoops(1, 2000)[0], 1); }

TEST(ThreadPool, ManyCallersAtOnce) {
  for (int callers : {2, 5, 40}) {
    ThreadPool pool(3);
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 50; ++round) right += RunsAll(pool, 1 + (i + round) % 70);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, callers * 50);
  }
}

// The loop is over when its caller has run all that nobody else began, though the only helper is
// held up by another caller's loop.
TEST(ThreadPool, DoesNotWaitForThreadsThatHaveNotCome) {
  ThreadPool pool(2);
  std::atomic<bool> held = false, release = false;
  std::thread other([&] {
    const ScopedWorkerPool scope(&pool);
    std::atomic<int> here = 0;
    ParallelTasks(2, [&](int64_t) {
      if (++here == 2) held = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!held) std::this_thread::yield();
  EXPECT_TRUE(RunsAll(pool, 1000));
  release = true;
  other.join();
}

// A caller that waits longer than it stays awake, for a helper with a long part.
TEST(ThreadPool, WaitsAsleepForAPartThatTakesLong) {
  ThreadPool pool(2);
  const ScopedWorkerPool scope(&pool);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> here = 0;
    std::atomic<bool> done = false;
    ParallelTasks(2, [&](int64_t, int worker) {
      ++here;
      while (here < 2) std::this_thread::yield();
      if (worker == 0) return;
      std::this_thread::sleep_for(milliseconds(20));
      done = true;
    });
    EXPECT_TRUE(done);
  }
}

// The threads stay behind in the parent.
TEST(ThreadPool, WorksWithoutHelpersInAForkedChild) {
  ThreadPool pool(3);
  ASSERT_TRUE(RunsAll(pool, 100));
  const pid_t child = fork();
  if (child == 0) _exit(RunsAll(pool, 100) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace pagefuse
