// SPDX-License-Identifier: Apache-2.0
// FlexAttention (ai.onnx.preview): attention whose scores and probabilities pass through graphs.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/bodies.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// The type of scores and probabilities.
absl::StatusOr<DataType> ScoreType(const Node& node, DataType query) {
  const DataType otherwise = query == DataType::kDouble ? query : DataType::kFloat;
  PF_ASSIGN_OR_RETURN(const int64_t code, node.IntAttribute("softmax_precision", 0));
  if (code == 0) return otherwise;
  const auto type = static_cast<DataType>(code);
  for (DataType known : TypesOf(Floats())) {
    if (type == known) return type;
  }
  return AttributeError(node, "softmax_precision", StrCat(code, " is no float type"));
}

void BindFlex(const ShapeContext& c, Graph& body) {
  const absl::StatusOr<DataType> type = ScoreType(c.node(), c.input_type(0));
  if (!type.ok() || body.inputs().empty()) return;
  Value* input = body.inputs()[0];
  if (input->dtype() == DataType::kUndefined) input->set_dtype(*type);
}

absl::Status InferFlex(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ScoreType(c.node(), c.input_type(0)).status());
  for (const char* name : {"score_mod", "prob_mod"}) {
    if (c.node().attribute(name) == nullptr) continue;
    PF_RETURN_IF_ERROR(BodyOf(c.node(), name, {1, 1}).status());
  }
  const Shape* q = c.input_shape(0);
  const Shape* k = c.input_shape(1);
  const Shape* v = c.input_shape(2);
  std::optional<Shape> y;
  for (int i = 0; i < 3; ++i) {
    const Shape* shape = c.input_shape(i);
    if (shape != nullptr && shape->rank() != 4) {
      return c.InputError(i, StrCat("expected rank 4, got shape ", shape->ToString()));
    }
  }
  if (q != nullptr && k != nullptr && v != nullptr) {
    if (Differ((*q)[0], (*k)[0]) || Differ((*q)[3], (*k)[3])) {
      return c.InputError(
          1, StrCat("shape ", k->ToString(), " does not fit queries of ", q->ToString()));
    }
    if (Differ((*k)[0], (*v)[0]) || Differ((*k)[1], (*v)[1]) || Differ((*k)[2], (*v)[2])) {
      return c.InputError(2,
                          StrCat("shape ", v->ToString(), " does not fit keys of ", k->ToString()));
    }
    const auto q_heads = (*q)[1].constant();
    const auto kv_heads = (*k)[1].constant();
    if (q_heads && kv_heads && (*kv_heads == 0 || *q_heads % *kv_heads != 0)) {
      return c.InputError(
          1, StrCat(*kv_heads, " heads do not divide ", *q_heads, " heads of queries"));
    }
    y = Shape({(*q)[0], (*q)[1], (*q)[2], (*v)[3]});
  }
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

using Doubles = std::vector<double>;

absl::StatusOr<Doubles> Decode(const Tensor& tensor) {
  Doubles values(static_cast<size_t>(tensor.size()));
  PF_RETURN_IF_ERROR(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()));
  return values;
}

absl::StatusOr<Tensor> Encode(DataType type, std::vector<int64_t> dims, const Doubles& values) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, std::move(dims)));
  const TensorArg arg{tensor.dtype(), tensor.dims(), tensor.mutable_data()};
  PF_RETURN_IF_ERROR(EncodeDoubles(values, arg, 0));
  return tensor;
}

// Products of matrices: for each of `count` heads of the left side, [rows, inner] by the matrix of
// its group on the right, [inner, columns].
struct Product {
  int64_t count = 0, group = 1, rows = 0, inner = 0, columns = 0;
  bool transposed = false;  // the right side is [columns, inner]
};

void MultiplyRow(const Product& p, const double* left, const double* right, double* y) {
  for (int64_t c = 0; c < p.columns; ++c) {
    double sum = 0;
    for (int64_t i = 0; i < p.inner; ++i) {
      sum += left[i] * right[p.transposed ? c * p.inner + i : i * p.columns + c];
    }
    y[c] = sum;
  }
}

Doubles Multiply(const Product& p, const Doubles& a, const Doubles& b) {
  Doubles y(static_cast<size_t>(p.count * p.rows * p.columns));
  ParallelFor(p.count * p.rows, p.inner * p.columns + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t matrix = row / p.rows / p.group;
      MultiplyRow(p, a.data() + row * p.inner, b.data() + matrix * p.inner * p.columns,
                  y.data() + row * p.columns);
    }
  });
  return y;
}

void Softmax(int64_t columns, Doubles& values) {
  for (size_t start = 0; start < values.size(); start += columns) {
    double* row = values.data() + start;
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < columns; ++i) max = std::max(max, row[i]);
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += row[i] = std::exp(row[i] - max);
    for (int64_t i = 0; i < columns; ++i) row[i] /= sum;
  }
}

// The tensor after the graph that is attribute `name`, if there is one.
absl::StatusOr<Tensor> Modify(const Node& node, const char* name, const BodyRunner& run,
                              Tensor tensor) {
  if (node.attribute(name) == nullptr) return tensor;
  PF_ASSIGN_OR_RETURN(const Graph* body, BodyOf(node, name, {1, 1}));
  const std::vector<int64_t> dims = tensor.dims();
  const DataType type = tensor.dtype();
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, RunBody(node, run, *body, {tensor}));
  if (results[0].dtype() == type && results[0].dims() == dims) return results[0];
  return AttributeError(node, name,
                        StrCat("expected ", DataTypeName(type), DimsToString(dims), ", got ",
                               DataTypeName(results[0].dtype()), DimsToString(results[0].dims())));
}

absl::StatusOr<std::vector<Tensor>> RunFlex(const Node& node, const std::vector<Tensor>& inputs,
                                            const BodyRunner& run) {
  const std::vector<int64_t>& q = inputs[0].dims();
  const std::vector<int64_t>& k = inputs[1].dims();
  const std::vector<int64_t>& v = inputs[2].dims();
  PF_ASSIGN_OR_RETURN(const DataType type, ScoreType(node, inputs[0].dtype()));
  PF_ASSIGN_OR_RETURN(const float attribute, node.FloatAttribute("scale", 0.0f));
  const double scale = node.attribute("scale") != nullptr
                           ? static_cast<double>(attribute)
                           : 1.0 / std::sqrt(static_cast<double>(q[3]));
  PF_ASSIGN_OR_RETURN(Doubles queries, Decode(inputs[0]));
  PF_ASSIGN_OR_RETURN(const Doubles keys, Decode(inputs[1]));
  PF_ASSIGN_OR_RETURN(const Doubles values, Decode(inputs[2]));
  for (double& element : queries) element *= scale;
  const int64_t heads = q[0] * q[1];
  const int64_t group = k[1] == 0 ? 1 : q[1] / k[1];
  const Doubles scores = Multiply({heads, group, q[2], q[3], k[2], true}, queries, keys);
  PF_ASSIGN_OR_RETURN(Tensor tensor, Encode(type, {q[0], q[1], q[2], k[2]}, scores));
  PF_ASSIGN_OR_RETURN(tensor, Modify(node, "score_mod", run, std::move(tensor)));
  PF_ASSIGN_OR_RETURN(Doubles probabilities, Decode(tensor));
  Softmax(std::max<int64_t>(k[2], 1), probabilities);
  PF_ASSIGN_OR_RETURN(tensor, Encode(type, tensor.dims(), probabilities));
  PF_ASSIGN_OR_RETURN(tensor, Modify(node, "prob_mod", run, std::move(tensor)));
  PF_ASSIGN_OR_RETURN(probabilities, Decode(tensor));
  const Doubles y = Multiply({heads, group, q[2], k[2], v[3], false}, probabilities, values);
  PF_ASSIGN_OR_RETURN(Tensor result, Encode(inputs[0].dtype(), {q[0], q[1], q[2], v[3]}, y));
  return std::vector<Tensor>{std::move(result)};
}

}  // namespace

OpDef FlexAttentionDef() {
  return OpDef("ai.onnx.preview", "FlexAttention", 1)
      .Bodies({RunFlex, BindFlex})
      .Doc(
          "prob_mod(softmax(score_mod(scale Q K^T))) V. The graphs see all scores, [B, Hq, L, S], "
          "in the type of the softmax.")
      .Input("Q", "T", "[B, Hq, L, E]")
      .Input("K", "T", "[B, Hk, S, E]")
      .Input("V", "T", "[B, Hk, S, Ev]")
      .Output("Y", "T", "[B, Hq, L, Ev]")
      .Attr("prob_mod", {}, "graph of one input and one output")
      .Attr("scale", {}, "1 / sqrt(E) if not given")
      .Attr("score_mod", {}, "graph of one input and one output")
      .Attr("softmax_precision", int64_t{0}, "type of the softmax, 0: float, or double as Q is")
      .Types("T", TypesOf(Floats()))
      .InferShapes(InferFlex);
}

}  // namespace pagefuse::onnx_ops
