// SPDX-License-Identifier: Apache-2.0
// oneDNN's products, and that its own threads never come into being.
#include "pagefuse/ops/kernels/linalg/onednn.h"

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include <dlfcn.h>

#include "gtest/gtest.h"
#include "linear_support.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/thread_pool.h"

namespace pagefuse {
namespace {

using testing::RandomFloats;

int64_t ThreadsOfThisProcess() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

// Threads that a team of oneDNN's OpenMP would have.
int TeamSize() {
  const auto size = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return size == nullptr ? 1 : size();
}
void SetTeamSize(int threads) {
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
}

struct Operands {
  Operands(int64_t m, int64_t n, int64_t k)
      : a(RandomFloats(m * k, 1)), b(RandomFloats(k * n, 2)), c(static_cast<size_t>(m * n), -1) {
    product = {.m = m,
               .n = n,
               .k = k,
               .a = a.data(),
               .lda = k,
               .b = b.data(),
               .ldb = n,
               .c = c.data(),
               .ldc = n};
  }
  std::vector<float> a, b, c;
  Sgemm product;
};

TEST(OneDnn, MultipliesEachWayUp) {
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      Operands x(101, 81, 20);
      Sgemm& p = x.product;
      p.trans_a = trans_a;
      p.trans_b = trans_b;
      p.lda = trans_a ? p.m : p.k;
      p.ldb = trans_b ? p.k : p.n;
      p.alpha = 0.5f;
      ASSERT_TRUE(RunSgemm(p));
      for (int64_t r = 0; r < p.m; ++r) {
        for (int64_t c = 0; c < p.n; ++c) {
          double sum = 0;
          for (int64_t i = 0; i < p.k; ++i) {
            sum += static_cast<double>(x.a[trans_a ? i * p.m + r : r * p.k + i]) *
                   x.b[trans_b ? c * p.k + i : i * p.n + c];
          }
          ASSERT_NEAR(x.c[r * p.n + c], 0.5 * sum, 1e-4) << r << " " << c;
        }
      }
    }
  }
}

TEST(OneDnn, TilesOfBytesMakeUpTheProduct) {
  const int64_t m = 300, n = 700, k = 64;
  std::vector<int8_t> a(m * k), b(k * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int8_t>(i * 7 % 251 - 125);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int8_t>(i * 5 % 127 - 63);
  std::vector<int32_t> c(m * n);
  ThreadPool pool(2);
  const ScopedWorkerPool scope(&pool);
  ASSERT_TRUE(ParallelByteGemm({.m = m,
                                .n = n,
                                .k = k,
                                .a = a.data(),
                                .a_signed = true,
                                .lda = k,
                                .a_zero = 3,
                                .b = b.data(),
                                .ldb = n,
                                .b_zero = -2,
                                .c = c.data(),
                                .ldc = n}));
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += (a[r * k + i] - 3) * (b[i * n + j] + 2);
      ASSERT_EQ(c[r * n + j], sum) << r << " " << j;
    }
  }
}

// A product that oneDNN would share among a team: the process has as many threads after as before,
// on a thread of the program and on helpers, which each have an OpenMP setting of their own.
TEST(OneDnn, NeverStartsThreads) {
  ThreadPool pool(3);
  const ScopedWorkerPool scope(&pool);
  const int64_t before = ThreadsOfThisProcess();
  std::thread([&] {
    SetTeamSize(4);
    Operands large(600, 2000, 500);
    const ScopedWorkerPool inner(&pool);
    ParallelTasks(4, [&](int64_t task) {
      Operands own(600, 2000, 500);
      EXPECT_TRUE(RunSgemm(own.product)) << task;
    });
    ASSERT_TRUE(RunSgemm(large.product));
    EXPECT_EQ(ThreadsOfThisProcess(), before + 1);  // this one
  }).join();
  EXPECT_EQ(ThreadsOfThisProcess(), before);
}

TEST(OneDnn, LeavesTheProgramsOpenMpAsItWas) {
  std::thread([] {
    SetTeamSize(3);
    const int size = TeamSize();
    {
      const OneDnnOnThisThread alone;
      EXPECT_EQ(TeamSize(), 1);
      const OneDnnOnThisThread again;
      EXPECT_EQ(TeamSize(), 1);
    }
    EXPECT_EQ(TeamSize(), size);
  }).join();
}

}  // namespace
}  // namespace pagefuse
