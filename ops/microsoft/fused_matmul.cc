// FusedMatMul: MatMul with transposed operands and a factor.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::microsoft_ops {
namespace {

absl::Status Infer(ShapeContext& c) {
  for (const char* name : {"transBatchA", "transBatchB"}) {
    PF_ASSIGN_OR_RETURN(const int64_t value, c.node().IntAttribute(name, 0));
    if (value != 0) return c.AttributeError(name, "is only supported as 0");
  }
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(c.node()));
  return InferProduct(c, spec);
}

// "t = Transpose <perm = [0, 2, 1]> (x)", for an operand of this rank.
std::string TransposeLast(const std::string& result, const std::string& operand, int rank) {
  std::vector<int> perm(rank);
  for (int i = 0; i < rank; ++i) perm[i] = i;
  std::swap(perm[rank - 1], perm[rank - 2]);
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
  std::string body;
  if (spec.trans_a) absl::StrAppend(&body, TransposeLast("left", "A", a->shape()->rank()));
  if (spec.trans_b) absl::StrAppend(&body, TransposeLast("right", "B", b->shape()->rank()));
  const char* left = spec.trans_a ? "left" : "A";
  const char* right = spec.trans_b ? "right" : "B";
  if (spec.alpha == 1.0f) {
    absl::StrAppend(&body, "  Y = MatMul (", left, ", ", right, ")\n");
  } else {
    absl::StrAppend(&body, "  product = MatMul (", left, ", ", right, ")\n",
                    "  factor = Constant <value_float = @alpha> ()\n",
                    "  typed = CastLike (factor, product)\n", "  Y = Mul (product, typed)\n");
  }
  return absl::StrCat("FusedMatMul (A, B) => (Y) {\n", body, "}");
}

template <auto kRun>
absl::Status WithSpec(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  return kRun(args, spec);
}

}  // namespace

OpDef FusedMatMulDef() {
  return OpDef("com.microsoft", "FusedMatMul", /*since=*/1)
      .Doc("alpha * op(A) * op(B) as numpy.matmul; op swaps the last two dims where asked for.")
      .Input("A", "T", "[..., M, K]; [..., K, M] if transA")
      .Input("B", "T", "[..., K, N]; [..., N, K] if transB")
      .Output("Y", "T", "[..., M, N]")
      .Attr("alpha", 1.0f, "factor of the product")
      .Attr("transA", int64_t{0}, "1: swap the last two dims of A")
      .Attr("transB", int64_t{0}, "1: swap the last two dims of B")
      .Attr("transBatchA", int64_t{0}, "only 0")
      .Attr("transBatchB", int64_t{0}, "only 0")
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
