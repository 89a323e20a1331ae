// SPDX-License-Identifier: Apache-2.0
// Compress and Unique: slices along an axis that are picked by a condition, or differ.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::onnx_ops {
namespace {

// A tensor as [outer, n, inner] around an axis; flattened, [1, n, 1].
struct AxisView {
  int64_t outer = 1, n = 1, inner = 1;
};

absl::StatusOr<AxisView> ViewOf(const Node& node, const std::vector<int64_t>& dims) {
  if (node.attribute("axis") == nullptr) return AxisView{1, Product(dims, 0, dims.size()), 1};
  PF_ASSIGN_OR_RETURN(const int axis, AxisOf(node, dims, 0));
  return AxisView{Product(dims, 0, axis), dims[axis], Product(dims, axis + 1, dims.size())};
}

// Input 0's shape with `count` indices along the axis, or [count].
absl::StatusOr<std::optional<Shape>> PickedShape(const ShapeContext& c, const Dim& count) {
  const Shape* x = c.input_shape(0);
  if (c.node().attribute("axis") == nullptr) return Shape({count});
  if (x == nullptr) return std::nullopt;
  PF_ASSIGN_OR_RETURN(const int axis, AxisAttribute(c, x->rank(), 0));
  Shape y = *x;
  y[axis] = count;
  return y;
}

// Copies index `from[k]` of the axis to index k.
void CopyPicked(const KernelArgs& args, const AxisView& view, const std::vector<int64_t>& from) {
  const int64_t run = view.inner * ElementSize(args.input(0).dtype);
  char* to = args.output(0).as<char>();
  if (run == 0) return;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t index : from) {
      std::memcpy(to, args.input(0).as<char>() + (o * view.n + index) * run, run);
      to += run;
    }
  }
}

// --- Compress ---

absl::Status InferCompress(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  const Shape* condition = c.input_shape(1);
  if (condition != nullptr && condition->rank() != 1) {
    return c.InputError(1, StrCat("expected rank 1, got shape ", condition->ToString()));
  }
  Dim count;
  if (const Tensor* tensor = c.input_tensor(1)) {
    const auto values = tensor->values<uint8_t>();
    count = Dim(static_cast<int64_t>(
        std::ranges::count_if(values, [](uint8_t value) { return value != 0; })));
    const auto dims = x == nullptr ? std::nullopt : x->constant();
    if (dims) {
      PF_RETURN_IF_ERROR(PickedShape(c, count).status());  // the axis is one
      PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(c.node(), *dims));
      if (tensor->size() > view.n) {
        return c.InputError(1,
                            StrCat("expected at most ", view.n, " elements, got ", tensor->size()));
      }
    }
  }
  if (!count.known()) count = c.FreshDim();
  PF_ASSIGN_OR_RETURN(std::optional<Shape> y, PickedShape(c, count));
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

absl::Status RunCompress(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(*args.node, args.input(0).dims));
  std::vector<int64_t> picked;
  for (int64_t i = 0; i < args.input(1).size(); ++i) {
    if (args.input(1).as<uint8_t>()[i] != 0) picked.push_back(i);
  }
  CopyPicked(args, view, picked);
  return absl::OkStatus();
}

// --- Unique ---

struct Groups {
  std::vector<int64_t> first;    // by group: its first index
  std::vector<int64_t> inverse;  // by index: its group
  std::vector<int64_t> counts;   // by group
};

// The order of two slices, element by element; NaN is behind every number and equal to itself.
template <typename T>
int Compare(const T* x, const AxisView& view, int64_t a, int64_t b) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      const auto left = static_cast<Wide<T>>(x[(o * view.n + a) * view.inner + i]);
      const auto right = static_cast<Wide<T>>(x[(o * view.n + b) * view.inner + i]);
      const bool left_nan = left != left;
      const bool right_nan = right != right;
      if (left_nan || right_nan) {
        if (left_nan != right_nan) return left_nan ? 1 : -1;
        continue;
      }
      if (left != right) return left < right ? -1 : 1;
    }
  }
  return 0;
}

template <typename T>
Groups FindGroups(const T* x, const AxisView& view, bool sorted) {
  std::vector<int64_t> order(view.n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return Compare(x, view, a, b) < 0; });
  // By group in sorted order: its first index, which a stable sort puts in front.
  std::vector<int64_t> first;
  std::vector<int64_t> group_of(view.n);
  for (int64_t k = 0; k < view.n; ++k) {
    if (k == 0 || Compare(x, view, order[k - 1], order[k]) != 0) first.push_back(order[k]);
    group_of[order[k]] = static_cast<int64_t>(first.size()) - 1;
  }
  std::vector<int64_t> by_place(first.size());
  std::iota(by_place.begin(), by_place.end(), 0);
  if (!sorted) {
    std::ranges::sort(by_place, [&](int64_t a, int64_t b) { return first[a] < first[b]; });
  }
  std::vector<int64_t> rank(first.size());
  Groups groups;
  for (size_t k = 0; k < by_place.size(); ++k) {
    rank[by_place[k]] = static_cast<int64_t>(k);
    groups.first.push_back(first[by_place[k]]);
  }
  groups.counts.assign(first.size(), 0);
  for (int64_t group : group_of) {
    groups.inverse.push_back(rank[group]);
    ++groups.counts[rank[group]];
  }
  return groups;
}

absl::StatusOr<Groups> GroupsOf(const Node& node, DataType type, const void* data,
                                const AxisView& view) {
  PF_ASSIGN_OR_RETURN(const int64_t sorted, node.IntAttribute("sorted", 1));
  Groups groups;
  PF_RETURN_IF_ERROR(DispatchType(type, [&]<typename T>() {
    groups = FindGroups(static_cast<const T*>(data), view, sorted != 0);
  }));
  return groups;
}

absl::Status InferUnique(ShapeContext& c) {
  Dim count = c.FreshDim();
  const Shape* x = c.input_shape(0);
  PF_RETURN_IF_ERROR(PickedShape(c, count).status());
  Dim total;
  const auto dims = x == nullptr ? std::nullopt : x->constant();
  if (dims) {
    PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(c.node(), *dims));
    total = Dim(view.n);
    if (const Tensor* tensor = c.input_tensor(0)) {
      PF_ASSIGN_OR_RETURN(const Groups groups,
                          GroupsOf(c.node(), tensor->dtype(), tensor->data(), view));
      count = Dim(static_cast<int64_t>(groups.first.size()));
    }
  }
  PF_ASSIGN_OR_RETURN(std::optional<Shape> y, PickedShape(c, count));
  c.SetOutput(0, c.input_type(0), std::move(y));
  c.SetOutput(1, DataType::kInt64, Shape({count}));
  c.SetOutput(2, DataType::kInt64, Shape({total}));
  c.SetOutput(3, DataType::kInt64, Shape({count}));
  return absl::OkStatus();
}

absl::Status RunUnique(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const AxisView view, ViewOf(*args.node, x.dims));
  PF_ASSIGN_OR_RETURN(const Groups groups, GroupsOf(*args.node, x.dtype, x.data, view));
  CopyPicked(args, view, groups.first);
  const std::vector<int64_t>* lists[] = {&groups.first, &groups.inverse, &groups.counts};
  for (int i = 0; i < 3; ++i) {
    if (!args.output(i + 1).present()) continue;
    std::copy(lists[i]->begin(), lists[i]->end(), args.output(i + 1).as<int64_t>());
  }
  return absl::OkStatus();
}

}  // namespace

OpDef CompressDef() {
  return OpDef("", "Compress", 9)
      .Doc("The slices along an axis (elements, if none is given) whose condition holds.")
      .Input("input", "T")
      .Input("condition", "bool", "[at most the axis]")
      .Output("output", "T")
      .Attr("axis", {}, "flattened if not given")
      .Types("T", WideTypes())
      .InferShapes(InferCompress)
      .AddKernel({.name = "reference", .run = RunCompress});
}

OpDef UniqueDef() {
  std::vector<DataType> types = NumberTypes();
  types.push_back(DataType::kBool);
  return OpDef("", "Unique", 11)
      .Doc("The different slices along an axis (elements, if none is given), in order.")
      .Input("X", "T")
      .Output("Y", "T")
      .Output("indices", "int64", "[k]: where each is first in X", PortKind::kOptional)
      .Output("inverse_indices", "int64", "[n]: which one each slice of X is", PortKind::kOptional)
      .Output("counts", "int64", "[k]: how often each is in X", PortKind::kOptional)
      .Attr("axis", {}, "flattened if not given")
      .FlagAttr("sorted", int64_t{1}, "0: in the order of their first places")
      .Types("T", std::move(types))
      .InferShapes(InferUnique)
      .AddKernel({.name = "reference", .run = RunUnique});
}

}  // namespace pagefuse::onnx_ops
