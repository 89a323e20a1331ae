// SPDX-License-Identifier: Apache-2.0
// The products of one token of Gemma 3 1B, with weights in bfloat16 and numbers between them in float: of each of 26 layers query, key and value as
// one, the output, gate and up as one gated product, down; then the head.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "rows.h"

#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda_bench {
namespace {

struct Matrix {
  int64_t n, k;
  bool gated = false;

  size_t Bytes() const { return static_cast<size_t>(n * k * 2); }
};
constexpr Matrix kLayer[] = {{1536, 1152}, {1152, 1024}, {6912, 1152, true}, {1152, 6912}};
constexpr Matrix kHead = {262144, 1152};
constexpr int kLayers = 26;

struct Product {
  Memory weight, up;
  cuda::ProductParams params;
};

Product MakeProduct(const Gpu& gpu, const Matrix& matrix, int64_t m, bool rows, uint32_t seed) {
  Product product;
  product.weight = Memory(gpu, matrix.Bytes(), Fill::kBfloat16, seed);
  cuda::ProductParams& p = product.params;
  p.m = m, p.n = matrix.n, p.k = matrix.k;
  p.weight = {.type = DataType::kBfloat16, .data = product.weight.as(), .rows = rows};
  p.constant_weights = true;
  if (matrix.gated) {
    product.up = Memory(gpu, matrix.Bytes(), Fill::kBfloat16, seed + 1);
    p.up = p.weight;
    p.up.data = product.up.as();
    p.gate = cuda::GateFunction::kGeluTanh;
    p.limit = std::numeric_limits<float>::infinity();
  }
  return product;
}

Measured Token(const Gpu& gpu, int64_t m, bool rows) {
  std::vector<Product> products;
  const auto add = [&](const Matrix& matrix) {
    products.push_back(
        MakeProduct(gpu, matrix, m, rows, static_cast<uint32_t>(2 * products.size() + 1)));
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Matrix& matrix : kLayer) add(matrix);
  }
  add(kHead);
  size_t scratch_bytes = 0;
  double bytes = 0;
  for (const Product& product : products) {
    scratch_bytes = std::max(scratch_bytes, cuda::ProductScratchBytes(product.params));
    bytes += static_cast<double>(product.weight.bytes() + product.up.bytes());
  }
  const Memory x(gpu, static_cast<size_t>(m) * 8192 * 4, Fill::kFloat);
  const Memory y(gpu, static_cast<size_t>(m * kHead.n) * 4, Fill::kZeros);
  const Memory scratch(gpu, scratch_bytes, Fill::kZeros);
  for (Product& product : products) {
    product.params.x = x.as(), product.params.y = y.as(), product.params.scratch = scratch.as();
  }
  const Timing timing = TimeLaunches(gpu, 1, [&](int) {
    for (const Product& product : products) {
      Check(cuda::LaunchProduct(product.params, gpu.stream));
    }
  });
  return {timing, bytes};
}

}  // namespace

void AddProductRows(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, Target target, int64_t m, bool in_rows) {
    rows.push_back({name, target, [=](const Gpu& gpu) { return Token(gpu, m, in_rows); }});
  };
  add("products of a token of Gemma 3 1B, [N, K]", {.bound = Bound::kRead, .us = 645}, 1, true);
  add("products of a token of Gemma 3 1B, [K, N]", {.bound = Bound::kRead, .us = 645}, 1, false);
  add("products of 8 tokens of Gemma 3 1B, [N, K]", {.bound = Bound::kRead, .us = 800}, 8, true);
  add("products of 32 tokens of Gemma 3 1B, [N, K]", {.bound = Bound::kRead, .us = 1000}, 32, true);
}

}  // namespace pagefuse::cuda_bench
