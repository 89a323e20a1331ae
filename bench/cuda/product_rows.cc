// SPDX-License-Identifier: Apache-2.0
// Products of few rows. Those of a token of Gemma 3 1B: of each of 26 layers query, key and value as one, the output, gate and up as one gated product,
// down; then the head. As an export has them, with matrices [K, N], query, key and value are three products. Single ones of it, and of DeepSeek-V4.
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
  int64_t stack = 1;  // so many matrices, each with rows of its own
};
constexpr Matrix kHead = {262144, 1152};
constexpr int kLayers = 26;
std::vector<Matrix> LayerOf(bool rows) {
  if (rows) return {{1536, 1152}, {1152, 1024}, {6912, 1152, true}, {1152, 6912}};
  return {{1024, 1152}, {256, 1152}, {256, 1152}, {1152, 1024}, {6912, 1152, true}, {1152, 6912}};
}

// How a model has its products.
struct Kind {
  bool rows = true;  // matrices [N, K], else [K, N]
  // Of x and y, and of weights.
  DataType type = DataType::kFloat, weight_type = DataType::kBfloat16;
};

struct Product {
  Memory weight, up;
  cuda::ProductParams params;
};

Product MakeProduct(const Gpu& gpu, const Matrix& matrix, int64_t m, const Kind& kind,
                    uint32_t seed) {
  Product product;
  const bool wide = kind.weight_type == DataType::kFloat;
  const auto bytes = static_cast<size_t>(matrix.stack * matrix.n * matrix.k * (wide ? 4 : 2));
  const Fill fill = wide ? Fill::kFloat : Fill::kBfloat16;
  product.weight = Memory(gpu, bytes, fill, seed);
  cuda::ProductParams& p = product.params;
  p.m = m, p.n = matrix.n, p.k = matrix.k;
  p.type = kind.type;
  p.weight = {.type = kind.weight_type, .data = product.weight.as(), .rows = kind.rows};
  p.constant_weights = true;
  if (matrix.stack > 1) p.batch = {matrix.stack}, p.x_steps = p.weight_steps = {1};
  if (matrix.gated) {
    product.up = Memory(gpu, bytes, fill, seed + 1);
    p.up = p.weight;
    p.up.data = product.up.as();
    p.gate = cuda::GateFunction::kGeluTanh;
    p.limit = std::numeric_limits<float>::infinity();
  }
  return product;
}

// The products by one x, and into one y.
Measured TimeProducts(const Gpu& gpu, std::vector<Product>& products, int sets) {
  size_t scratch_bytes = 0;
  int64_t x_size = 0, y_size = 0;
  double bytes = 0;
  for (const Product& product : products) {
    const cuda::ProductParams& p = product.params;
    scratch_bytes = std::max(scratch_bytes, cuda::ProductScratchBytes(p));
    const int64_t stack = p.batch.empty() ? 1 : p.batch[0];
    x_size = std::max(x_size, stack * p.m * p.k), y_size = std::max(y_size, stack * p.m * p.n);
    bytes += static_cast<double>(product.weight.bytes() + product.up.bytes());
  }
  const bool floats = products[0].params.type == DataType::kFloat;
  const Memory x(gpu, static_cast<size_t>(x_size) * 4, floats ? Fill::kFloat : Fill::kBfloat16);
  const Memory y(gpu, static_cast<size_t>(y_size) * 4, Fill::kZeros);
  const Memory scratch(gpu, scratch_bytes, Fill::kZeros);
  for (Product& product : products) {
    product.params.x = x.as(), product.params.y = y.as(), product.params.scratch = scratch.as();
  }
  const size_t count = products.size() / static_cast<size_t>(sets);
  const Timing timing = TimeLaunches(gpu, sets, [&](int set) {
    for (size_t i = 0; i < count; ++i) {
      const Product& product = products[static_cast<size_t>(set) * count + i];
      Check(cuda::LaunchProduct(product.params, gpu.stream));
    }
  });
  return {timing, bytes / sets};
}

Measured Token(const Gpu& gpu, int64_t m, const Kind& kind) {
  std::vector<Product> products;
  const auto add = [&](const Matrix& matrix) {
    products.push_back(
        MakeProduct(gpu, matrix, m, kind, static_cast<uint32_t>(2 * products.size() + 1)));
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Matrix& matrix : LayerOf(kind.rows)) add(matrix);
  }
  add(kHead);
  return TimeProducts(gpu, products, 1);
}

// One product by itself, of other weights each time.
Measured Alone(const Gpu& gpu, const Matrix& matrix, int64_t m) {
  const int sets = SetsFor(gpu, static_cast<size_t>(matrix.stack * matrix.n * matrix.k * 2));
  std::vector<Product> products;
  for (int i = 0; i < sets; ++i) {
    products.push_back(MakeProduct(gpu, matrix, m, {}, static_cast<uint32_t>(2 * i + 1)));
  }
  return TimeProducts(gpu, products, sets);
}

}  // namespace

void AddProductRows(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, double us, int64_t m, const Kind& kind) {
    rows.push_back({"products of " + name, {.bound = Bound::kRead, .us = us}, [=](const Gpu& gpu) {
                      return Token(gpu, m, kind);
                    }});
  };
  add("a token of Gemma 3 1B, [N, K]", 645, 1, {});
  add("8 tokens of Gemma 3 1B, [N, K]", 800, 8, {});
  add("32 tokens of Gemma 3 1B, [N, K]", 1000, 32, {});
  add("64 tokens of Gemma 3 1B, [N, K]", 1200, 64, {});
  // As ONNX has MatMul: all of one type.
  const Kind floats{false, DataType::kFloat, DataType::kFloat};
  const Kind bfloats{false, DataType::kBfloat16, DataType::kBfloat16};
  add("a token of Gemma 3 1B, [K, N]", 750, 1, {.rows = false});
  add("a token of Gemma 3 1B, [K, N] in bfloat16", 750, 1, bfloats);
  add("a token of Gemma 3 1B, [K, N] in float32", 1250, 1, floats);
  add("8 tokens of Gemma 3 1B, [K, N] in float32", 1500, 8, floats);
  const auto alone = [&](int64_t m, const Matrix& matrix, const Target& target) {
    std::string name = matrix.gated ? "gated product of " : "product of ";
    name += (m == 1 ? "a token" : std::to_string(m) + " tokens") + " K" + std::to_string(matrix.k) +
            " N" + std::to_string(matrix.n);
    if (matrix.stack > 1) name += ", " + std::to_string(matrix.stack) + " matrices";
    rows.push_back({name, target, [=](const Gpu& gpu) { return Alone(gpu, matrix, m); }});
  };
  const Target share = {.bound = Bound::kRead, .share = 0.85};
  alone(1, {1536, 1152}, {.bound = Bound::kRead, .us = 3});
  alone(1, {1152, 1024}, {.bound = Bound::kRead, .us = 2.5});
  alone(1, {6912, 1152, true}, {.bound = Bound::kRead, .us = 9.5});
  alone(1, {1152, 6912}, {.bound = Bound::kRead, .us = 6});
  alone(1, kHead, share);
  // Widths of DeepSeek-V4.
  alone(1, {129280, 4096}, share);
  alone(1, {4096, 8192}, share);
  alone(1, {3584, 4096}, {.bound = Bound::kRead, .us = 9});
  alone(1, {2048, 4096, true}, {.bound = Bound::kRead, .us = 10});
  alone(1, {24, 16384}, {.bound = Bound::kRead, .us = 5});
  alone(1, {.n = 1024, .k = 4096, .stack = 8}, {.bound = Bound::kRead, .us = 20});
  alone(16, {129280, 4096}, share);
  alone(16, {4096, 8192}, {.bound = Bound::kRead, .us = 20});
  alone(16, {24, 16384}, {.bound = Bound::kRead, .us = 8});
  // Of a step of 64 sequences of Gemma.
  alone(64, {1536, 1152}, {.bound = Bound::kRead, .us = 5});
  alone(64, {6912, 1152, true}, {.bound = Bound::kRead, .us = 12});
  alone(64, {1152, 6912}, {.bound = Bound::kRead, .us = 12});
  alone(64, kHead, {.bound = Bound::kRead, .us = 210});
}

}  // namespace pagefuse::cuda_bench
