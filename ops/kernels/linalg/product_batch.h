// SPDX-License-Identifier: Apache-2.0
// Many products of one size on the workers of a call.
#pragma once

#include <cstdint>

#include "pagefuse/base/parallel.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {

// `count` products [m, k] * [k, n].
struct ProductBatch {
  int64_t count = 0, m = 0, n = 0, k = 0;
};

// Calls run(i, scratch) for each product: large ones come one after the other, each with all threads
// and the scratch memory of the call; small ones a thread each, with memory of its own.
template <typename RunFn>
void ForEachProduct(const ProductBatch& products, Scratch& scratch, const RunFn& run) {
  // Multiplications from which on all threads share a product, and elements of a matrix: to read
  // those takes a few rows their time.
  constexpr int64_t kLargeProduct = int64_t{1} << 21, kLargeMatrix = int64_t{1} << 18;
  const int64_t terms = products.m * products.n * products.k;
  if (products.count < 2 || terms >= kLargeProduct || products.n * products.k >= kLargeMatrix) {
    for (int64_t i = 0; i < products.count; ++i) run(i, scratch);
    return;
  }
  PerWorker<Scratch> own;
  // Four multiplications take the time of moving a byte.
  ParallelFor(products.count, terms / 4 + 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) run(i, own[worker]);
  });
}

}  // namespace pagefuse
