// SPDX-License-Identifier: Apache-2.0
// Pools over whole planes: GlobalAveragePool, GlobalMaxPool, GlobalLpPool.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {
namespace {

absl::Status InferGlobal(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  std::optional<Shape> y;
  if (x != nullptr) {
    if (x->rank() < 2) {
      return c.InputError(0, StrCat("expected rank 2 or more, got shape ", x->ToString()));
    }
    y = *x;
    for (int d = 2; d < y->rank(); ++d) (*y)[d] = Dim(1);
  }
  c.SetOutput(0, c.input_type(0), y);
  return absl::OkStatus();
}

struct MeanOfAll {
  double sum = 0;
  explicit MeanOfAll(int64_t) {}
  void Add(double x) { sum += x; }
  double Finish(int64_t count) const { return sum / static_cast<double>(count); }
};
struct MaxOfAll {
  double best = -std::numeric_limits<double>::infinity();
  explicit MaxOfAll(int64_t) {}
  void Add(double x) {
    if (x > best || x != x) best = x;
  }
  double Finish(int64_t) const { return best; }
};
struct NormOfAll {
  double p, sum = 0;
  explicit NormOfAll(int64_t p) : p(static_cast<double>(p)) {}
  void Add(double x) { sum += std::pow(std::fabs(x), p); }
  double Finish(int64_t) const { return std::pow(sum, 1.0 / p); }
};

template <typename Pool>
absl::Status RunGlobal(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t p, args.node->IntAttribute("p", 2));
  const TensorArg& x = args.input(0);
  const int64_t planes = x.dims[0] * x.dims[1];
  const int64_t size = planes == 0 ? 0 : x.size() / planes;
  return Dispatch(Floats(), x.dtype, [&]<typename T>() {
    ParallelFor(planes, size + 1, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        Pool pool(p);
        const T* from = x.as<T>() + plane * size;
        for (int64_t i = 0; i < size; ++i) pool.Add(static_cast<double>(Load(from[i])));
        args.output(0).as<T>()[plane] = Store<T>(static_cast<Compute<T>>(pool.Finish(size)));
      }
    });
  });
}

using RowFold = float (*)(const float* x, int64_t n);

// Global pools of floats are one fold of a row for each plane.
template <RowFold fold>
absl::Status RunGlobalRows(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const int64_t planes = x.dims[0] * x.dims[1];
  const int64_t size = planes == 0 ? 0 : x.size() / planes;
  ParallelFor(planes, size * 4 + 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      args.output(0).as<float>()[plane] = fold(x.as<float>() + plane * size, size);
    }
  });
  return absl::OkStatus();
}

float MeanOfRow(const float* x, int64_t n) { return SumOfRow(x, n) / static_cast<float>(n); }

template <RowFold fold>
Kernel RowKernel() {
  return {.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunGlobalRows<fold>};
}

template <typename P>
OpDef GlobalPool(std::string_view name, int since, std::string_view doc) {
  return OpDef("", name, since)
      .Doc(doc)
      .Input("X", "T", "[N, C, ...]")
      .Output("Y", "T", "[N, C, 1, ...]")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferGlobal)
      .AddKernel({.name = "reference", .run = RunGlobal<P>});
}

}  // namespace

OpDef GlobalAveragePoolDef() {
  return GlobalPool<MeanOfAll>("GlobalAveragePool", 1, "The mean of each plane.")
      .AddKernel(RowKernel<MeanOfRow>());
}
OpDef GlobalMaxPoolDef() {
  return GlobalPool<MaxOfAll>("GlobalMaxPool", 1, "The largest element of each plane.")
      .AddKernel(RowKernel<MaxOfRow>());
}
OpDef GlobalLpPoolDef() {
  return GlobalPool<NormOfAll>("GlobalLpPool", 2, "(sum of |x|^p)^(1/p) of each plane.")
      .Attr("p", int64_t{2}, "the norm");
}

}  // namespace pagefuse::onnx_ops
