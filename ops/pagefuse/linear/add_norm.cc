// SPDX-License-Identifier: Apache-2.0
// AddNorm: the norm of a branch added to the residual, and the norm of that sum: all that stands
// between the products of two branches where each is normed before it is added. By definition the
// composition of RMSNormalization, Add and RMSNormalization, each rounded to the type.
#include <cmath>
#include <cstdint>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

using Doubles = std::vector<double>;

constexpr Ports kIn({
    {"x", "T", "[..., N]"},
    {"residual", "T", "[..., N]"},
    {"x_weight", "T", "[N]"},
    {"weight", "T", "[N]"},
});
constexpr Ports kOut({{"sum", "T", "[..., N]"}, {"y", "T", "[..., N]"}});
constexpr float kEpsilon = 1e-5f;
constexpr char kBody[] = R"(AddNorm (x, residual, x_weight, weight) => (sum, y) {
  branch = RMSNormalization <axis = -1, epsilon: float = @x_epsilon> (x, x_weight)
  sum = Add (residual, branch)
  y = RMSNormalization <axis = -1, epsilon: float = @epsilon> (sum, weight)
})";

struct Call {
  int64_t rows = 0, n = 0;
  float x_epsilon = 0, epsilon = 0;

  static absl::StatusOr<Call> Of(const KernelArgs& args) {
    const TensorArg& x = args.input(kIn["x"]);
    Call call{.n = x.dim(-1)};
    call.rows = call.n == 0 ? 0 : x.size() / call.n;
    PF_ASSIGN_OR_RETURN(call.x_epsilon, args.node->FloatAttribute("x_epsilon", kEpsilon));
    PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", kEpsilon));
    return call;
  }
};

void Norm(const Doubles& weight, float epsilon, Doubles& row) {
  double squares = 0;
  for (const double value : row) squares += value * value;
  const auto n = static_cast<double>(row.size());
  const double inverse = 1.0 / std::sqrt(squares / n + static_cast<double>(epsilon));
  for (size_t i = 0; i < row.size(); ++i) row[i] *= inverse * weight[i];
}

// The formula in double; what `tensor` has of it from `start` on.
absl::Status RoundTo(const TensorArg& tensor, int64_t start, Doubles& row) {
  PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(row, tensor, start));
  return DecodeToDouble(tensor.dtype, onnx_ops::ElementAt(tensor, start),
                        static_cast<int64_t>(row.size()), row.data());
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, Call::Of(args));
  const TensorArg &x = args.input(kIn["x"]), &residual = args.input(kIn["residual"]);
  const TensorArg &sum = args.output(kOut["sum"]), &y = args.output(kOut["y"]);
  PF_ASSIGN_OR_RETURN(const Doubles x_weight,
                      onnx_ops::DecodedDoubles(args.input(kIn["x_weight"])));
  PF_ASSIGN_OR_RETURN(const Doubles weight, onnx_ops::DecodedDoubles(args.input(kIn["weight"])));
  Doubles row(static_cast<size_t>(call.n)), added(static_cast<size_t>(call.n));
  for (int64_t r = 0; r < call.rows; ++r) {
    const int64_t start = r * call.n;
    PF_RETURN_IF_ERROR(DecodeToDouble(x.dtype, onnx_ops::ElementAt(x, start), call.n, row.data()));
    PF_RETURN_IF_ERROR(
        DecodeToDouble(residual.dtype, onnx_ops::ElementAt(residual, start), call.n, added.data()));
    Norm(x_weight, call.x_epsilon, row);
    PF_RETURN_IF_ERROR(RoundTo(y, start, row));  // until the row's result comes there
    for (size_t i = 0; i < row.size(); ++i) row[i] += added[i];
    PF_RETURN_IF_ERROR(RoundTo(sum, start, row));
    Norm(weight, call.epsilon, row);
    PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(row, y, start));
  }
  return absl::OkStatus();
}

// y = x / sqrt(mean of its squares + epsilon) * weight, as RMSNormalization computes it.
void NormRow(const float* x, const float* weight, float epsilon, float* y, int64_t n) {
  const float mean = onnx_ops::SumOfSquaresOfRow(x, n) / static_cast<float>(n);
  onnx_ops::ScaleRow(x, 1.0f / std::sqrt(mean + epsilon), weight, y, n);
}

// The row loops of the three ops, one behind the other while a row is in cache: their bits.
absl::Status RunHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, Call::Of(args));
  const auto* x = args.input(kIn["x"]).as<float>();
  const auto* residual = args.input(kIn["residual"]).as<float>();
  const auto* x_weight = args.input(kIn["x_weight"]).as<float>();
  const auto* weight = args.input(kIn["weight"]).as<float>();
  auto* sum = args.output(kOut["sum"]).as<float>();
  auto* y = args.output(kOut["y"]).as<float>();
  const int64_t n = call.n, row_bytes = 5 * n * static_cast<int64_t>(sizeof(float));
  ParallelFor(call.rows, row_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * n; at < end * n; at += n) {
      NormRow(x + at, x_weight, call.x_epsilon, y + at, n);
      onnx_ops::AddRow({residual + at, 1, y + at, 1}, sum + at, n);
      NormRow(sum + at, weight, call.epsilon, y + at, n);
    }
  });
  return absl::OkStatus();
}

}  // namespace

OpDef AddNormDef() {
  return OpDef("pagefuse", "AddNorm", /*since=*/1)
      .Doc(
          "sum = residual + norm(x) * x_weight; y = norm(sum) * weight, where norm(a) is a / "
          "sqrt(mean(a^2) + epsilon) over the last axis. norm(x) * x_weight and sum are rounded to "
          "T.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("x_epsilon", kEpsilon, "of the norm of x, added to the mean square")
      .Attr("epsilon", kEpsilon, "of the norm of the sum")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Decomposition(kBody)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = RunHwy})
      .InPlace(kOut["sum"], kIn["residual"])
      .InPlace(kOut["y"], kIn["x"]);
}

}  // namespace pagefuse::pagefuse_ops
