// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding (opset 23): rotates pairs of elements of each head by angles given as cosines and
// sines.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/newer_forms.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

using RotaryTypes = TypeList<float, Float16, Bfloat16>;

// The input as rows of one head each: row (b, s, h) at b * batch + s * step + h * head.
struct RotaryCall {
  int64_t batch_size, length, heads, size;
  int64_t batch, step, head;
  int64_t half;  // rotated pairs a row; elements from 2 * half on are copied
  bool interleaved;
  const int64_t* positions;  // [B, S] rows of the caches; null: the caches are [B, S, half]
};

absl::StatusOr<RotaryCall> RotaryCallOf(const KernelArgs& args) {
  const std::vector<int64_t>& dims = args.input(0).dims;
  PF_ASSIGN_OR_RETURN(int64_t heads, args.node->IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  const bool packed = dims.size() == 3;
  if (!packed) heads = dims[1];
  const int64_t length = packed ? dims[1] : dims[2];
  const int64_t size = packed ? dims[2] / heads : dims[3];
  RotaryCall call = {dims[0], length, heads, size, heads * length * size, 0, 0, 0, false, nullptr};
  call.step = packed ? dims[2] : size;
  call.head = packed ? size : length * size;
  call.half = args.input(1).dims.back();
  call.interleaved = interleaved != 0;
  if (args.input(3).present()) call.positions = args.input(3).as<int64_t>();
  return call;
}

template <typename T>
void RotateRow(const RotaryCall& call, const T* x, const T* cosines, const T* sines, T* y) {
  const int64_t second = call.interleaved ? 1 : call.half;
  const int64_t step = call.interleaved ? 2 : 1;
  for (int64_t i = 0; i < call.half; ++i) {
    const float a = Load(x[i * step]);
    const float b = Load(x[i * step + second]);
    const float c = Load(cosines[i]);
    const float s = Load(sines[i]);
    y[i * step] = Store<T>(a * c - b * s);
    y[i * step + second] = Store<T>(b * c + a * s);
  }
  if (x != y) std::copy(x + 2 * call.half, x + call.size, y + 2 * call.half);
}

template <typename T>
void RunTyped(const KernelArgs& args, const RotaryCall& call) {
  const T* x = args.input(0).as<T>();
  const T* cosines = args.input(1).as<T>();
  const T* sines = args.input(2).as<T>();
  T* y = args.output(0).as<T>();
  const int64_t tokens = call.batch_size * call.length;
  ParallelFor(tokens, call.heads * call.size + 1, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = call.positions == nullptr ? token : call.positions[token];
      const int64_t start = token / call.length * call.batch + token % call.length * call.step;
      for (int64_t h = 0; h < call.heads; ++h) {
        const int64_t offset = start + h * call.head;
        RotateRow(call, x + offset, cosines + row * call.half, sines + row * call.half, y + offset);
      }
    }
  });
}

absl::Status RunRotary(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const RotaryCall call, RotaryCallOf(args));
  return Dispatch(RotaryTypes(), args.input(0).dtype,
                  [&]<typename T>() { RunTyped<T>(args, call); });
}

// Input 1 or 2: [max, half] with position_ids, else [B, S, half].
absl::Status CheckCache(const ShapeContext& context, int i, const Dim& half) {
  const Shape& x = *context.input_shape(0);
  if (context.has_input(3)) {
    return ExpectShape(context, i, Shape({Dim::Symbol("positions"), half}));
  }
  return ExpectShape(context, i, Shape({x[0], x[x.rank() == 3 ? 1 : 2], half}));
}

absl::Status InferRotary(ShapeContext& context) {
  PF_RETURN_IF_ERROR(InferSameShape(context));
  const Shape* x = context.input_shape(0);
  if (x == nullptr) return absl::OkStatus();
  if (x->rank() != 3 && x->rank() != 4) {
    return context.InputError(0, StrCat("expected rank 3 or 4, got shape ", x->ToString()));
  }
  PF_ASSIGN_OR_RETURN(const int64_t heads, context.node().IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rotary, context.node().IntAttribute("rotary_embedding_dim", 0));
  if (x->rank() == 3 && heads <= 0) {
    return context.AttributeError("num_heads", "is required and positive for inputs of rank 3");
  }
  const std::optional<int64_t> width = x->back(0).constant();
  if (x->rank() == 3 && width && *width % heads != 0) {
    return context.InputError(0,
                              StrCat("width ", *width, " is not a multiple of ", heads, " heads"));
  }
  const Dim size = x->rank() == 4 ? x->back(0) : x->back(0).FloorDiv(Dim(heads));
  const Dim rotated = rotary == 0 ? size : Dim(rotary);
  const std::optional<int64_t> number = rotated.constant();
  if (number &&
      (*number < 0 || *number % 2 != 0 || (size.constant() && *number > *size.constant()))) {
    return context.AttributeError(
        "rotary_embedding_dim",
        StrCat("expected an even number up to ", size.ToString(), ", got ", *number));
  }
  PF_RETURN_IF_ERROR(CheckCache(context, 1, rotated.FloorDiv(Dim(2))));
  PF_RETURN_IF_ERROR(CheckCache(context, 2, rotated.FloorDiv(Dim(2))));
  const Shape* positions = context.input_shape(3);
  const Shape tokens({(*x)[0], (*x)[x->rank() == 3 ? 1 : 2]});
  if (positions == nullptr || MayAgree(*positions, tokens)) return absl::OkStatus();
  return context.InputError(
      3, StrCat("expected one position a token, got shape ", positions->ToString()));
}

absl::Status ValidatePositions(const KernelArgs& args) {
  const TensorArg& positions = args.input(3);
  if (!positions.present()) return absl::OkStatus();
  const int64_t rows = std::min(args.input(1).dims[0], args.input(2).dims[0]);
  for (int64_t i = 0; i < positions.size(); ++i) {
    const int64_t position = positions.as<int64_t>()[i];
    if (position >= 0 && position < rows) continue;
    return ValueError(args, 3, "position_ids",
                      StrCat("element ", i, " is ", position, ", the caches have ", rows, " rows"));
  }
  return absl::OkStatus();
}

}  // namespace

OpDef RotaryEmbeddingDef() {
  return OpDef("", "RotaryEmbedding", 23)
      .Doc(
          "Rotates pairs (a, b) of a head to (a cos - b sin, b cos + a sin). Pairs are neighbours "
          "if interleaved, else R / 2 apart, R being the part that is rotated.")
      .Input("X", "T", "[B, H, S, D] or [B, S, H * D]")
      .Input("cos_cache", "T", "[positions, R / 2], or [B, S, R / 2] without position_ids")
      .Input("sin_cache", "T", "as cos_cache")
      .Input("position_ids", "int64", "[B, S]", PortKind::kOptional)
      .Output("Y", "T", "as X")
      .FlagAttr("interleaved", int64_t{0}, "1: pairs are neighbours")
      .Attr("num_heads", int64_t{0}, "H, for inputs of rank 3")
      .Attr("rotary_embedding_dim", int64_t{0}, "R, 0: all of D")
      .Types("T", TypesOf(RotaryTypes()))
      .InferShapes(InferRotary)
      .Validate(ValidatePositions)
      .AddKernel({.name = "reference", .run = RunRotary})
      .Decomposition(RotaryBody)
      .InPlace(0, 0);
}

}  // namespace pagefuse::onnx_ops
