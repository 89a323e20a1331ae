// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/syscall.h>

#include "pagefuse/base/usable_cpus.h"

namespace pagefuse {
namespace {

using Clock = std::chrono::steady_clock;

// Time that a thread waits awake. Between the loops of one step there is mostly less; to wake a thread
// costs its caller some microseconds, and some tens pass until it is there, or a hundred in a virtual
// machine. Where threads lately lost their CPU to others, these get it sooner.
constexpr std::chrono::microseconds kAwake{2000}, kAwakeBesideOthers{50};
constexpr int kPausesALook = 8;
// A look takes less than a microsecond: who comes back after this was away.
constexpr std::chrono::microseconds kAway{60};
constexpr std::chrono::milliseconds kLately{1000};
// Of loops that are too short to wake a thread for, one in so many does.
constexpr uint32_t kLittleLoops = 8;

// The state of an offer: helpers at work, helpers that may still join, and two flags.
constexpr uint32_t kWorking = 1;  // times the helpers at work
constexpr uint32_t kWorkingMask = 0xFFF;
constexpr uint32_t kSeat = 0x1000;  // times those that may join
constexpr uint32_t kSeatMask = 0xFFF000;
constexpr uint32_t kTaken = 0x1000000;         // the offer is some caller's
constexpr uint32_t kCallerSleeps = 0x2000000;  // and is to be woken by the last helper
static_assert(ThreadPool::kMaxSize <= static_cast<int>(kWorkingMask));

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sleeps while `word` is `value`; may return earlier. A futex of our own: std::atomic's wait yields
// before it sleeps, which gives a whole time slice away beside a busy process.
void Sleep(std::atomic<uint32_t>& word, uint32_t value) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void Wake(std::atomic<uint32_t>& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Until when threads of the process are taken to have others beside them, in Clock's ticks.
std::atomic<Clock::rep> others_until{0};

// Looks at `done` for kAwake, or for less beside others; false if it did not come true.
template <typename Condition>
bool WaitAwake(const Condition& done) {
  const Clock::time_point start = Clock::now();
  const bool beside_others =
      start.time_since_epoch().count() < others_until.load(std::memory_order_relaxed);
  const Clock::time_point end = start + (beside_others ? kAwakeBesideOthers : kAwake);
  Clock::time_point now = start;
  do {
    for (int i = 0; i < kPausesALook; ++i) {
      if (done()) return true;
      Pause();
    }
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now - before > kAway) {
      others_until.store((now + kLately).time_since_epoch().count(), std::memory_order_relaxed);
      return done();
    }
  } while (now < end);
  return false;
}

// While one lives, threads that are started take no signals from outside: those are for the threads
// of the program. Signals that an instruction of a thread raises, and a profiler's, stay its own.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      sigdelset(&all, own);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

ThreadPool::ThreadPool(int size) {
  const int helpers = std::clamp(size, 1, kMaxSize) - 1;
  if (helpers == 0) return;
  threads_.reserve(static_cast<size_t>(helpers));
  const WithoutSignals none;
  try {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { Help(); });
  } catch (const std::system_error&) {
    // No more threads to be had: those that started will do.
  }
  for (std::thread& thread : threads_) pthread_setname_np(thread.native_handle(), "pagefuse");
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  calls_.fetch_add(1);
  Wake(calls_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

ThreadPool& ThreadPool::Default() {
  static auto* pool = new ThreadPool(UsableCpus());
  return *pool;
}

void ThreadPool::Run(int helpers, const Work& work) {
  Offer* offer = TakeOffer();
  if (offer == nullptr) return work.run(work.loop, 0);
  offer->helpers = helpers;
  offer->work = work;
  offer->state.store(kTaken + static_cast<uint32_t>(helpers) * kSeat, std::memory_order_release);
  Invite(helpers);
  work.run(work.loop, 0);
  // All parts are taken. Who has not come needs not come any more.
  const uint32_t state = offer->state.fetch_and(~kSeatMask, std::memory_order_acquire);
  if ((state & kWorkingMask) != 0) Wait(*offer);
  offer->state.store(0, std::memory_order_release);
}

bool ThreadPool::SharesLittle() {
  const int sleeping = sleeping_.load(std::memory_order_relaxed);
  if (sleeping < static_cast<int>(threads_.size())) return true;
  return little_loops_.fetch_add(1, std::memory_order_relaxed) % kLittleLoops == kLittleLoops - 1;
}

ThreadPool::Offer* ThreadPool::TakeOffer() {
  for (Offer& offer : offers_) {
    uint32_t state = 0;
    if (offer.state.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) {
      return &offer;
    }
  }
  return nullptr;
}

// In one order for all threads: a thread counts itself among the sleeping ones and then looks at
// calls_ a last time, this changes calls_ and then looks whether somebody sleeps. One sees the
// other.
void ThreadPool::Invite(int helpers) {
  calls_.fetch_add(1);
  const int sleeping = sleeping_.load();
  if (sleeping > 0) Wake(calls_, std::min(sleeping, helpers));
}

void ThreadPool::Wait(Offer& offer) {
  const auto done = [&] {
    return (offer.state.load(std::memory_order_acquire) & kWorkingMask) == 0;
  };
  if (WaitAwake(done)) return;
  uint32_t state = offer.state.fetch_or(kCallerSleeps, std::memory_order_acquire) | kCallerSleeps;
  while ((state & kWorkingMask) != 0) {
    Sleep(offer.state, state);
    state = offer.state.load(std::memory_order_acquire);
  }
}

void ThreadPool::Help() {
  while (true) {
    const uint32_t calls = calls_.load();
    if (stop_.load(std::memory_order_relaxed)) return;
    if (JoinAnyOffer()) continue;
    const auto called = [&] { return calls_.load(std::memory_order_acquire) != calls; };
    if (WaitAwake(called)) continue;
    sleeping_.fetch_add(1);
    Sleep(calls_, calls);
    sleeping_.fetch_sub(1);
  }
}

bool ThreadPool::JoinAnyOffer() {
  return std::ranges::any_of(offers_, [this](Offer& offer) { return Join(offer); });
}

bool ThreadPool::Join(Offer& offer) {
  uint32_t state = offer.state.load(std::memory_order_relaxed);
  do {
    if ((state & kSeatMask) == 0) return false;
  } while (!offer.state.compare_exchange_weak(
      state, state - kSeat + kWorking, std::memory_order_acquire, std::memory_order_relaxed));
  // The offer stays what it is until this thread leaves it. Seats count down, workers up from 1.
  const int seats = static_cast<int>((state & kSeatMask) / kSeat);
  offer.work.run(offer.work.loop, offer.helpers - seats + 1);
  // Nothing is left to take, for nobody.
  state = offer.state.load(std::memory_order_relaxed);
  while (!offer.state.compare_exchange_weak(state, (state & ~kSeatMask) - kWorking,
                                            std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  const bool last = (state & kWorkingMask) == kWorking;
  if (last && (state & kCallerSleeps) != 0) Wake(offer.state, 1);
  return true;
}

}  // namespace pagefuse
