// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/product.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/product_batch.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/scratch.h"
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

void Scale(float alpha, int64_t size, float* y) {
  if (alpha == 1.0f) return;
  ParallelFor(size, 2 * sizeof(float), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] *= alpha;
  });
}

// Slots of the scratch memory: what LinearF32 asks for, and a left operand that is turned.
constexpr int kProductSlot = 0, kTurnedSlot = 1;

// to [m, k] = from [k, m], transposed.
void Turn(const float* from, int64_t m, int64_t k, float* to) {
  constexpr int64_t kBlock = 16;
  ParallelFor(m, 2 * k * static_cast<int64_t>(sizeof(float)), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < k; i += kBlock) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = i; c < std::min(i + kBlock, k); ++c) to[r * k + c] = from[c * m + r];
      }
    }
  });
}

// y = alpha * a * b for one matrix of each.
struct MatrixProduct {
  const ProductSpec& spec;
  const ProductDims& dims;

  void Run(const float* a, const float* b, float* y, Scratch& scratch) const {
    const auto [m, n, k] = std::tuple(dims.m, dims.n, dims.k);
    if (spec.trans_a) {
      auto* turned = static_cast<float*>(scratch.Get(m * k * sizeof(float), kTurnedSlot));
      Turn(a, m, k, turned);
      a = turned;
    }
    const WeightView matrix{b, k, n, spec.trans_b};
    LinearF32({a, m, k}, matrix, scratch.Get(LinearF32ScratchBytes(m, matrix), kProductSlot),
              {y, n});
    Scale(spec.alpha, m * n, y);
  }
};

// Every product that is not one by a single matrix.
void BatchedProduct(KernelArgs& args, const ProductSpec& spec, const ProductDims& dims) {
  const float* a = args.input(0).as<float>();
  const float* b = args.input(1).as<float>();
  float* y = args.output(0).as<float>();
  const MatrixProduct product{spec, dims};
  const ProductBatch batch{
      .count = static_cast<int64_t>(dims.a_index.size()), .m = dims.m, .n = dims.n, .k = dims.k};
  ForEachProduct(batch, *args.scratch, [&](int64_t i, Scratch& scratch) {
    product.Run(a + dims.a_index[i] * dims.m * dims.k, b + dims.b_index[i] * dims.k * dims.n,
                y + i * dims.m * dims.n, scratch);
  });
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
  if (spec.trans_a || b.dims.size() != 2) {
    BatchedProduct(args, spec, dims);
    return absl::OkStatus();
  }
  // A batch of a's matrices by one matrix is one taller product.
  ProductDims taller = dims;
  taller.m *= static_cast<int64_t>(dims.a_index.size());
  MatrixProduct{spec, taller}.Run(a.as<float>(), b.as<float>(), args.output(0).as<float>(),
                                  *args.scratch);
  return absl::OkStatus();
}

}  // namespace pagefuse
