// SPDX-License-Identifier: Apache-2.0
// pagefuse's own worker pool: threads that wait for loops to help with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "pagefuse/base/parallel.h"

namespace pagefuse {

// Run works on the loop itself and invites idle threads to join; whoever comes takes parts. It
// never waits for a thread that has yet to wake or to get a CPU. It does wait for one that is in
// the middle of a part, which beside busy processes may be stopped there for a time slice. Threads
// wait awake for two milliseconds, which is longer than what lies between the loops of a step, or for
// 50 microseconds in the second after one of them lost its CPU to somebody else; then asleep.
//
// Run is thread-safe: loops of different threads share the helpers. After fork() the child works
// without helpers. Made and destroyed by one thread, with no Run in progress.
class ThreadPool final : public WorkerPool {
 public:
  static constexpr int kMaxSize = 1024;

  // Starts size - 1 threads, or as many of them as the system lets it. A size of 1 starts none.
  // Below 1 it is 1, above kMaxSize it is that.
  explicit ThreadPool(int size);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of threads that were given no other: made at first use, of UsableCpus() threads. It is
  // never destroyed, so that a process may end while it is in use.
  static ThreadPool& Default();

  int size() const override { return static_cast<int>(threads_.size()) + 1; }
  void Run(int helpers, const Work& work) override;

  // Whether a loop that is over before a sleeping thread comes is worth a Run: a thread is awake, or
  // this is the last of several such loops, and the next ones should find one awake.
  bool SharesLittle();

 private:
  // Where a caller offers its loop.
  struct alignas(64) Offer {
    std::atomic<uint32_t> state{0};
    int helpers = 0;
    Work work{};
  };
  // Loops at once; a caller that finds no free offer works alone.
  static constexpr int kOffers = 16;

  Offer* TakeOffer();
  void Invite(int helpers);
  void Wait(Offer& offer);
  void Help();
  bool JoinAnyOffer();
  bool Join(Offer& offer);

  alignas(64) std::atomic<uint32_t> calls_{0};  // of Invite: what idle threads look at
  std::atomic<int> sleeping_{0};
  std::atomic<uint32_t> little_loops_{0};  // that found all threads asleep
  std::atomic<bool> stop_{false};
  Offer offers_[kOffers];
  std::vector<std::thread> threads_;
};

}  // namespace pagefuse
