// SPDX-License-Identifier: Apache-2.0
// Rows alone against the same rows in batches: what all tests of row invariance do.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "linear_support.h"
#include "simd_targets.h"

#include "pagefuse/base/thread_pool.h"

namespace pagefuse::testing {

inline constexpr int kRandomBatches = 200;

// Calls body(batch) for the numbers of batches, each on 1 to 4 threads in turn.
inline void ForEachBatch(const std::function<void(int batch)>& body) {
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int threads = 1; threads <= 4; ++threads) {
    pools.push_back(std::make_unique<ThreadPool>(threads));
  }
  for (int batch = 0; batch < kRandomBatches; ++batch) {
    const ScopedWorkerPool scope(pools[batch % pools.size()].get());
    SCOPED_TRACE("batch " + std::to_string(batch));
    body(batch);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// A function over rows: y [m, n] of x [m, k], each row of y of the same row of x. `labels` has a
// number below `num_labels` for each row, which may matter to it (its expert, its matrix).
struct RowFunction {
  int64_t k = 0;
  int64_t n = 0;
  std::function<std::vector<float>(const float* x, const std::vector<int64_t>& labels)> run;
  int64_t num_labels = 1;
  int64_t most_rows = 200;
};

// EXPECTs of 200 random batches of rows that none differs in a bit from the row alone, for each
// SIMD target and unit for bfloat16.
inline void ExpectRowInvariance(const RowFunction& f) {
  constexpr int64_t kPool = 24;  // different rows
  const std::vector<float> pool = RandomFloats(kPool * f.k, 11);
  const auto label = [&](int64_t row) { return row % f.num_labels; };
  ForEachSimdTarget([&] {
    std::vector<std::vector<float>> alone;
    for (int64_t row = 0; row < kPool; ++row) {
      alone.push_back(f.run(&pool[row * f.k], {label(row)}));
    }
    std::mt19937 random(17);
    ForEachBatch([&](int) {
      // Of all magnitudes alike: few rows take other ways than many.
      int64_t m = 2;
      while (m * 2 <= f.most_rows && random() % 4 != 0) m *= 2;
      m += static_cast<int64_t>(random() % m);
      std::vector<int64_t> rows, labels;
      std::vector<float> x;
      for (int64_t i = 0; i < m; ++i) {
        rows.push_back(static_cast<int64_t>(random() % kPool));
        labels.push_back(label(rows.back()));
        x.insert(x.end(), &pool[rows[i] * f.k], &pool[rows[i] * f.k] + f.k);
      }
      const std::vector<float> y = f.run(x.data(), labels);
      ASSERT_EQ(y.size(), static_cast<size_t>(m * f.n));
      int64_t differ = 0;
      for (int64_t i = 0; i < m; ++i) {
        differ += std::memcmp(&y[i * f.n], alone[rows[i]].data(), f.n * sizeof(float)) != 0;
      }
      ASSERT_EQ(differ, 0) << "of " << m << " rows";
    });
  });
}

}  // namespace pagefuse::testing
