// SPDX-License-Identifier: Apache-2.0
// Gemm: alpha * op(A) * op(B) + beta * C.
#include <cstdint>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// C must broadcast to Y, and not the other way.
absl::Status CheckBias(ShapeContext& c, const Shape& y) {
  const Shape& bias = *c.input_shape(2);
  bool fits = bias.rank() <= 2;
  for (int i = 0; fits && i < bias.rank(); ++i) {
    const Dim& dim = bias.back(i);
    fits = dim == Dim(1) || !Differ(dim, y.back(i));
  }
  if (fits) return absl::OkStatus();
  return c.InputError(2, absl::StrCat("expected a shape that broadcasts to ", y.ToString(),
                                      ", got ", bias.ToString()));
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(c.node()));
  for (int i = 0; i < 2; ++i) {
    if (c.input_shape(i) != nullptr && c.input_shape(i)->rank() != 2) {
      return c.InputError(
          i, absl::StrCat("expected a matrix, got shape ", c.input_shape(i)->ToString()));
    }
  }
  PF_RETURN_IF_ERROR(InferProduct(c, spec));
  const std::optional<Shape>& y = c.outputs()[0].shape;
  if (!c.has_input(2) || c.input_shape(2) == nullptr || !y) return absl::OkStatus();
  return CheckBias(c, *y);
}

// C as a matrix that repeats by zero strides.
struct Bias {
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

Bias BiasOf(const TensorArg& c) {
  if (c.dims.empty()) return {};
  const int64_t columns = c.dim(-1);
  const int64_t rows = c.dims.size() == 2 ? c.dims[0] : 1;
  return {rows == 1 ? 0 : columns, columns == 1 ? 0 : 1};
}

// alpha * dot + beta * c, where there is a c. Integers have the factors as whole numbers.
template <typename T>
T ScaledSum(ProductSum<T> dot, float alpha, float beta, const T* c) {
  const auto factor = [](float value) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      return static_cast<ProductSum<T>>(value);
    }
  };
  ProductSum<T> sum = dot * factor(alpha);
  if (c != nullptr) sum += factor(beta) * static_cast<ProductSum<T>>(*c);
  return static_cast<T>(sum);
}

template <typename T>
void ReferenceLoops(KernelArgs& args, const ProductSpec& spec, float beta) {
  const ProductDims dims = DimsOf(spec, args.input(0), args.input(1));
  const T* a = args.input(0).as<T>();
  const T* b = args.input(1).as<T>();
  const T* c = args.input(2).present() ? args.input(2).as<T>() : nullptr;
  const Bias bias = BiasOf(args.input(2));
  T* y = args.output(0).as<T>();
  for (int64_t row = 0; row < dims.m; ++row) {
    for (int64_t column = 0; column < dims.n; ++column) {
      const auto dot =
          ReferenceDot(a + row * (spec.trans_a ? 1 : dims.k), spec.trans_a ? dims.m : 1,
                       b + column * (spec.trans_b ? dims.k : 1), spec.trans_b ? 1 : dims.n, dims.k);
      const int64_t at = row * bias.row_stride + column * bias.column_stride;
      *y++ = ScaledSum(dot, spec.alpha, beta, c == nullptr ? nullptr : c + at);
    }
  }
}

absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  PF_ASSIGN_OR_RETURN(const float beta, args.node->FloatAttribute("beta", 1.0f));
  return DispatchType(args.input(0).dtype,
                      [&]<typename T>() { ReferenceLoops<T>(args, spec, beta); });
}

absl::Status Linear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  PF_ASSIGN_OR_RETURN(const float beta, args.node->FloatAttribute("beta", 1.0f));
  PF_RETURN_IF_ERROR(LinearProduct(args, spec));
  const TensorArg& y = args.output(0);
  if (!args.input(2).present()) return absl::OkStatus();
  const float* c = args.input(2).as<float>();
  const Bias bias = BiasOf(args.input(2));
  const int64_t columns = y.dim(1);
  ParallelFor(y.dim(0), 3 * columns * sizeof(float), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* out = y.as<float>() + row * columns;
      const float* in = c + row * bias.row_stride;
      for (int64_t i = 0; i < columns; ++i) out[i] += beta * in[i * bias.column_stride];
    }
  });
  return absl::OkStatus();
}

}  // namespace

OpDef GemmDef() {
  return OpDef("", "Gemm", /*since=*/7)
      .Doc("Y = alpha * op(A) * op(B) + beta * C; C broadcasts to [M, N].")
      .Input("A", "T", "[M, K]; [K, M] if transA")
      .Input("B", "T", "[K, N]; [N, K] if transB")
      .Input("C", "T", "broadcasts to [M, N]", PortKind::kOptional)
      .Output("Y", "T", "[M, N]")
      .Attr("alpha", 1.0f, "factor of the product")
      .Attr("beta", 1.0f, "factor of C")
      .Attr("transA", int64_t{0}, "not 0: transpose A")
      .Attr("transB", int64_t{0}, "not 0: transpose B")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16, DataType::kDouble,
                   DataType::kInt32, DataType::kInt64, DataType::kUint32, DataType::kUint64})
      .InferShapes(Infer)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear", .dtypes = {DataType::kFloat}, .priority = 10, .run = Linear});
}

}  // namespace pagefuse::onnx_ops
