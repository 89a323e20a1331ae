// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/parallel.h"

#include <atomic>
#include <exception>

#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

thread_local WorkerPool* current_pool = nullptr;
thread_local bool in_loop = false;

// While one lives, its thread works on a loop of `pool`.
class InLoop {
 public:
  explicit InLoop(WorkerPool* pool) : pool_(pool), before_(in_loop) { in_loop = true; }
  ~InLoop() { in_loop = before_; }
  InLoop(const InLoop&) = delete;
  InLoop& operator=(const InLoop&) = delete;

 private:
  const ScopedWorkerPool pool_;
  const bool before_;
};

// Parts handed over: to hand one over costs about as much as moving kMinWorkerBytes, and a worker
// that is held up holds up the others by one part at most.
constexpr int64_t kMinWorkerBytes = 64 << 10;
constexpr int64_t kMinPartBytes = 16 << 10;
constexpr int64_t kPartsAWorker = 4;
// A thread that sleeps comes some tens of microseconds after it was called, when its caller has moved
// about as much, and to call it takes its caller up to 8 of them. Beside busy processes the caller
// may be the one who makes room for it.
constexpr int64_t kMinWakeBytes = 1 << 20;
// Small items make parts of whole groups, so that parts of an array meet at the ends of cache lines
// and of vectors.
constexpr int64_t kItemGroup = 64;
constexpr int64_t kSmallItemBytes = 64;

struct Loop {
  alignas(64) std::atomic<int64_t> next{0};  // the first item that nobody has claimed
  int64_t count;
  int64_t part;
  parallel_internal::RunPart run;
  const void* body;
  WorkerPool* pool;
  // What a part threw, as memory for it lacked; the first one's, and its caller gets it.
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;
};

// Whether a loop of so many bytes is handed over. Of a host's threads nobody knows if they sleep.
bool IsShared(int64_t bytes) {
  if (bytes >= kMinWakeBytes) return true;
  auto* threads = dynamic_cast<ThreadPool*>(&CurrentWorkerPool());
  return threads == nullptr || threads->SharesLittle();
}

void WorkOn(void* of, int worker) noexcept {
  Loop& loop = *static_cast<Loop*>(of);
  const InLoop scope(loop.pool);
  // Relaxed: who claims a part orders nothing; the pool orders the loop's beginning and end.
  for (;;) {
    const int64_t begin = loop.next.fetch_add(loop.part, std::memory_order_relaxed);
    if (begin >= loop.count) break;
    try {
      loop.run(loop.body, begin, std::min(begin + loop.part, loop.count), worker);
    } catch (...) {
      if (!loop.failed.exchange(true)) loop.error = std::current_exception();
      loop.next.store(loop.count, std::memory_order_relaxed);
    }
  }
}

}  // namespace

WorkerPool& CurrentWorkerPool() {
  return current_pool != nullptr ? *current_pool : ThreadPool::Default();
}

ScopedWorkerPool::ScopedWorkerPool(WorkerPool* pool) : before_(current_pool) {
  if (pool != nullptr) current_pool = pool;
}

ScopedWorkerPool::~ScopedWorkerPool() { current_pool = before_; }

namespace parallel_internal {

Cut CutItems(int64_t count, int64_t item_bytes) {
  const int64_t bytes = count * item_bytes;
  const int64_t wanted = bytes / kMinWorkerBytes;
  if (wanted < 2 || count < 2) return {std::max<int64_t>(count, 1), 1};
  const int64_t workers = std::min<int64_t>({wanted, count, MaxWorkers()});
  if (in_loop || workers == 1 || !IsShared(bytes)) return {count, 1};
  const int64_t parts = std::min({workers * kPartsAWorker, bytes / kMinPartBytes, count});
  int64_t part = (count + parts - 1) / parts;
  if (item_bytes < kSmallItemBytes) part = (part + kItemGroup - 1) / kItemGroup * kItemGroup;
  return {part, workers};
}

void RunLoop(int64_t count, int64_t part, int64_t workers, RunPart run, const void* body) {
  if (count <= 0) return;
  const int64_t parts = (count + part - 1) / part;
  if (in_loop || parts == 1 || workers <= 1) return run(body, 0, count, 0);
  WorkerPool& pool = CurrentWorkerPool();
  const int64_t helpers = std::min<int64_t>({parts, workers, pool.size()}) - 1;
  if (helpers == 0) return run(body, 0, count, 0);
  Loop loop{.count = count, .part = part, .run = run, .body = body, .pool = &pool};
  pool.Run(static_cast<int>(helpers), {WorkOn, &loop});
  if (loop.error != nullptr) std::rethrow_exception(loop.error);
}

}  // namespace parallel_internal
}  // namespace pagefuse
