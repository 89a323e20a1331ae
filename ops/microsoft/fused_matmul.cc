// SPDX-License-Identifier: Apache-2.0
// FusedMatMul: MatMul with transposed operands and a factor.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr const char* kBatch[] = {"transBatchA", "transBatchB"};

// Whether the rows of an operand lie before its batch dims.
absl::StatusOr<bool> RowsFirst(const Node& node, int side) {
  PF_ASSIGN_OR_RETURN(const int64_t value, node.IntAttribute(kBatch[side], 0));
  return value != 0;
}

// The axes of an operand in the order in which it is multiplied, but for transA and transB.
std::vector<int> AxesOf(int rank, bool rows_first) {
  std::vector<int> axes(rank);
  for (int i = 0; i < rank; ++i) axes[i] = i;
  if (rows_first) std::rotate(axes.begin(), axes.begin() + 1, axes.end() - 1);
  return axes;
}

// The shape of an operand with its batch dims in front. `moved`: set where they were not.
absl::StatusOr<Shape> BatchFirst(const ShapeContext& c, int side, bool& moved) {
  const Shape& given = *c.input_shape(side);
  PF_ASSIGN_OR_RETURN(const bool rows_first, RowsFirst(c.node(), side));
  if (!rows_first) return given;
  moved = true;
  if (given.rank() < 3 || given.rank() != c.input_shape(1 - side)->rank()) {
    return c.AttributeError(
        kBatch[side], StrCat("expected operands of one rank from 3 on, got ",
                             c.input_shape(0)->ToString(), " and ", c.input_shape(1)->ToString()));
  }
  Shape shape;
  for (const int axis : AxesOf(given.rank(), true)) shape.dims().push_back(given[axis]);
  return shape;
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(c.node()));
  if (c.input_shape(0) == nullptr || c.input_shape(1) == nullptr) return InferProduct(c, spec);
  bool moved = false;
  PF_ASSIGN_OR_RETURN(const Shape a, BatchFirst(c, 0, moved));
  PF_ASSIGN_OR_RETURN(const Shape b, BatchFirst(c, 1, moved));
  if (!moved) return InferProduct(c, spec);
  if (Differ(a.back(spec.trans_a ? 1 : 0), b.back(spec.trans_b ? 0 : 1))) {
    return c.Error(StrCat("with their batch dims in front, ", a.ToString(), " and ", b.ToString(),
                          " do not multiply"));
  }
  PF_ASSIGN_OR_RETURN(Shape y, ProductShape(c, spec, a, b));
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

// "  left = Transpose <perm = [0, 2, 1]> (A)", or nothing where the operand is multiplied as it is.
std::string TransposeLine(const std::string& result, const std::string& operand, const Shape& shape,
                          bool rows_first, bool transposed) {
  if (!rows_first && !transposed) return "";
  std::vector<int> perm = AxesOf(shape.rank(), rows_first);
  if (transposed) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return absl::StrCat("  ", result, " = Transpose <perm = [", absl::StrJoin(perm, ", "), "]> (",
                      operand, ")\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(node));
  const Value* a = node.input(0);
  const Value* b = node.input(1);
  if (a == nullptr || b == nullptr || !a->shape() || !b->shape()) {
    return absl::FailedPreconditionError("ranks of the inputs are not known");
  }
  PF_ASSIGN_OR_RETURN(const bool a_rows_first, RowsFirst(node, 0));
  PF_ASSIGN_OR_RETURN(const bool b_rows_first, RowsFirst(node, 1));
  const std::string turn_a = TransposeLine("left", "A", *a->shape(), a_rows_first, spec.trans_a);
  const std::string turn_b = TransposeLine("right", "B", *b->shape(), b_rows_first, spec.trans_b);
  const char* left = turn_a.empty() ? "A" : "left";
  const char* right = turn_b.empty() ? "B" : "right";
  std::string body = turn_a + turn_b;
  if (spec.alpha == 1.0f) {
    absl::StrAppend(&body, "  Y = MatMul (", left, ", ", right, ")\n");
  } else {
    absl::StrAppend(&body, "  product = MatMul (", left, ", ", right, ")\n",
                    "  factor = Constant <value_float = @alpha> ()\n",
                    "  typed = CastLike (factor, product)\n", "  Y = Mul (product, typed)\n");
  }
  return absl::StrCat("FusedMatMul (A, B) => (Y) {\n", body, "}");
}

// An operand with its batch dims in front: as it is, or copied to `memory`.
TensorArg BatchFirst(const TensorArg& given, bool rows_first, std::vector<char>& memory) {
  if (!rows_first) return given;
  TensorArg moved = given;
  std::rotate(moved.dims.begin(), moved.dims.begin() + 1, moved.dims.end() - 1);
  const int64_t row = moved.dims.back() * BitWidth(given.dtype) / 8;
  const int64_t rows = given.dims[0];
  const int64_t batch = rows == 0 || row == 0 ? 0 : given.size() / rows / moved.dims.back();
  memory.resize(static_cast<size_t>(batch * rows * row));
  const char* from = given.as<const char>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < batch; ++b, from += row) {
      std::memcpy(memory.data() + (b * rows + r) * row, from, static_cast<size_t>(row));
    }
  }
  moved.data = memory.data();
  return moved;
}

template <auto kRun>
absl::Status WithSpec(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  PF_ASSIGN_OR_RETURN(const bool a_rows_first, RowsFirst(*args.node, 0));
  PF_ASSIGN_OR_RETURN(const bool b_rows_first, RowsFirst(*args.node, 1));
  if (!a_rows_first && !b_rows_first) return kRun(args, spec);
  std::vector<char> a, b;
  KernelArgs moved = args;
  moved.inputs = {BatchFirst(args.input(0), a_rows_first, a),
                  BatchFirst(args.input(1), b_rows_first, b)};
  return kRun(moved, spec);
}

}  // namespace

OpDef FusedMatMulDef() {
  return OpDef("com.microsoft", "FusedMatMul", /*since=*/1)
      .Doc(
          "alpha * op(A) * op(B) as numpy.matmul; op moves the first dim behind the batch dims, then "
          "swaps the last two dims, where asked for.")
      .Input("A", "T", "[..., M, K]; [..., K, M] if transA; its rows first if transBatchA")
      .Input("B", "T", "[..., K, N]; [..., N, K] if transB; its rows first if transBatchB")
      .Output("Y", "T", "[..., M, N]")
      .Attr("alpha", 1.0f, "factor of the product")
      .Attr("transA", int64_t{0}, "1: swap the last two dims of A")
      .Attr("transB", int64_t{0}, "1: swap the last two dims of B")
      .Attr("transBatchA", int64_t{0}, "1: the batch dims of A lie between its last two dims")
      .Attr("transBatchB", int64_t{0}, "1: the batch dims of B lie between its last two dims")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16, DataType::kDouble})
      .InferShapes(Infer)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = WithSpec<ReferenceProduct>})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .run = WithSpec<LinearProduct>});
}

}  // namespace pagefuse::microsoft_ops
