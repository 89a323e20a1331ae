// SPDX-License-Identifier: Apache-2.0
// Which threads a session runs on, and sessions and runs at once.
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/thread_pool.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using Feeds = std::map<std::string, Tensor>;

// Large enough to be shared: products of few and of many rows, and rows of a softmax.
constexpr char kModel[] = R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[N, 300] x, float[300, 900] w) => (float[N, 900] y) {
  product = MatMul (x, w)
  scaled = Tanh (product)
  y = Softmax <axis = -1> (scaled)
}
)";

Tensor Floats(const std::vector<int64_t>& dims, int seed) {
  Tensor tensor = *Tensor::Allocate(DataType::kFloat, dims);
  auto* values = static_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    values[i] = static_cast<float>((i * 37 + seed * 101) % 211 - 105) * 0.001f;
  }
  return tensor;
}

Feeds FeedsOf(int64_t rows, int seed) {
  return {{"x", Floats({rows, 300}, seed)}, {"w", Floats({300, 900}, 7)}};
}

std::unique_ptr<Session> MakeSession(const SessionOptions& options) {
  return Must(Session::Create(Must(ParseModel(kModel)), options));
}

Tensor RunOnce(Session& session, const Feeds& feeds) { return Must(session.Run(feeds))[0]; }

int64_t ThreadsOfThisProcess() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

TEST(SessionThreads, OneThreadStartsNone) {
  const int64_t before = ThreadsOfThisProcess();
  const auto session = MakeSession({.num_threads = 1});
  for (int64_t rows : {1, 8, 200}) RunOnce(*session, FeedsOf(rows, 1));
  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST(SessionThreads, StartsAsManyAsAskedForAndEndsThem) {
  const int64_t before = ThreadsOfThisProcess();
  {
    const auto session = MakeSession({.num_threads = 3});
    for (int64_t rows : {1, 8, 200}) RunOnce(*session, FeedsOf(rows, 1));
    EXPECT_EQ(ThreadsOfThisProcess(), before + 2);
  }
  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST(SessionThreads, ImpossibleNumbersAreRefused) {
  for (int threads : {-1, 1025, 100000}) {
    const auto session = Session::Create(*ParseModel(kModel), {.num_threads = threads});
    EXPECT_EQ(session.status().message(),
              "num_threads: expected 0 to 1024, got " + std::to_string(threads));
  }
}

// Counts loops and calls each worker in turn.
class HostPool : public WorkerPool {
 public:
  int size() const override { return 4; }
  void Run(int helpers, const Work& work) override {
    ++loops;
    for (int worker = 0; worker <= helpers; ++worker) work.run(work.loop, worker);
  }
  int loops = 0;
};

TEST(SessionThreads, AHostsPoolRunsAllLoops) {
  HostPool host;
  const int64_t before = ThreadsOfThisProcess();
  const auto session = MakeSession({.num_threads = 3, .workers = &host});
  const Tensor y = RunOnce(*session, FeedsOf(200, 1));
  EXPECT_GE(host.loops, 3);
  EXPECT_EQ(ThreadsOfThisProcess(), before);
  EXPECT_TRUE(y.IdenticalTo(RunOnce(*MakeSession({.num_threads = 1}), FeedsOf(200, 1))));
}

TEST(SessionThreads, WithoutANumberTheCallersPoolCounts) {
  HostPool host;
  const auto session = MakeSession({});
  const ScopedWorkerPool scope(&host);
  RunOnce(*session, FeedsOf(200, 1));
  EXPECT_GE(host.loops, 3);
}

TEST(SessionThreads, RunsOfOneSessionAtOnceGiveWhatTheyGiveAlone) {
  const auto session = MakeSession({.num_threads = 2});
  std::vector<Tensor> want;
  for (int seed = 0; seed < 4; ++seed) want.push_back(RunOnce(*session, FeedsOf(20 + seed, seed)));
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_TRUE(want[seed].IdenticalTo(RunOnce(*session, FeedsOf(20 + seed, seed)))) << seed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SessionThreads, SessionsAtOnceGiveTheSameBitsOnAnyNumberOfThreads) {
  std::vector<Tensor> want;
  const auto alone = MakeSession({.num_threads = 1});
  for (int64_t rows : {1, 12, 200}) want.push_back(RunOnce(*alone, FeedsOf(rows, 3)));
  std::vector<std::thread> threads;
  for (int size : {0, 0, 2, 3}) {
    threads.emplace_back([&, size] {
      const auto session = MakeSession({.num_threads = size});
      for (int round = 0; round < 5; ++round) {
        EXPECT_TRUE(want[0].IdenticalTo(RunOnce(*session, FeedsOf(1, 3))));
        EXPECT_TRUE(want[1].IdenticalTo(RunOnce(*session, FeedsOf(12, 3))));
        EXPECT_TRUE(want[2].IdenticalTo(RunOnce(*session, FeedsOf(200, 3))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pagefuse
