// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/product.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/onednn.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

// The matrix that an operand is: a vector becomes a row on the left, a column on the right.
struct Operand {
  std::vector<int64_t> batch;
  int64_t rows;
  int64_t columns;
};

Operand OperandOf(const std::vector<int64_t>& dims, bool left, bool transposed) {
  if (dims.size() == 1) return left ? Operand{{}, 1, dims[0]} : Operand{{}, dims[0], 1};
  Operand operand{{dims.begin(), dims.end() - 2}, dims[dims.size() - 2], dims.back()};
  if (transposed) std::swap(operand.rows, operand.columns);
  return operand;
}

// For each matrix of the broadcast batch (last dim fastest): the operand's matrix.
std::vector<int64_t> BatchIndex(const std::vector<int64_t>& full,
                                const std::vector<int64_t>& batch) {
  std::vector<int64_t> index = {0};
  int64_t stride = 1;
  // From the last dim outwards: every choice of the dims so far is repeated for each value of the
  // next.
  for (size_t i = 0; i < full.size(); ++i) {
    const int64_t size = full[full.size() - 1 - i];
    const int64_t own = i < batch.size() ? batch[batch.size() - 1 - i] : 1;
    const size_t inner = index.size();
    index.resize(inner * size);
    for (int64_t value = size - 1; value >= 0; --value) {
      for (size_t j = 0; j < inner; ++j) {
        index[value * inner + j] = index[j] + (own == 1 ? 0 : value * stride);
      }
    }
    stride *= own;
  }
  return index;
}

absl::Status CheckOperand(const ShapeContext& c, int input, bool transposed) {
  const int rank = c.input_shape(input)->rank();
  if (rank == 0) return c.InputError(input, "expected a matrix or vector, got shape []");
  if (rank == 1 && transposed) {
    return c.InputError(input, "expected a matrix to transpose, got a vector");
  }
  return absl::OkStatus();
}

template <typename T>
void ReferenceLoops(KernelArgs& args, const ProductSpec& spec) {
  const ProductDims dims = DimsOf(spec, args.input(0), args.input(1));
  const int64_t a_row = spec.trans_a ? 1 : dims.k;
  const int64_t a_step = spec.trans_a ? dims.m : 1;
  const int64_t b_column = spec.trans_b ? dims.k : 1;
  const int64_t b_step = spec.trans_b ? 1 : dims.n;
  T* y = args.output(0).as<T>();
  for (size_t i = 0; i < dims.a_index.size(); ++i) {
    const T* a = args.input(0).as<T>() + dims.a_index[i] * dims.m * dims.k;
    const T* b = args.input(1).as<T>() + dims.b_index[i] * dims.k * dims.n;
    for (int64_t row = 0; row < dims.m; ++row) {
      for (int64_t column = 0; column < dims.n; ++column) {
        auto sum = ReferenceDot(a + row * a_row, a_step, b + column * b_column, b_step, dims.k);
        if constexpr (!std::is_integral_v<T>) sum *= spec.alpha;
        *y++ = static_cast<T>(sum);
      }
    }
  }
}

float* ScratchFloats(KernelArgs& args, size_t bytes) {
  return static_cast<float*>(bytes > 0 ? args.scratch->Get(bytes) : nullptr);
}

void Scale(float alpha, int64_t size, float* y) {
  if (alpha == 1.0f) return;
  ParallelFor(size, 2 * sizeof(float), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] *= alpha;
  });
}

// Elements of a matrix from which on all threads share its product with a few rows.
constexpr int64_t kStreamedMatrix = int64_t{1} << 18;

absl::Status StreamedProducts(KernelArgs& args, const ProductSpec& spec, const ProductDims& dims) {
  const float* a = args.input(0).as<float>();
  const float* b = args.input(1).as<float>();
  float* y = args.output(0).as<float>();
  for (size_t i = 0; i < dims.a_index.size(); ++i) {
    const WeightView matrix{b + dims.b_index[i] * dims.k * dims.n, dims.k, dims.n, spec.trans_b};
    const RowsView x{a + dims.a_index[i] * dims.m * dims.k, dims.m, dims.k};
    float* scratch = ScratchFloats(args, LinearF32ScratchBytes(dims.m, matrix));
    const auto rows = static_cast<int64_t>(i) * dims.m;
    PF_RETURN_IF_ERROR(LinearF32(x, matrix, scratch, {y + rows * dims.n, dims.n}));
  }
  Scale(spec.alpha, static_cast<int64_t>(dims.a_index.size()) * dims.m * dims.n, y);
  return absl::OkStatus();
}

// Every other product: one sgemm a matrix, in tiles where it is large.
absl::Status BatchedProduct(KernelArgs& args, const ProductSpec& spec, const ProductDims& dims) {
  const float* a = args.input(0).as<float>();
  const float* b = args.input(1).as<float>();
  float* y = args.output(0).as<float>();
  const int64_t count = static_cast<int64_t>(dims.a_index.size());
  if (dims.k == 0) {
    std::fill_n(y, count * dims.m * dims.n, 0.0f);
    return absl::OkStatus();
  }
  if (dims.m == 0 || dims.n == 0) return absl::OkStatus();
  // Few rows by large matrices are bound by reading those.
  const bool streamed = !spec.trans_a && dims.m <= kMaxStreamedRows;
  if (streamed && dims.n * dims.k >= kStreamedMatrix) return StreamedProducts(args, spec, dims);
  const auto product = [&](int64_t i) {
    return Sgemm{.trans_a = spec.trans_a,
                 .trans_b = spec.trans_b,
                 .m = dims.m,
                 .n = dims.n,
                 .k = dims.k,
                 .alpha = spec.alpha,
                 .a = a + dims.a_index[i] * dims.m * dims.k,
                 .lda = spec.trans_a ? dims.m : dims.k,
                 .b = b + dims.b_index[i] * dims.k * dims.n,
                 .ldb = spec.trans_b ? dims.k : dims.n,
                 .c = y + i * dims.m * dims.n,
                 .ldc = dims.n};
  };
  const int64_t tiles = SgemmTiles(product(0)).count();
  std::atomic<bool> ok = true;
  // Four multiplications take the time of moving a byte.
  const int64_t tile_bytes = dims.m * dims.n * dims.k / tiles / 4 + 1;
  ParallelFor(count * tiles, tile_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!RunSgemm(SgemmTiles(product(i / tiles)).Tile(i % tiles))) ok = false;
    }
  });
  return ok ? absl::OkStatus() : absl::InternalError("oneDNN sgemm failed");
}

}  // namespace

absl::StatusOr<ProductSpec> ProductSpecOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_a, node.IntAttribute("transA", 0));
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  PF_ASSIGN_OR_RETURN(const float alpha, node.FloatAttribute("alpha", 1.0f));
  return ProductSpec{trans_a != 0, trans_b != 0, alpha};
}

absl::Status InferProduct(ShapeContext& c, const ProductSpec& spec) {
  const DataType type = c.input_type(0);
  if (c.input_shape(0) == nullptr || c.input_shape(1) == nullptr) {
    c.SetOutput(0, type, std::nullopt);
    return absl::OkStatus();
  }
  PF_RETURN_IF_ERROR(CheckOperand(c, 0, spec.trans_a));
  PF_RETURN_IF_ERROR(CheckOperand(c, 1, spec.trans_b));
  const Shape& a = *c.input_shape(0);
  const Shape& b = *c.input_shape(1);
  const Dim& a_k = a.back(spec.trans_a ? 1 : 0);
  const Dim& b_k = b.back(b.rank() == 1 || spec.trans_b ? 0 : 1);
  if (Differ(a_k, b_k)) {
    return c.InputError(1, absl::StrCat("expected ", a_k.ToString(), " rows to multiply ",
                                        a.ToString(), " by, got ", b.ToString()));
  }
  PF_ASSIGN_OR_RETURN(Shape y, ProductShape(c, spec, a, b));
  c.SetOutput(0, type, std::move(y));
  return absl::OkStatus();
}

Shape BatchOf(const Shape& shape) {
  return Shape({shape.dims().begin(), shape.dims().end() - std::min(shape.rank(), 2)});
}

absl::StatusOr<Shape> ProductShape(ShapeContext& c, const ProductSpec& spec, const Shape& a,
                                   const Shape& b) {
  PF_ASSIGN_OR_RETURN(Shape y, BroadcastShapes(c, BatchOf(a), BatchOf(b)));
  if (a.rank() > 1) y.dims().push_back(a.back(spec.trans_a ? 0 : 1));
  if (b.rank() > 1) y.dims().push_back(b.back(spec.trans_b ? 1 : 0));
  return y;
}

ProductDims DimsOf(const ProductSpec& spec, const TensorArg& a, const TensorArg& b) {
  const Operand left = OperandOf(a.dims, true, spec.trans_a);
  const Operand right = OperandOf(b.dims, false, spec.trans_b);
  std::vector<int64_t> batch(std::max(left.batch.size(), right.batch.size()), 1);
  for (const std::vector<int64_t>* own : {&left.batch, &right.batch}) {
    const size_t skipped = batch.size() - own->size();
    for (size_t i = 0; i < own->size(); ++i) {
      if ((*own)[i] != 1) batch[skipped + i] = (*own)[i];
    }
  }
  return {left.rows, right.columns, left.columns, BatchIndex(batch, left.batch),
          BatchIndex(batch, right.batch)};
}

absl::Status ReferenceProduct(KernelArgs& args, const ProductSpec& spec) {
  return DispatchType(args.input(0).dtype, [&]<typename T>() { ReferenceLoops<T>(args, spec); });
}

absl::Status LinearProduct(KernelArgs& args, const ProductSpec& spec) {
  const TensorArg& a = args.input(0);
  const TensorArg& b = args.input(1);
  const ProductDims dims = DimsOf(spec, a, b);
  if (spec.trans_a || b.dims.size() != 2) return BatchedProduct(args, spec, dims);
  // A batch of a's matrices by one matrix is one taller product.
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const RowsView x{a.as<float>(), rows, dims.k};
  const OutputView y{args.output(0).as<float>(), dims.n};
  const WeightView weight{b.as<float>(), dims.k, dims.n, spec.trans_b};
  float* scratch = ScratchFloats(args, LinearF32ScratchBytes(rows, weight));
  PF_RETURN_IF_ERROR(LinearF32(x, weight, scratch, y));
  Scale(spec.alpha, rows * dims.n, y.data);
  return absl::OkStatus();
}

}  // namespace pagefuse
