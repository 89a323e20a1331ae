// SPDX-License-Identifier: Apache-2.0
// MatMulNBits: a product with a weight of 2, 4 or 8 bits in blocks.
#include "pagefuse/ops/microsoft/matmul_nbits.h"

#include <memory>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/code_lanes.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"
#include "pagefuse/ops/schema/token_rows.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int kA = kNBitsA, kB = kNBitsB, kScales = kNBitsScales, kZeros = kNBitsZeros;
constexpr int kGroupIndex = kNBitsGroupIndex, kBias = kNBitsBias;

// The group of each column, with or without those that pad the last block.
absl::Status CheckGroupIndex(const ShapeContext& c, const NBitsSizes& s) {
  const Shape* groups = c.input_shape(kGroupIndex);
  const auto dims = groups == nullptr ? std::nullopt : groups->constant();
  if (!dims || ElementCount(*dims) == s.blocks() * s.block) return absl::OkStatus();
  return CheckCount(c, kGroupIndex, s.k, "[K]");
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(c.node()));
  PF_RETURN_IF_ERROR(s.Check(c));
  PF_RETURN_IF_ERROR(CheckGroupIndex(c, s));
  const Shape* a = c.input_shape(kA);
  if (a != nullptr && (a->rank() == 0 || Differ(a->back(0), Dim(s.k)))) {
    return c.InputError(kA, StrCat("expected ", s.k, " columns, got ", a->ToString()));
  }
  PF_RETURN_IF_ERROR(
      CheckCount(c, kB, s.n * s.blocks() * s.block_bytes(), "[N, blocks, block_size * bits / 8]"));
  PF_RETURN_IF_ERROR(CheckCount(c, kScales, s.n * s.blocks(), "[N, blocks]"));
  if (c.has_input(kZeros)) {
    const bool packed = c.input_type(kZeros) == DataType::kUint8;
    PF_RETURN_IF_ERROR(CheckCount(c, kZeros, s.n * (packed ? s.zero_row_bytes() : s.blocks()),
                                  packed ? "[N, ceil(blocks * bits / 8)]" : "[N, blocks]"));
  }
  PF_RETURN_IF_ERROR(ExpectShape(c, kBias, Shape({Dim(s.n)})));
  std::optional<Shape> y;
  if (a != nullptr) {
    y = *a;
    y->dims().back() = Dim(s.n);
  }
  c.SetOutput(0, c.input_type(kA), y);
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& groups = args.input(kGroupIndex);
  if (!groups.present()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*args.node));
  for (int64_t i = 0; i < s.k; ++i) {
    const int32_t group = groups.as<int32_t>()[i];
    if (group >= 0 && group < s.blocks()) continue;
    return ValueError(args, "input 4 \"g_idx\"",
                      StrCat("group ", group, " of column ", i, " is none of ", s.blocks()));
  }
  return absl::OkStatus();
}

// Kernels take groups that are the blocks; the definition takes all.
absl::Status HasGroupsInOrder(const Node& node, const NBitsSizes& s) {
  const Value* groups = node.input(kGroupIndex);
  if (groups == nullptr) return absl::OkStatus();
  if (groups->IsConstant() && AreGroupsInOrder(*groups->initializer(), s)) return absl::OkStatus();
  return absl::FailedPreconditionError("g_idx may put columns into groups other than the blocks");
}

absl::Status SupportsBlocks(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*query.node));
  return HasGroupsInOrder(*query.node, s);
}

absl::Status SupportsRounded(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*query.node));
  PF_RETURN_IF_ERROR(HasGroupsInOrder(*query.node, s));
  PF_RETURN_IF_ERROR(ExpectConstants(*query.node, {kB, kScales, kZeros}));
  return SupportsInt8(*query.node, s);
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*args.node));
  PF_ASSIGN_OR_RETURN(const NBitsParameters parameters,
                      NBitsParameters::Of(args.input(kScales), args.input(kZeros)));
  PF_ASSIGN_OR_RETURN(const FloatValues x, FloatValues::Of(args.input(kA)));
  PF_ASSIGN_OR_RETURN(const FloatValues bias, FloatValues::Of(args.input(kBias)));
  const NBitsWeight w = s.Weight(args.input(kB).as<uint8_t>(), parameters);
  const auto* groups = args.input(kGroupIndex).as<const int32_t>();
  std::vector<double> y(static_cast<size_t>(args.output(0).size()));
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t r = 0; r < x.size() / s.k; ++r) {
      y[r * s.n + n] =
          NBitsReferenceDot(x.data() + r * s.k, w, n, bias.present() ? bias.data()[n] : 0, groups);
    }
  }
  return onnx_ops::EncodeDoubles(y, args.output(0), 0);
}

// Constant scales and zero points of narrow types are converted once.
class NBitsState : public KernelState {
 public:
  NBitsPrecision precision = NBitsPrecision::kFloat32;
  Tensor scales, zeros;
  int64_t packed_bytes() const override { return scales.byte_size() + zeros.byte_size(); }
};

absl::StatusOr<Tensor> FloatCopy(const Tensor* tensor, Allocator& allocator) {
  const bool needed = tensor != nullptr && tensor->dtype() != DataType::kFloat &&
                      tensor->dtype() != DataType::kUint8;
  if (!needed) return Tensor();
  PF_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(DataType::kFloat, tensor->dims(), allocator));
  PF_RETURN_IF_ERROR(DecodeToFloat(tensor->dtype(), tensor->data(), tensor->size(),
                                   static_cast<float*>(copy.mutable_data())));
  return copy;
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  auto state = std::make_unique<NBitsState>();
  constexpr int64_t kBfloat16Level = 3;
  PF_ASSIGN_OR_RETURN(const int64_t level, args.query.node->IntAttribute("accuracy_level", 0));
  if (level == kBfloat16Level) {
    state->precision = NBitsPrecision::kBfloat16;
  }
  PF_ASSIGN_OR_RETURN(state->scales, FloatCopy(args.constants[kScales], *args.allocator));
  if (static_cast<int>(args.constants.size()) > kZeros) {
    PF_ASSIGN_OR_RETURN(state->zeros, FloatCopy(args.constants[kZeros], *args.allocator));
  }
  return state;
}

// Of the kernel that reads lanes: zero points are packed here, as rows of codes have padding.
class LaneState : public PackedConstants {
 public:
  using PackedConstants::PackedConstants;
  std::vector<uint8_t> zero_codes;
  std::vector<float> zeros;
  bool rows_are_tokens = false;
  int64_t packed_bytes() const override {
    return PackedConstants::packed_bytes() +
           static_cast<int64_t>(zero_codes.size() + zeros.size() * sizeof(float));
  }

  absl::Status PackZeros(const Tensor& constant, const NBitsSizes& s) {
    const LaneRows rows{.n = s.n, .each = s.blocks()};
    if (constant.dtype() != DataType::kUint8) {
      std::vector<float> numbers(static_cast<size_t>(constant.size()));
      PF_RETURN_IF_ERROR(
          DecodeToFloat(constant.dtype(), constant.data(), constant.size(), numbers.data()));
      zeros.resize(static_cast<size_t>(rows.lane_size()));
      PackLanes(numbers.data(), rows, zeros.data());
      return absl::OkStatus();
    }
    NBitsWeight w = s.Weight(nullptr, {});
    w.zero_codes = static_cast<const uint8_t*>(constant.data());
    std::vector<uint8_t> bytes(static_cast<size_t>(s.n * s.blocks()));
    for (int64_t i = 0; i < s.n * s.blocks(); ++i) {
      bytes[i] = static_cast<uint8_t>(w.Zero(i / s.blocks(), i % s.blocks()));
    }
    zero_codes.resize(static_cast<size_t>(rows.lane_size()));
    PackLanes(bytes.data(), rows, zero_codes.data());
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<KernelState>> PrepareLanes(const PrepareArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(*args.query.node));
  auto state = std::make_unique<LaneState>(CodeLanePorts(kB, kScales, {.rows = s.n}));
  state->rows_are_tokens = RowsAreTokens(args.query, kA);
  const bool has_zeros =
      static_cast<int>(args.constants.size()) > kZeros && args.constants[kZeros] != nullptr;
  if (has_zeros) PF_RETURN_IF_ERROR(state->PackZeros(*args.constants[kZeros], s));
  return state;
}

TensorArg Converted(const Tensor& copy, const TensorArg& original) {
  if (!copy.defined()) return original;
  return {copy.dtype(), copy.dims(), const_cast<void*>(copy.data())};
}

// What products have of a call, beside W.
struct ProductCall {
  NBitsSizes sizes;
  FloatValues x, bias;
  float* y = nullptr;

  static absl::StatusOr<ProductCall> Of(const KernelArgs& args) {
    ProductCall call;
    PF_ASSIGN_OR_RETURN(call.sizes, NBitsSizes::Of(*args.node));
    PF_ASSIGN_OR_RETURN(call.x, FloatValues::Of(args.input(kA)));
    PF_ASSIGN_OR_RETURN(call.bias, FloatValues::Of(args.input(kBias)));
    call.y = FloatsOf(args, args.output(0), 1);
    return call;
  }
  RowsView rows() const { return {x.data(), x.size() / sizes.k, sizes.k}; }
  OutputView out() const { return {y, sizes.n}; }
  // What is left to do behind the product.
  absl::Status Finish(const TensorArg& output) const {
    for (int64_t r = 0; bias.present() && r < rows().m; ++r) {
      for (int64_t n = 0; n < sizes.n; ++n) y[r * sizes.n + n] += bias.data()[n];
    }
    return StoreFloats(y, output);
  }
};

// In float.
absl::Status RunFloats(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductCall call, ProductCall::Of(args));
  const auto& state = static_cast<const NBitsState&>(*args.state);
  PF_ASSIGN_OR_RETURN(const NBitsParameters parameters,
                      NBitsParameters::Of(Converted(state.scales, args.input(kScales)),
                                          Converted(state.zeros, args.input(kZeros))));
  const NBitsWeight w = call.sizes.Weight(args.input(kB).as<uint8_t>(), parameters);
  void* scratch = args.scratch->Get(NBitsScratchBytes(call.rows().m, w));
  PF_RETURN_IF_ERROR(LinearNBits(call.rows(), w, state.precision, scratch, call.out()));
  return call.Finish(args.output(0));
}

// With x rounded to int8.
absl::Status RunLanes(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductCall call, ProductCall::Of(args));
  const auto& state = static_cast<const LaneState&>(*args.state);
  NBitsLanes w = call.sizes.Lanes(args, kB, kScales);
  if (!state.zero_codes.empty()) w.zero_codes = state.zero_codes.data();
  if (!state.zeros.empty()) w.zeros = state.zeros.data();
  ByTokenRows(args, state.rows_are_tokens, call.rows(), call.out(),
              [&](const RowsView& x, const OutputView& y, bool read) {
                if (read) {
                  LinearCodesBf16(x, w, args.scratch->Get(LinearBf16ScratchBytes(x.m, w.k)), y);
                } else {
                  LinearNBitsInt8(x, w, args.scratch->Get(NBitsInt8ScratchBytes(x.m, w)), y);
                }
              });
  return call.Finish(args.output(0));
}

}  // namespace

absl::StatusOr<NBitsParameters> NBitsParameters::Of(const TensorArg& scales,
                                                    const TensorArg& zeros) {
  NBitsParameters parameters;
  PF_ASSIGN_OR_RETURN(parameters.scales, FloatValues::Of(scales));
  if (zeros.present() && zeros.dtype == DataType::kUint8) {
    parameters.zero_codes = zeros.as<uint8_t>();
  } else {
    PF_ASSIGN_OR_RETURN(parameters.zeros, FloatValues::Of(zeros));
  }
  return parameters;
}

absl::StatusOr<NBitsSizes> NBitsSizes::Of(const Node& node) {
  NBitsSizes s;
  PF_ASSIGN_OR_RETURN(s.k, node.IntAttribute("K", 0));
  PF_ASSIGN_OR_RETURN(s.n, node.IntAttribute("N", 0));
  PF_ASSIGN_OR_RETURN(s.bits, node.IntAttribute("bits", 4));
  PF_ASSIGN_OR_RETURN(s.block, node.IntAttribute("block_size", 0));
  return s;
}

absl::Status NBitsSizes::Check(const ShapeContext& c) const {
  constexpr int64_t kMaxSize = int64_t{1} << 31;
  if (bits != 2 && bits != 4 && bits != 8) {
    return c.AttributeError("bits", StrCat("expected 2, 4 or 8, got ", bits));
  }
  if (block < 16 || block > kMaxSize || (block & (block - 1)) != 0) {
    return c.AttributeError("block_size",
                            StrCat("expected a power of two from 16 on, got ", block));
  }
  if (k <= 0 || k > kMaxSize) {
    return c.AttributeError("K", StrCat("expected a positive size, got ", k));
  }
  if (n <= 0 || n > kMaxSize) {
    return c.AttributeError("N", StrCat("expected a positive size, got ", n));
  }
  return absl::OkStatus();
}

NBitsWeight NBitsSizes::Weight(const uint8_t* codes, const NBitsParameters& parameters) const {
  NBitsWeight w;
  w.bits = static_cast<int>(bits);
  w.n = n;
  w.k = k;
  w.block = block;
  w.codes = codes;
  w.row_bytes = blocks() * block_bytes();
  w.scales = parameters.scales.data();
  w.zero_codes = parameters.zero_codes;
  w.zero_row_bytes = zero_row_bytes();
  w.zeros = parameters.zeros.present() ? parameters.zeros.data() : nullptr;
  return w;
}

NBitsLanes NBitsSizes::Lanes(const KernelArgs& args, int codes, int scales, int64_t matrix) const {
  NBitsLanes w{.bits = static_cast<int>(bits), .n = n, .k = k, .block = block};
  SetCodeLanes(args, codes, scales, matrix, w);
  return w;
}

// Scales and zero points come as [N, blocks] or flat.
absl::Status CheckCount(const ShapeContext& c, int i, int64_t count, std::string_view shape) {
  const Shape* actual = c.input_shape(i);
  const auto dims = actual == nullptr ? std::nullopt : actual->constant();
  if (!dims || ElementCount(*dims) == count) return absl::OkStatus();
  return c.InputError(
      i, StrCat("expected ", shape, ", ", count, " elements, got ", actual->ToString()));
}

// Rounding pays where a product waits for its codes; those that the first cache holds are as fast
// with the activations as they are.
constexpr int64_t kLeastInt8Bytes = int64_t{16} << 10;

absl::Status SupportsInt8(const Node& node, const NBitsSizes& s) {
  PF_ASSIGN_OR_RETURN(const int64_t level, node.IntAttribute("accuracy_level", 0));
  if (level != 4) {
    return absl::FailedPreconditionError(
        StrCat("accuracy_level ", level, " keeps activations in float"));
  }
  if (s.bits == 2) return absl::FailedPreconditionError("codes of 2 bits are decoded to floats");
  const int64_t bytes = s.n * s.blocks() * s.block_bytes();
  if (bytes < kLeastInt8Bytes) {
    return absl::FailedPreconditionError(
        StrCat("codes of ", bytes, " bytes stay in cache, expected ", kLeastInt8Bytes, " or more"));
  }
  if (SuitsInt8(s.block)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("block_size ", s.block, " is not a multiple of ", kInt8Block));
}

bool AreGroupsInOrder(const Tensor& groups, const NBitsSizes& sizes) {
  if (IsAbsent(groups) || groups.dtype() != DataType::kInt32 || groups.size() < sizes.k) {
    return false;
  }
  const auto* group = static_cast<const int32_t*>(groups.data());
  for (int64_t i = 0; i < sizes.k; ++i) {
    if (group[i] != i / sizes.block) return false;
  }
  return true;
}

double NBitsReferenceDot(const float* x, const NBitsWeight& w, int64_t row, double first,
                         const int32_t* groups) {
  double sum = first;
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t b = groups != nullptr ? groups[k] : k / w.block;
    sum += (static_cast<double>(w.Code(row, k)) - w.Zero(row, b)) * w.scales[row * w.blocks() + b] *
           x[k];
  }
  return sum;
}

OpDef MatMulNBitsDef() {
  using enum DataType;
  return OpDef("com.microsoft", "MatMulNBits", /*since=*/1)
      .Doc(
          "A * W^T + bias, W [N, K] of 2-, 4- or 8-bit codes in blocks along K: "
          "(code - zero point) * scale. 4-bit codes are two a byte, 2-bit ones four, the first in "
          "the low bits.")
      .Input("A", "T1", "[..., K]")
      .Input("B", "uint8", "[N, blocks, block_size * bits / 8]")
      .Input("scales", "T1", "[N, blocks]")
      .Input("zero_points", "T3",
             "uint8: packed as B, [N, ceil(blocks * bits / 8)]; else "
             "[N, blocks]; absent: 2^(bits - 1)",
             PortKind::kOptional)
      .Input(
          "g_idx", "int32",
          "[K] or [blocks * block_size]: which of a row's scales and zero points is that of each "
          "column; absent: that of its block",
          PortKind::kOptional)
      .Input("bias", "T1", "[N]", PortKind::kOptional)
      .Output("Y", "T1", "[..., N]")
      .RequiredAttr("K", "columns of W")
      .RequiredAttr("N", "rows of W")
      .Attr("bits", int64_t{4}, "2, 4 or 8")
      .RequiredAttr("block_size", "a power of two from 16 on")
      .Attr("accuracy_level", int64_t{0}, kProductAccuracyLevelDoc)
      .Types("T1", {kFloat, kFloat16, kBfloat16})
      .Types("T3", {kUint8, kFloat, kFloat16, kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(DecomposeMatMulNBits)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "hwy",
                  .priority = 10,
                  .supports = SupportsBlocks,
                  .prepare = Prepare,
                  .run = RunFloats})
      .AddKernel({.name = "int8",
                  .priority = 20,
                  .supports = SupportsRounded,
                  .prepare = PrepareLanes,
                  .run = RunLanes});
}

}  // namespace pagefuse::microsoft_ops
