// SPDX-License-Identifier: Apache-2.0
// DepthToSpace, SpaceToDepth, ReverseSequence, CenterCropPad and EyeLike: elements in other places.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- DepthToSpace, SpaceToDepth ---

absl::StatusOr<int64_t> BlockSize(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t block, node.IntAttribute("blocksize", 0));
  if (block >= 1 && block <= (1 << 20)) return block;
  return AttributeError(node, "blocksize", StrCat("expected 1 or more, got ", block));
}

// The dim over `factor`, which must divide it.
absl::StatusOr<Dim> Divide(const ShapeContext& c, const Dim& dim, int64_t factor) {
  if (dim.is_constant() && *dim.constant() % factor != 0) {
    return c.InputError(0,
                        StrCat(factor, " does not divide a dim of ", c.input_shape(0)->ToString()));
  }
  return dim.known() ? dim.FloorDiv(Dim(factor)) : Dim();
}

template <bool to_space>
absl::Status InferBlocks(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t block, BlockSize(c.node()));
  PF_ASSIGN_OR_RETURN(const std::string mode, c.node().StringAttribute("mode", "DCR"));
  if (mode != "DCR" && mode != "CRD") {
    return c.AttributeError("mode", StrCat("expected DCR or CRD, got \"", mode, "\""));
  }
  const Shape* x = c.input_shape(0);
  std::optional<Shape> y;
  if (x != nullptr) {
    if (x->rank() != 4) {
      return c.InputError(0, StrCat("expected rank 4, got shape ", x->ToString()));
    }
    y = *x;
    if (to_space) {
      PF_ASSIGN_OR_RETURN((*y)[1], Divide(c, (*x)[1], block * block));
      for (int d : {2, 3}) (*y)[d] = (*x)[d] * Dim(block);
    } else {
      (*y)[1] = (*x)[1] * Dim(block * block);
      for (int d : {2, 3}) {
        PF_ASSIGN_OR_RETURN((*y)[d], Divide(c, (*x)[d], block));
      }
    }
  }
  c.SetOutput(0, c.input_type(0), y);
  return absl::OkStatus();
}

// Both are one copy between [N, depth, H, W] and [N, C, H, b, W, b]; depth is b, b, C (DCR) or
// C, b, b (CRD), outermost first.
template <bool to_space>
absl::Status RunBlocks(KernelArgs& args) {
  const std::vector<int64_t>& deep = args.input(0).dims;
  const std::vector<int64_t>& flat = args.output(0).dims;
  PF_ASSIGN_OR_RETURN(const int64_t b, BlockSize(*args.node));
  PF_ASSIGN_OR_RETURN(const std::string mode, args.node->StringAttribute("mode", "DCR"));
  const std::vector<int64_t>& depth = to_space ? deep : flat;  // [N, depth, H, W]
  const int64_t n = depth[0], c = depth[1] / (b * b), h = depth[2], w = depth[3];
  const int64_t plane = h * w;
  // The places of (image, channel, row of block, column of block, row, column) on both sides.
  const bool channel_first = mode == "CRD";
  const int64_t step = channel_first ? plane : c * plane;  // of a column of the block
  const std::vector<int64_t> in_depth = {
      b * b * c * plane, channel_first ? b * b * plane : plane, b * step, step, w, 1};
  const std::vector<int64_t> in_space = {b * b * c * plane, b * b * plane, w * b, 1, w * b * b, b};
  StridedBox box{
      {n, c, b, b, h, w}, to_space ? in_depth : in_space, to_space ? in_space : in_depth};
  CopyBox(std::move(box), ElementSize(args.input(0).dtype), args.input(0).data,
          args.output(0).data);
  return absl::OkStatus();
}

// --- ReverseSequence ---

struct SequenceAxes {
  int64_t time = 0, batch = 1;
};

absl::StatusOr<SequenceAxes> ReadAxes(const Node& node) {
  SequenceAxes axes;
  PF_ASSIGN_OR_RETURN(axes.time, node.IntAttribute("time_axis", 0));
  PF_ASSIGN_OR_RETURN(axes.batch, node.IntAttribute("batch_axis", 1));
  if (std::min(axes.time, axes.batch) == 0 && std::max(axes.time, axes.batch) == 1) return axes;
  return absl::InvalidArgumentError(StrCat(node.Description(),
                                           ": time_axis and batch_axis must be 0 and 1, got ",
                                           axes.time, " and ", axes.batch));
}

absl::Status InferReverse(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const SequenceAxes axes, ReadAxes(c.node()));
  const Shape* x = c.input_shape(0);
  if (x != nullptr && x->rank() < 2) {
    return c.InputError(0, StrCat("expected rank 2 or more, got shape ", x->ToString()));
  }
  if (x != nullptr) {
    PF_RETURN_IF_ERROR(ExpectShape(c, 1, Shape({(*x)[static_cast<int>(axes.batch)]})));
  }
  return InferLikeInput(c);
}

absl::Status ValidateReverse(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SequenceAxes axes, ReadAxes(*args.node));
  return CheckIndexRange(args, 1, "sequence_lens", 0, args.input(0).dims[axes.time] + 1);
}

absl::Status RunReverse(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const SequenceAxes axes, ReadAxes(*args.node));
  const int64_t run = Product(x.dims, 2, x.dims.size()) * ElementSize(x.dtype);
  const int64_t time_stride = axes.time == 0 ? x.dims[1] * run : run;
  const int64_t batch_stride = axes.batch == 0 ? x.dims[1] * run : run;
  if (x.size() == 0) return absl::OkStatus();
  for (int64_t b = 0; b < x.dims[axes.batch]; ++b) {
    const int64_t length = args.input(1).as<int64_t>()[b];
    for (int64_t t = 0; t < x.dims[axes.time]; ++t) {
      const int64_t from = t < length ? length - 1 - t : t;
      std::memcpy(args.output(0).as<char>() + b * batch_stride + t * time_stride,
                  x.as<char>() + b * batch_stride + from * time_stride, run);
    }
  }
  return absl::OkStatus();
}

// --- CenterCropPad ---

absl::StatusOr<std::vector<int>> CropAxes(const ShapeContext& c, int rank) {
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.node().IntsAttribute("axes", {}));
  if (c.node().attribute("axes") == nullptr) {
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  }
  return ResolveAxes(c, axes, rank);
}

absl::Status InferCrop(ShapeContext& c) {
  const Shape* x = c.input_shape(0);
  if (x == nullptr) return InferLikeInput(c);
  PF_ASSIGN_OR_RETURN(const std::vector<int> axes, CropAxes(c, x->rank()));
  const std::optional<std::vector<Dim>> sizes = c.input_value(1);
  if (sizes && sizes->size() != axes.size()) {
    return c.InputError(1, StrCat("expected ", axes.size(), " sizes, got ", sizes->size()));
  }
  Shape y = *x;
  for (size_t i = 0; i < axes.size(); ++i) {
    y[axes[i]] = sizes && (*sizes)[i].known() ? (*sizes)[i] : c.FreshDim();
    if (y[axes[i]].is_constant() && *y[axes[i]].constant() < 0) {
      return c.InputError(1, StrCat("size ", *y[axes[i]].constant(), " is negative"));
    }
  }
  c.SetOutput(0, c.input_type(0), std::move(y));
  return absl::OkStatus();
}

// What both have in common, centred: an odd rest is more behind than in front.
absl::Status RunCrop(KernelArgs& args) {
  const std::vector<int64_t>& from = args.input(0).dims;
  const std::vector<int64_t>& to = args.output(0).dims;
  const int64_t size = ElementSize(args.input(0).dtype);
  const int64_t bytes = args.output(0).size() * size;
  if (bytes == 0) return absl::OkStatus();
  std::memset(args.output(0).data, 0, bytes);
  StridedBox box{from, RowMajorStrides(from), RowMajorStrides(to)};
  int64_t from_at = 0, to_at = 0;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    box.dims[axis] = std::min(from[axis], to[axis]);
    if (box.dims[axis] == 0) return absl::OkStatus();
    from_at += std::max<int64_t>(from[axis] - to[axis], 0) / 2 * box.from_strides[axis];
    to_at += std::max<int64_t>(to[axis] - from[axis], 0) / 2 * box.to_strides[axis];
  }
  CopyBox(std::move(box), size, args.input(0).as<char>() + from_at * size,
          args.output(0).as<char>() + to_at * size);
  return absl::OkStatus();
}

// --- EyeLike ---

absl::Status InferEye(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t code, c.node().IntAttribute("dtype", 0));
  DataType type = c.input_type(0);
  if (code != 0) {
    const auto known = code > 0 && code <= kLastDataType
                           ? DataTypeFromCode(static_cast<int32_t>(code))
                           : std::nullopt;
    if (!known) return c.AttributeError("dtype", StrCat(code, " is no type"));
    type = *known;
  }
  const Shape* x = c.input_shape(0);
  if (x != nullptr && x->rank() != 2) {
    return c.InputError(0, StrCat("expected rank 2, got shape ", x->ToString()));
  }
  c.SetOutput(0, type, CopyOf(x));
  return absl::OkStatus();
}

absl::Status RunEye(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t k, args.node->IntAttribute("k", 0));
  const TensorArg& y = args.output(0);
  return DispatchType(y.dtype, [&]<typename T>() {
    std::fill_n(y.as<T>(), y.size(), ConvertElement<T>(0.0f));
    const int64_t columns = y.dims[1];
    for (int64_t row = 0; row < y.dims[0]; ++row) {
      // As distances, which do not overflow: k may be anything.
      if (k < -row || k >= columns - row) continue;
      y.as<T>()[row * columns + row + k] = ConvertElement<T>(1.0f);
    }
  });
}

std::vector<DataType> EyeTypes() {
  std::vector<DataType> types = NumberTypes();
  types.push_back(DataType::kBool);
  return types;
}

}  // namespace

OpDef DepthToSpaceDef() {
  return OpDef("", "DepthToSpace", 1)
      .Doc("Channels become blocks of pixels.")
      .Input("input", "T", "[N, C, H, W]")
      .Output("output", "T", "[N, C / b^2, H b, W b]")
      .RequiredAttr("blocksize", "b")
      .Attr("mode", "DCR", "DCR: channels of one block lie C / b^2 apart; CRD: together")
      .Types("T", WideTypes())
      .InferShapes(InferBlocks<true>)
      .AddKernel({.name = "reference", .run = RunBlocks<true>});
}

OpDef SpaceToDepthDef() {
  return OpDef("", "SpaceToDepth", 1)
      .Doc("Blocks of pixels become channels.")
      .Input("input", "T", "[N, C, H, W]")
      .Output("output", "T", "[N, C b^2, H / b, W / b]")
      .RequiredAttr("blocksize", "b")
      .Attr("mode", "DCR", "as DepthToSpace")
      .Types("T", WideTypes())
      .InferShapes(InferBlocks<false>)
      .AddKernel({.name = "reference", .run = RunBlocks<false>});
}

OpDef ReverseSequenceDef() {
  return OpDef("", "ReverseSequence", 10)
      .Doc("The first sequence_lens[b] steps of batch row b in reverse, the others as they are.")
      .Input("input", "T", "[time, batch, ...] or [batch, time, ...]")
      .Input("sequence_lens", "int64", "[batch]")
      .Output("Y", "T", "as input")
      .Attr("batch_axis", int64_t{1}, "0 or 1")
      .Attr("time_axis", int64_t{0}, "the other")
      .Types("T", WideTypes())
      .InferShapes(InferReverse)
      .Validate(ValidateReverse)
      .AddKernel({.name = "reference", .run = RunReverse});
}

OpDef CenterCropPadDef() {
  return OpDef("", "CenterCropPad", 18)
      .Doc("Crops axes around their middle to a size, or pads them with zeros.")
      .Input("input_data", "T")
      .Input("shape", "Tind", "[axes]", PortKind::kRequired, PortRole::kMetadata)
      .Output("output_data", "T")
      .Attr("axes", {}, "all if not given")
      .Types("T", WideTypes())
      .Types("Tind", IndexTypes())
      .InferShapes(InferCrop)
      .AddKernel({.name = "reference", .run = RunCrop});
}

OpDef EyeLikeDef() {
  return OpDef("", "EyeLike", 9)
      .Doc("1 on diagonal k, 0 elsewhere, in the shape of the input.")
      .Input("input", "T1", "[N, M]")
      .Output("output", "T2", "[N, M]")
      .Attr("dtype", int64_t{0}, "type of the output, 0: that of the input")
      .Attr("k", int64_t{0}, "diagonals above the main one")
      .Types("T1", EyeTypes())
      .Types("T2", EyeTypes())
      .InferShapes(InferEye)
      .AddKernel({.name = "reference", .run = RunEye});
}

}  // namespace pagefuse::onnx_ops
