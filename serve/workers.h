// SPDX-License-Identifier: Apache-2.0
// Threads for what is neither network nor graph: reading requests, encoding prompts, building replies.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pagefuse::serve {

// Thread-safe. At its end what was posted is still done.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  void Post(std::function<void()> task);
  // Returns when nothing is left to do. Not by one of its tasks.
  void Finish();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<void()>> tasks_;
  size_t running_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

// Tasks one after the other, in the order in which they were posted. Thread-safe; may end while tasks wait.
class Strand {
 public:
  explicit Strand(Workers* workers) : workers_(workers), state_(std::make_shared<State>()) {}
  void Post(std::function<void()> task);

 private:
  struct State {
    std::mutex mutex;
    std::deque<std::function<void()>> tasks;
    bool running = false;
  };
  static void Run(const std::shared_ptr<State>& state);

  Workers* workers_;
  std::shared_ptr<State> state_;
};

}  // namespace pagefuse::serve
