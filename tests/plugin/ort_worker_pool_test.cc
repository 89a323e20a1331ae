// SPDX-License-Identifier: Apache-2.0
// Loops on the threads of a host, without a host.
#include "plugin/ort/ort_worker_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/base/parallel.h"

namespace pagefuse::ort {
namespace {

using Call = void (*)(void*, size_t);

std::atomic<int> released{0};

// Tables of a host in which loops run in one of several ways.
ort::Status* InTurn(const KernelContext*, Call call, size_t count, size_t, void* of) {
  for (size_t i = count; i-- > 0;) call(of, i);
  return nullptr;
}

ort::Status* AtOnce(const KernelContext*, Call call, size_t count, size_t, void* of) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i) threads.emplace_back(call, of, i);
  call(of, 0);
  for (std::thread& thread : threads) thread.join();
  return nullptr;
}

ort::Status* NotAtAll(const KernelContext*, Call, size_t, size_t, void*) {
  static int status;
  return reinterpret_cast<ort::Status*>(&status);
}

void Release(ort::Status*) { ++released; }

template <typename ParallelForOfHost>
std::vector<const void*> TableWith(ParallelForOfHost* loops) {
  std::vector<const void*> table(kKernelContextParallelFor.place + 1, nullptr);
  table[kKernelContextParallelFor.place] = reinterpret_cast<const void*>(loops);
  table[kReleaseStatus.place] = reinterpret_cast<const void*>(Release);
  return table;
}

class OrtWorkerPoolTest : public ::testing::TestWithParam<decltype(&InTurn)> {};

TEST_P(OrtWorkerPoolTest, EveryItemIsDoneOnce) {
  const std::vector<const void*> table = TableWith(GetParam());
  OrtWorkerPool pool(table.data(), nullptr);
  const ScopedWorkerPool scope(&pool);
  constexpr int64_t kItems = 10000, kItemBytes = 4096;
  std::vector<std::atomic<int>> done(kItems);
  ParallelFor(kItems, kItemBytes, [&](int64_t begin, int64_t end, int worker) {
    EXPECT_LT(worker, MaxWorkers());
    for (int64_t i = begin; i < end; ++i) ++done[i];
  });
  for (int64_t i = 0; i < kItems; ++i) ASSERT_EQ(done[i], 1) << i;
}

INSTANTIATE_TEST_SUITE_P(Hosts, OrtWorkerPoolTest, ::testing::Values(InTurn, AtOnce, NotAtAll));

TEST(OrtWorkerPool, AStatusOfTheHostIsReleased) {
  const std::vector<const void*> table = TableWith(NotAtAll);
  OrtWorkerPool pool(table.data(), nullptr);
  released = 0;
  int done = 0;
  const auto run = [](void* of, int) noexcept { ++*static_cast<int*>(of); };
  pool.Run(1, {run, &done});
  EXPECT_EQ(done, 1);
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace pagefuse::ort
