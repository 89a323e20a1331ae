// SPDX-License-Identifier: Apache-2.0
// Loops that several threads work on: what kernels call, and the pool that runs them.
//
// The items of a loop are claimed part by part by whoever is free, the caller among them: which
// worker gets which part, and when, is different each time. So what a loop computes may depend on
// the item alone, never on the worker or on where a part begins. Where a sum is cut among threads,
// the cuts follow from the sizes of the problem, as in linear_f32.cc; no kernel's cuts follow from
// the number of threads, and results are the same for every number.
//
// A loop inside a loop runs on the thread that reaches it. Bodies do not throw; one that does ends
// the program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace pagefuse {

// The threads that loops run on. ThreadPool (thread_pool.h) has threads of its own; a host that has
// a pool already hands that in instead. Any number of threads may run loops on one pool at once.
class WorkerPool {
 public:
  // run(loop, worker) takes parts of a loop until none is left, and returns.
  struct Work {
    void (*run)(void* loop, int worker) noexcept;
    void* loop;
  };

  virtual ~WorkerPool() = default;

  // Threads that work on one loop at most, the caller among them: workers have numbers from 0 up to
  // it. At least 1, and always the same.
  virtual int size() const = 0;

  // Calls `work` as workers 0 to helpers, each at most once and one of them at least, on any
  // threads; returns when all calls that were made have returned. A pool leaves calls out when the
  // others have done everything. The calls see what the caller wrote before, the caller sees what
  // they wrote. `helpers` is at least 1 and less than size().
  virtual void Run(int helpers, const Work& work) = 0;
};

// The pool of the calling thread: that of the innermost ScopedWorkerPool, or else
// ThreadPool::Default(). While a thread works on a loop, the loop's pool.
WorkerPool& CurrentWorkerPool();

// While one lives, the loops of the thread that made it run on `pool`; null leaves all as it is.
class ScopedWorkerPool {
 public:
  explicit ScopedWorkerPool(WorkerPool* pool);
  ~ScopedWorkerPool();
  ScopedWorkerPool(const ScopedWorkerPool&) = delete;
  ScopedWorkerPool& operator=(const ScopedWorkerPool&) = delete;

 private:
  WorkerPool* const before_;
};

// Workers of the calling thread's loops have numbers below this: the size of what is kept for each.
inline int MaxWorkers() { return CurrentWorkerPool().size(); }

// Something for each worker of a loop, made by the thread that starts it: memory between the parts
// that one worker takes. Each lies in cache lines of its own.
template <typename T>
class PerWorker {
 public:
  PerWorker() : each_(static_cast<size_t>(MaxWorkers())) {}
  T& operator[](int worker) { return each_[static_cast<size_t>(worker)].value; }

 private:
  struct alignas(64) Padded {
    T value{};
  };
  std::vector<Padded> each_;
};

namespace parallel_internal {

// The items [begin, end) of a loop, by the body of type Body, which may want to know its worker.
using RunPart = void (*)(const void* body, int64_t begin, int64_t end, int worker) noexcept;

// [0, count) in parts of `part` items by at most `workers` workers.
void RunLoop(int64_t count, int64_t part, int64_t workers, RunPart run, const void* body);

struct Cut {
  int64_t part;
  int64_t workers;
};
Cut CutItems(int64_t count, int64_t item_bytes);

}  // namespace parallel_internal

// Calls body(begin, end) or body(begin, end, worker) on disjoint parts of [0, count), which make up
// all of it. `item_bytes` is what one item reads and writes, or costs as much as: it decides how
// many items make a part that is worth handing over. Without helpers there is but one part.
template <typename Body>
void ParallelFor(int64_t count, int64_t item_bytes, const Body& body) {
  const parallel_internal::RunPart run = [](const void* of, int64_t begin, int64_t end,
                                            int worker) noexcept {
    const Body& loop_body = *static_cast<const Body*>(of);
    if constexpr (std::is_invocable_v<const Body&, int64_t, int64_t, int>) {
      loop_body(begin, end, worker);
    } else {
      loop_body(begin, end);
    }
  };
  const parallel_internal::Cut cut = parallel_internal::CutItems(count, item_bytes);
  parallel_internal::RunLoop(count, cut.part, cut.workers, run, &body);
}

// Calls body(task) or body(task, worker) once for each task of [0, count), low ones first. A task
// is worth being handed over by itself: tens of microseconds.
template <typename Body>
void ParallelTasks(int64_t count, const Body& body) {
  const parallel_internal::RunPart run = [](const void* of, int64_t begin, int64_t end,
                                            int worker) noexcept {
    const Body& loop_body = *static_cast<const Body*>(of);
    for (int64_t task = begin; task < end; ++task) {
      if constexpr (std::is_invocable_v<const Body&, int64_t, int>) {
        loop_body(task, worker);
      } else {
        loop_body(task);
      }
    }
  };
  parallel_internal::RunLoop(count, 1, count, run, &body);
}

}  // namespace pagefuse
