// SPDX-License-Identifier: Apache-2.0
// ScatterElements and ScatterND: a copy of the data with updates written to picked places.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/strided_loop.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- reductions ---

enum class Reduction { kNone, kAdd, kMul, kMax, kMin };

absl::StatusOr<Reduction> ReductionOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("reduction", "none"));
  constexpr std::string_view kNames[] = {"none", "add", "mul", "max", "min"};
  const auto* known = std::find(std::begin(kNames), std::end(kNames), std::string_view(name));
  if (known != std::end(kNames)) return static_cast<Reduction>(known - std::begin(kNames));
  return AttributeError(node, "reduction", StrCat("\"", name, "\" is not known"));
}

// What becomes of an element where an update falls on it; narrow floats are computed as float.
template <typename T>
using ReduceFn = T (*)(T old_value, T update);

template <typename T>
ReduceFn<T> FindReduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return [](T, T b) { return b; };
    case Reduction::kAdd:
      return [](T a, T b) {
        return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
      };
    case Reduction::kMul:
      return [](T a, T b) {
        return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
      };
    case Reduction::kMax:
      return [](T a, T b) { return static_cast<Wide<T>>(a) < static_cast<Wide<T>>(b) ? b : a; };
    case Reduction::kMin:
      break;
  }
  return [](T a, T b) { return static_cast<Wide<T>>(b) < static_cast<Wide<T>>(a) ? b : a; };
}

absl::Status Supports(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(*query.node));
  const Value* data = query.node->input(0);
  if (reduction == Reduction::kNone || data == nullptr || data->dtype() == DataType::kUndefined) {
    return absl::OkStatus();
  }
  if (data->dtype() != DataType::kBool && BitWidth(data->dtype()) <= 64 &&
      data->dtype() != DataType::kComplex64) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("bool and complex elements are not reduced");
}

// Writes runs of `run` elements: update k goes to `target(k)`, by the node's reduction, in order.
template <typename F>
absl::Status Scatter(KernelArgs& args, int64_t run, const F& target) {
  PF_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(*args.node));
  const TensorArg& updates = args.input(2);
  const TensorArg& y = args.output(0);
  const int64_t count = run == 0 ? 0 : updates.size() / run;
  PF_RETURN_IF_ERROR(CopyBytes(args));
  if (reduction == Reduction::kNone) {
    const int64_t bytes = run * ElementSize(y.dtype);
    for (int64_t k = 0; k < count; ++k) {
      std::memcpy(y.as<char>() + target(k) * ElementSize(y.dtype), updates.as<char>() + k * bytes,
                  bytes);
    }
    return absl::OkStatus();
  }
  return DispatchType(y.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      const ReduceFn<T> reduce = FindReduction<T>(reduction);
      for (int64_t k = 0; k < count; ++k) {
        T* to = y.as<T>() + target(k);
        const T* from = updates.as<T>() + k * run;
        for (int64_t i = 0; i < run; ++i) to[i] = reduce(to[i], from[i]);
      }
    }
  });
}

// A list of sizes of which some are replaced, each by an update of its own: exporters write into what
// Shape gives so. Where an index is there twice, the last update stays, as Scatter has it.
void ScatterContents(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const auto reduction = ReductionOf(c.node());
  if (x == nullptr || x->rank() != 1 || !reduction.ok() || *reduction != Reduction::kNone) return;
  std::optional<std::vector<Dim>> value = c.carried_value(0);
  const std::optional<std::vector<Dim>> updates = c.carried_value(2);
  const Tensor* index = c.carried_tensor(1);
  const auto indices = index == nullptr
                           ? absl::StatusOr<std::vector<int64_t>>(absl::NotFoundError("not known"))
                           : IntegerValues(*index);
  if (!value || !updates || !indices.ok() || indices->size() != updates->size()) return;
  const auto size = static_cast<int64_t>(value->size());
  for (size_t i = 0; i < indices->size(); ++i) {
    const int64_t place = (*indices)[i];
    if (place < -size || place >= size) return;
    (*value)[FromFront(place, size)] = (*updates)[i];
  }
  c.SetOutputValue(0, *std::move(value));
}

// --- ScatterElements ---

absl::Status InferScatterElements(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ReductionOf(c.node()).status());
  PF_RETURN_IF_ERROR(CheckElementIndices(c));
  const Shape* indices = c.input_shape(1);
  const Shape* updates = c.input_shape(2);
  if (indices != nullptr && updates != nullptr) {
    const std::optional<std::vector<int64_t>> a = indices->constant();
    const std::optional<std::vector<int64_t>> b = updates->constant();
    if (indices->rank() != updates->rank() || (a && b && *a != *b)) {
      return c.InputError(
          2, absl::StrCat("expected shape ", indices->ToString(), ", got ", updates->ToString()));
    }
  }
  ScatterContents(c);
  return InferLikeInput(c);
}

absl::Status RunScatterElements(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(*args.node, x.dims, 0));
  const std::vector<int64_t> indices = IndexValues(args.input(1));
  std::vector<int64_t> strides = RowMajorStrides(x.dims);
  const int64_t along = strides[axis];
  strides[axis] = 0;
  std::vector<int64_t> targets(indices.size());
  const auto count = static_cast<int64_t>(indices.size());
  int64_t k = 0;
  ForEachPoint<1>(args.input(1).dims, {strides}, {0, count}, [&](const auto& offset) {
    targets[k] = offset[0] + FromFront(indices[k], x.dims[axis]) * along;
    ++k;
  });
  return Scatter(args, 1, [&](int64_t update) { return targets[update]; });
}

// --- ScatterND ---

absl::Status CheckUpdates(const ShapeContext& c, int64_t depth) {
  const Shape& x = *c.input_shape(0);
  const Shape& indices = *c.input_shape(1);
  std::vector<Dim> dims(indices.dims().begin(), indices.dims().end() - 1);
  dims.insert(dims.end(), x.dims().begin() + depth, x.dims().end());
  return ExpectShape(c, 2, Shape(std::move(dims)));
}

absl::Status InferScatterND(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ReductionOf(c.node()).status());
  const Shape* x = c.input_shape(0);
  const Shape* indices = c.input_shape(1);
  if (indices != nullptr && indices->rank() == 0) return c.InputError(1, "expected rank 1 or more");
  if (x != nullptr && indices != nullptr && indices->back(0).is_constant()) {
    const int64_t depth = *indices->back(0).constant();
    if (depth < 1 || depth > x->rank()) {
      return c.InputError(
          1, absl::StrCat("last dim of ", indices->ToString(), " does not index ", x->ToString()));
    }
    PF_RETURN_IF_ERROR(CheckUpdates(c, depth));
  }
  ScatterContents(c);
  return InferLikeInput(c);
}

absl::Status RunScatterND(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& indices = args.input(1);
  const int64_t depth = indices.dims.back();
  const std::vector<int64_t> strides = RowMajorStrides(x.dims);
  return Scatter(args, Product(x.dims, depth, x.dims.size()), [&](int64_t update) {
    int64_t offset = 0;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t index = indices.as<int64_t>()[update * depth + i];
      offset += FromFront(index, x.dims[i]) * strides[i];
    }
    return offset;
  });
}

OpDef ScatterElementsAs(const char* name, int since) {
  return OpDef("", name, since)
      .Doc(
          "A copy of the data with y[i][indices[i][j][k]][k] = updates[i][j][k] for axis 1, and so "
          "on; with a reduction (opset 16, 18) the update is combined with what is there.")
      .Input("data", "T")
      .Input("indices", "Tind")
      .Input("updates", "T", "as indices")
      .Output("output", "T", "as data")
      .Attr("axis", int64_t{0})
      .Attr("reduction", "none", "none, add, mul, max, min")
      .Types("T", WideTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferScatterElements)
      .Validate(CheckAxisIndices)
      .InPlace(0, 0)
      .AddKernel({.name = "reference", .supports = Supports, .run = RunScatterElements});
}

}  // namespace

OpDef ScatterElementsDef() { return ScatterElementsAs("ScatterElements", 11); }

// What ScatterElements was called up to opset 10.
OpDef ScatterDef() { return ScatterElementsAs("Scatter", 9); }

OpDef ScatterNDDef() {
  return OpDef("", "ScatterND", 11)
      .Doc(
          "A copy of the data with slices written where the tuples in the last dim of the indices "
          "say; later updates win, "
          "or are combined with what is there by the reduction (opset 16, 18).")
      .Input("data", "T")
      .Input("indices", "int64", "[..., depth]")
      .Input("updates", "T")
      .Output("output", "T", "as data")
      .Attr("reduction", "none", "none, add, mul, max, min")
      .Types("T", WideTypes())
      .InferShapes(InferScatterND)
      .Validate([](const KernelArgs& args) { return CheckIndexTuples(args, 0); })
      .InPlace(0, 0)
      .AddKernel({.name = "reference", .supports = Supports, .run = RunScatterND});
}

}  // namespace pagefuse::onnx_ops
