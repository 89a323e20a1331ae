// SPDX-License-Identifier: Apache-2.0
// Loops: every item once, whatever pool runs them, nested, at once and without help.
#include "pagefuse/base/parallel.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

// Worth many parts.
constexpr int64_t kManyBytes = 1 << 20;

// How often each item of a loop is run.
std::vector<int> TimesFor(int64_t count, int64_t item_bytes) {
  std::vector<int> times(static_cast<size_t>(count), 0);
  ParallelFor(count, item_bytes, [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    for (int64_t i = begin; i < end; ++i) ++times[i];
  });
  return times;
}

std::vector<int> TimesOfTasks(int64_t count) {
  std::vector<int> times(static_cast<size_t>(count), 0);
  ParallelTasks(count, [&](int64_t task) { ++times[task]; });
  return times;
}

std::vector<int> Once(int64_t count) { return std::vector<int>(static_cast<size_t>(count), 1); }

TEST(Parallel, EveryItemRunsOnceOnAnyNumberOfThreads) {
  for (int size : {1, 2, 3, 8}) {
    ThreadPool pool(size);
    const ScopedWorkerPool scope(&pool);
    for (int64_t count : {0, 1, 2, 3, 63, 64, 65, 1000, 100000}) {
      for (int64_t item_bytes : {int64_t{1}, int64_t{8}, int64_t{1000}, kManyBytes}) {
        EXPECT_EQ(TimesFor(count, item_bytes), Once(count)) << size << " threads";
      }
      EXPECT_EQ(TimesOfTasks(count), Once(count)) << size << " threads";
    }
  }
}

TEST(Parallel, LittleWorkStaysOnePart) {
  ThreadPool pool(4);
  const ScopedWorkerPool scope(&pool);
  int parts = 0;
  ParallelFor(1000, 4, [&](int64_t, int64_t) { ++parts; });
  EXPECT_EQ(parts, 1);
}

TEST(Parallel, PartsOfSmallItemsBeginAtWholeGroups) {
  ThreadPool pool(3);
  const ScopedWorkerPool scope(&pool);
  std::atomic<int> parts = 0;
  ParallelFor(1000001, 8, [&](int64_t begin, int64_t) {
    EXPECT_EQ(begin % 64, 0);
    ++parts;
  });
  EXPECT_GT(parts, 1);
}

// A worker works on one part at a time, so that memory of its own is its own.
TEST(Parallel, WorkersAreNumberedBelowTheSizeAndNeverTwoAtOnce) {
  ThreadPool pool(4);
  const ScopedWorkerPool scope(&pool);
  ASSERT_EQ(MaxWorkers(), 4);
  for (int round = 0; round < 100; ++round) {
    PerWorker<std::atomic<bool>> busy;
    ParallelTasks(50, [&](int64_t, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, 4);
      EXPECT_FALSE(busy[worker].exchange(true));
      std::this_thread::yield();
      busy[worker] = false;
    });
  }
}

TEST(Parallel, SumsByWorkerAddUp) {
  ThreadPool pool(3);
  const ScopedWorkerPool scope(&pool);
  PerWorker<int64_t> sums;
  ParallelFor(10000, kManyBytes, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) sums[worker] += i;
  });
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 10000 * 9999 / 2);
}

TEST(Parallel, ALoopInALoopRunsOnTheThreadThatReachesIt) {
  ThreadPool pool(3);
  const ScopedWorkerPool scope(&pool);
  std::vector<std::vector<int>> times(20);
  ParallelTasks(20, [&](int64_t task) {
    const std::thread::id self = std::this_thread::get_id();
    EXPECT_EQ(&CurrentWorkerPool(), &pool);
    EXPECT_EQ(MaxWorkers(), 3);
    int parts = 0;
    ParallelFor(100, kManyBytes, [&](int64_t begin, int64_t end, int worker) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(worker, 0);
      parts += begin == 0 && end == 100 ? 1 : 100;
    });
    EXPECT_EQ(parts, 1);
    times[task] = TimesOfTasks(50);
  });
  for (const std::vector<int>& one : times) EXPECT_EQ(one, Once(50));
}

TEST(Parallel, ALoopAfterANestedOneIsSharedAgain) {
  ThreadPool pool(2);
  const ScopedWorkerPool scope(&pool);
  ParallelTasks(2, [&](int64_t) { TimesOfTasks(3); });
  int64_t parts = 0;
  std::mutex mutex;
  ParallelFor(1000, kManyBytes, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    ++parts;
  });
  EXPECT_GT(parts, 1);
}

TEST(ScopedWorkerPool, HoldsForItsThreadAndPutsBackWhatWas) {
  ThreadPool outer(1), inner(2);
  WorkerPool* const before = &CurrentWorkerPool();
  EXPECT_EQ(before, &ThreadPool::Default());
  {
    const ScopedWorkerPool scope(&outer);
    EXPECT_EQ(&CurrentWorkerPool(), &outer);
    {
      const ScopedWorkerPool nested(&inner);
      EXPECT_EQ(&CurrentWorkerPool(), &inner);
      const ScopedWorkerPool none(nullptr);
      EXPECT_EQ(&CurrentWorkerPool(), &inner);
    }
    EXPECT_EQ(&CurrentWorkerPool(), &outer);
    std::thread([&] { EXPECT_EQ(&CurrentWorkerPool(), before); }).join();
  }
  EXPECT_EQ(&CurrentWorkerPool(), before);
}

// A host's pools: one that makes all calls one after the other, the caller's last, and one whose
// helpers never come.
class InTurn : public WorkerPool {
 public:
  int size() const override { return 5; }
  void Run(int helpers, const Work& work) override {
    for (int worker = helpers; worker >= 0; --worker) work.run(work.loop, worker);
    ++runs;
  }
  int runs = 0;
};

class NobodyComes : public WorkerPool {
 public:
  int size() const override { return 64; }
  void Run(int, const Work& work) override { work.run(work.loop, 0); }
};

TEST(Parallel, RunsOnAHostsPool) {
  InTurn in_turn;
  NobodyComes nobody;
  for (WorkerPool* pool : {static_cast<WorkerPool*>(&in_turn), static_cast<WorkerPool*>(&nobody)}) {
    const ScopedWorkerPool scope(pool);
    EXPECT_EQ(TimesFor(1000, kManyBytes), Once(1000));
    EXPECT_EQ(TimesOfTasks(1000), Once(1000));
  }
  EXPECT_EQ(in_turn.runs, 2);
}

// A body that throws ends the program, on whichever thread: nothing is unwound past other workers.
static_assert(std::is_nothrow_invocable_v<decltype(WorkerPool::Work::run), void*, int>);

TEST(ParallelDeathTest, ABodyThatThrowsEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ParallelTasks(1, [](int64_t) { throw std::runtime_error("no"); }), "terminate");
}

}  // namespace
}  // namespace pagefuse
