// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding of com.microsoft: as ai.onnx's, with tables by position and other defaults.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

absl::Status CheckHeadSize(const ShapeContext& c, const Shape& x) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, c.node().IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rotated, c.node().IntAttribute("rotary_embedding_dim", 0));
  if (heads < 0) return c.AttributeError("num_heads", StrCat("expected 0 or more, got ", heads));
  if (rotated > 0 && heads == 0 && x.rank() == 3) {
    return c.AttributeError("num_heads", "is required with rotary_embedding_dim");
  }
  const Shape* cosines = c.input_shape(2);
  if (cosines == nullptr || !(*cosines)[1].constant()) return absl::OkStatus();
  const int64_t half = *(*cosines)[1].constant();
  if (rotated > 0 && rotated != 2 * half) {
    return c.InputError(2, StrCat("expected ", rotated / 2, " pairs, got ", half));
  }
  const std::optional<int64_t> width = x.back(0).constant();
  if (!width) return absl::OkStatus();
  const int64_t parts = x.rank() == 4 ? 1 : heads;
  if (parts > 0 && (*width % parts != 0 || *width / parts < 2 * half)) {
    return c.InputError(
        0, StrCat("width ", *width, " is not ", parts, " heads of at least ", 2 * half));
  }
  if (parts == 0 && (half == 0 || *width % (2 * half) != 0)) {
    return c.InputError(0, StrCat("width ", *width, " is no multiple of ", 2 * half));
  }
  return absl::OkStatus();
}

absl::Status Infer(ShapeContext& c) {
  PF_RETURN_IF_ERROR(onnx_ops::InferSameShape(c));
  const Shape* x = c.input_shape(0);
  const Shape* cosines = c.input_shape(2);
  if (cosines != nullptr && cosines->rank() != 2) {
    return c.InputError(2, StrCat("expected rank 2, got ", cosines->ToString()));
  }
  if (cosines != nullptr) PF_RETURN_IF_ERROR(ExpectShape(c, 3, *cosines));
  if (x == nullptr) return absl::OkStatus();
  if (x->rank() != 3 && x->rank() != 4) {
    return c.InputError(0, StrCat("expected rank 3 or 4, got ", x->ToString()));
  }
  const Shape* ids = c.input_shape(1);
  const bool one = ids != nullptr && ids->rank() == 1 && !Differ((*ids)[0], Dim(1));
  if (!one) {
    PF_RETURN_IF_ERROR(ExpectShape(c, 1, Shape({(*x)[0], (*x)[x->rank() == 3 ? 1 : 2]})));
  }
  return CheckHeadSize(c, *x);
}

absl::Status Validate(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  const TensorArg& ids = args.input(1);
  const int64_t rows = args.input(2).dims[0], length = dims[dims.size() - 2];
  const int64_t tokens = ids.size() == 1 ? length : ids.size();
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t first = IntAt(ids, ids.size() == 1 ? 0 : i);
    // A place that is out of range already may be too large to be counted on from.
    const int64_t position = ids.size() == 1 && first <= rows ? first + i : first;
    if (position >= 0 && position < rows) continue;
    return ValueError(
        args, "input 1 \"position_ids\"",
        StrCat("position ", position, " is not in the ", rows, " rows of the caches"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const Value* x = node.input(0);
  const Value* ids = node.input(1);
  const Value* cosines = node.input(2);
  if (!x->shape() || !ids->shape() || !cosines->shape()) {
    return absl::FailedPreconditionError("ranks of the inputs are not known");
  }
  const bool packed = x->shape()->rank() == 3;
  PF_ASSIGN_OR_RETURN(int64_t heads, node.IntAttribute("num_heads", 0));
  if (packed && heads == 0) {
    const auto width = x->shape()->back(0).constant();
    const auto half = (*cosines->shape())[1].constant();
    if (!width || !half) return absl::FailedPreconditionError("number of heads is not known");
    heads = *width / (2 * *half);
  }
  std::string text = "RotaryEmbedding (input, position_ids, cos_cache, sin_cache) => (output) {\n";
  if (ids->shape()->rank() == 1) {
    // Positions count from the one that is given.
    const int length = packed ? 1 : 2;
    StrAppend(
        &text, "  sizes = Shape (input)\n  batch = Shape <end = 1> (input)\n",
        "  index = Constant <value_int: int = ", length, "> ()\n",
        "  length = Gather (sizes, index)\n  zero = Constant <value_int: int = 0> ()\n",
        "  one = Constant <value_int: int = 1> ()\n  steps = Range (zero, length, one)\n",
        "  shifted = Add (steps, position_ids)\n  first = Constant <value_ints: ints = [0]> ()\n",
        "  row = Unsqueeze (shifted, first)\n  many = Shape (row)\n",
        "  last = Gather (many, one)\n  last_1 = Unsqueeze (last, first)\n",
        "  grid = Concat <axis = 0> (batch, last_1)\n  ids = Expand (row, grid)\n");
  } else {
    text += "  ids = Identity (position_ids)\n";
  }
  const std::optional<int64_t> half = (*cosines->shape())[1].constant();
  if (!half) return absl::FailedPreconditionError("the rotated part is not known");
  // To ai.onnx no channels means all.
  StrAppend(&text,
            *half == 0 ? "  turned = Identity (input)\n"
                       : StrCat("  turned = ai.onnx.RotaryEmbedding <interleaved = @interleaved, "
                                "num_heads = ",
                                packed ? heads : 0, ", rotary_embedding_dim = ", 2 * *half,
                                "> (input, cos_cache, sin_cache, ids)\n"),
            "  factor = Constant <value_float = @scale> ()\n",
            "  typed = CastLike (factor, turned)\n  output = Mul (turned, typed)\n}");
  return text;
}

}  // namespace

OpDef RotaryEmbeddingDef() {
  return OpDef("com.microsoft", "RotaryEmbedding", /*since=*/1)
      .Doc(
          "Rotates pairs (a, b) of a head to (a cos - b sin, b cos + a sin), times scale. Pairs "
          "are neighbours if interleaved, else R / 2 apart; channels from R on stay.")
      .Input("input", "T", "[B, H, S, D] or [B, S, H * D]")
      .Input("position_ids", "int64", "[B, S], or [1]: of the first token", PortKind::kRequired,
             PortRole::kMetadata)
      .Input("cos_cache", "T", "[positions, R / 2]")
      .Input("sin_cache", "T", "[positions, R / 2]")
      .Output("output", "T", "as input")
      .FlagAttr("interleaved", int64_t{0}, "1: pairs are neighbours")
      .Attr("num_heads", int64_t{0}, "H of a rank 3 input, 0: D is R")
      .Attr("rotary_embedding_dim", int64_t{0}, "R, 0: as the caches say")
      .Attr("scale", 1.0f, "factor of the result")
      .Attr("is_packed_batching", int64_t{0}, "a hint: shapes are the same either way")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose);
}

}  // namespace pagefuse::microsoft_ops
