// SPDX-License-Identifier: Apache-2.0
// Transpose: axes in another order.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

// The attribute "perm", the reverse order by default.
absl::StatusOr<std::vector<int64_t>> Permutation(const Node& node, int rank) {
  std::vector<int64_t> reversed(rank);
  for (int i = 0; i < rank; ++i) reversed[i] = rank - 1 - i;
  return node.IntsAttribute("perm", std::move(reversed));
}

absl::Status InferTranspose(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return InferLikeInput(c);
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, Permutation(c.node(), x->rank()));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool valid = static_cast<int>(perm.size()) == x->rank();
  for (int i = 0; valid && i < x->rank(); ++i) valid = sorted[i] == i;
  if (!valid) {
    return c.AttributeError(
        "perm", absl::StrCat(DimsToString(perm), " is no order of the axes of ", x->ToString()));
  }
  std::vector<Dim> dims;
  for (int64_t axis : perm) dims.push_back((*x)[static_cast<int>(axis)]);
  c.SetOutput(0, c.input_type(0), Shape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status RunTranspose(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> perm,
                      Permutation(*args.node, static_cast<int>(x.dims.size())));
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  StridedBox box{y.dims, {}, RowMajorStrides(y.dims)};
  for (int64_t axis : perm) box.from_strides.push_back(strides[axis]);
  return MoveElements(args, [&](int64_t element_size, const char* from, char* to) {
    CopyBox(box, element_size, from, to);
  });
}

}  // namespace

OpDef TransposeDef() {
  return OpDef("", "Transpose", 1)
      .Doc("Output axis i is input axis perm[i]; the axes in reverse order by default.")
      .Input("data", "T")
      .Output("transposed", "T")
      .Attr("perm", std::monostate(), "reverse order if absent")
      .Types("T", AllTypes())
      .InferShapes(InferTranspose)
      .AddKernel({.name = "reference", .run = RunTranspose});
}

}  // namespace pagefuse::onnx_ops
