// SPDX-License-Identifier: Apache-2.0
// MatMul, Gemm, FusedMatMul, Linear, SplitLinear, GatedLinear and MatMulNBits.
//
// Weights lie on the device as the graph has them. Codes are multiplied in float, or, where accuracy_level lets the
// host's kernels do so, by activations that are rounded to int8 as theirs are: then the same integers are added up.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/constant_inputs.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/product_batch.h"
#include "pagefuse/ops/kernels/cuda/products.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/pagefuse/linear/gated_linear.h"
#include "pagefuse/ops/pagefuse/linear/split_linear.h"

namespace pagefuse::cuda {
namespace {

using microsoft_ops::NBitsSizes;

const std::vector<DataType>& FloatTypes() {
  static const auto* types =
      new std::vector<DataType>{DataType::kFloat, DataType::kFloat16, DataType::kBfloat16};
  return *types;
}

absl::Status Run(KernelArgs& args, ProductParams& params) {
  params.scratch = args.scratch->Get(std::max<size_t>(ProductScratchBytes(params), 1));
  return LaunchStatus(LaunchProduct(params, StreamOf(args)));
}

// x as rows, y, and no limit.
ProductParams ParamsOf(const KernelArgs& args, int64_t k, int64_t n) {
  const TensorArg& x = args.input(0);
  ProductParams params;
  params.m = k == 0 ? args.output(0).size() / std::max<int64_t>(n, 1) : x.size() / k;
  params.n = n;
  params.k = k;
  params.type = x.dtype;
  params.x = x.data;
  params.y = args.output(0).data;
  params.limit = std::numeric_limits<float>::infinity();
  return params;
}

void SetRowBias(const TensorArg& bias, ProductParams& params) {
  params.bias = bias.data;
  params.bias_column_step = 1;
}

// --- MatMul, FusedMatMul, Gemm ---

absl::StatusOr<ProductParams> ProductOf(const KernelArgs& args, const ProductSpec& spec) {
  const TensorArg& b = args.input(1);
  const Matrices left(args.input(0).dims, true, spec.trans_a), right(b.dims, false, spec.trans_b);
  ProductParams params = ParamsOf(args, left.columns, right.columns);
  params.x_turned = spec.trans_a;
  params.alpha = spec.alpha;
  params.weight = {.type = b.dtype, .data = b.data, .rows = spec.trans_b};
  params.constant_weights = AreConstant(*args.node, {1});
  // Matrices of rows by one matrix are one taller product.
  if (right.batch.empty() && !spec.trans_a) return params;
  params.m = left.rows;
  SetBatch(left, right, params);
  const bool one = std::ranges::all_of(params.batch, [](int64_t size) { return size == 1; });
  if (one) params.batch.clear(), params.x_steps.clear(), params.weight_steps.clear();
  return params;
}

absl::Status RunMatMul(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(ProductParams params, ProductOf(args, {}));
  return Run(args, params);
}

absl::Status RunFusedMatMul(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  PF_ASSIGN_OR_RETURN(ProductParams params, ProductOf(args, spec));
  return Run(args, params);
}

absl::Status SupportsFusedMatMul(const KernelQuery& query) {
  for (const char* name : {"transBatchA", "transBatchB"}) {
    PF_ASSIGN_OR_RETURN(const int64_t turned, query.node->IntAttribute(name, 0));
    if (turned != 0) return absl::UnimplementedError(StrCat(name, " is 1, expected 0"));
  }
  return absl::OkStatus();
}

absl::Status RunGemm(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const ProductSpec spec, ProductSpecOf(*args.node));
  PF_ASSIGN_OR_RETURN(ProductParams params, ProductOf(args, spec));
  PF_ASSIGN_OR_RETURN(params.beta, args.node->FloatAttribute("beta", 1.0f));
  const TensorArg& c = args.input(2);
  params.bias = c.data;
  if (!c.dims.empty()) {
    params.bias_column_step = c.dim(-1) == 1 ? 0 : 1;
    params.bias_row_step = c.dims.size() < 2 || c.dims[0] == 1 ? 0 : c.dim(-1);
  }
  return Run(args, params);
}

// --- Linear, GatedLinear ---

// Rows by a stack: each product is [m, K] * [K, N], and they take the matrices in turn. All at once where a kernel for few
// rows takes them so or where launches would be many; else one by one, by what a product alone is fastest with.
absl::Status RunStack(KernelArgs& args, const ProductParams& stack) {
  constexpr int64_t kMostRows = 4, kFewProducts = 16;
  const int64_t products = std::accumulate(stack.batch.begin(), stack.batch.end(), int64_t{1},
                                           std::multiplies<int64_t>());
  ProductParams one = stack;
  const bool few = stack.m <= kMostRows || products > kFewProducts;
  if (SuitsSmallBf16(stack) || (few && SuitsSmallRows(stack))) return Run(args, one);
  one.batch.clear(), one.x_steps.clear(), one.weight_steps.clear();
  const int64_t bytes = BitWidth(stack.type) / 8, weight_bytes = BitWidth(stack.weight.type) / 8;
  const int64_t matrices = stack.batch.back();
  const auto behind = [](const void* data, int64_t offset) {
    return static_cast<const std::byte*>(data) + offset;
  };
  for (int64_t i = 0; i < products; ++i) {
    one.x = behind(stack.x, i * stack.m * stack.k * bytes);
    one.weight.data = behind(stack.weight.data, i % matrices * stack.n * stack.k * weight_bytes);
    one.y = static_cast<std::byte*>(stack.y) + i * stack.m * stack.n * bytes;
    PF_RETURN_IF_ERROR(Run(args, one));
  }
  return absl::OkStatus();
}

absl::Status RunLinear(KernelArgs& args) {
  const TensorArg &x = args.input(0), &w = args.input(1);
  ProductParams params = ParamsOf(args, w.dim(-1), w.dim(-2));
  params.weight = {.type = w.dtype, .data = w.data, .rows = true};
  params.constant_weights = AreConstant(*args.node, {1});
  SetRowBias(args.input(2), params);
  if (w.dims.size() == 2) return Run(args, params);
  const Matrices left(x.dims, true, false), right(w.dims, false, true);
  params.m = left.rows;
  SetBatch(left, right, params);
  return RunStack(args, params);
}

GateFunction FunctionOf(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return GateFunction::kGelu;
    case Activation::kGeluTanh:
      return GateFunction::kGeluTanh;
    case Activation::kSilu:
      break;
  }
  return GateFunction::kSilu;
}

absl::StatusOr<ProductWeight> GateWeight(const KernelArgs& args, int port, int scales, int64_t k,
                                         int64_t n) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, args.node->IntAttribute("transB", 0));
  const TensorArg& w = args.input(port);
  ProductWeight weight{.type = w.dtype, .data = w.data, .rows = trans_b != 0};
  if (!args.input(scales).present()) return weight;
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, pagefuse_ops::CodeSizesOf(*args.node, k, n));
  weight.rows = true;
  weight.bits = static_cast<int>(sizes.bits);
  weight.block = sizes.block;
  weight.scales = args.input(scales).data;
  return weight;
}

absl::Status RunGatedLinear(KernelArgs& args) {
  using pagefuse_ops::kGatedIn;
  const int64_t k = args.input(kGatedIn["x"]).dims.back(), n = args.output(0).dims.back();
  ProductParams params = ParamsOf(args, k, n);
  PF_ASSIGN_OR_RETURN(params.weight,
                      GateWeight(args, kGatedIn["w_gate"], kGatedIn["gate_scales"], k, n));
  PF_ASSIGN_OR_RETURN(params.up, GateWeight(args, kGatedIn["w_up"], kGatedIn["up_scales"], k, n));
  PF_ASSIGN_OR_RETURN(const Gate gate, pagefuse_ops::GateOf(*args.node));
  params.gate = FunctionOf(gate.activation);
  params.limit = gate.limit;
  if (params.weight.is_codes()) {
    PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, pagefuse_ops::CodeSizesOf(*args.node, k, n));
    params.rounds_x = microsoft_ops::SupportsInt8(*args.node, sizes).ok();
  }
  params.constant_weights = AreConstant(
      *args.node,
      {kGatedIn["w_gate"], kGatedIn["w_up"], kGatedIn["gate_scales"], kGatedIn["up_scales"]});
  return Run(args, params);
}

// --- SplitLinear ---

absl::Status RunSplitLinear(KernelArgs& args) {
  using pagefuse_ops::kSplitLinearIn;
  static_assert(kMostOutputParts == pagefuse_ops::kMostLinearParts);
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, args.node->IntsAttribute("parts", {}));
  const int64_t k = args.input(kSplitLinearIn["x"]).dims.back();
  const int64_t n = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  ProductParams params = ParamsOf(args, k, n);
  if (k == 0) params.m = args.output(0).size() / parts[0];
  for (const int64_t columns : parts) {
    params.parts[params.num_parts] = {args.output(params.num_parts).data, columns};
    ++params.num_parts;
  }
  PF_ASSIGN_OR_RETURN(params.weight,
                      GateWeight(args, kSplitLinearIn["w"], kSplitLinearIn["scales"], k, n));
  params.weight.rows = true;
  if (params.weight.is_codes()) {
    PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, pagefuse_ops::CodeSizesOf(*args.node, k, n));
    params.rounds_x = microsoft_ops::SupportsInt8(*args.node, sizes).ok();
  }
  SetRowBias(args.input(kSplitLinearIn["bias"]), params);
  params.constant_weights =
      AreConstant(*args.node, {kSplitLinearIn["w"], kSplitLinearIn["scales"]});
  return Run(args, params);
}

// --- MatMulNBits ---

constexpr int kA = microsoft_ops::kNBitsA, kB = microsoft_ops::kNBitsB;
constexpr int kScales = microsoft_ops::kNBitsScales, kZeros = microsoft_ops::kNBitsZeros;
constexpr int kGroupIndex = microsoft_ops::kNBitsGroupIndex, kBias = microsoft_ops::kNBitsBias;

absl::Status SupportsNBits(const KernelQuery& query) {
  const Node& node = *query.node;
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, NBitsSizes::Of(node));
  const DataType type = node.input(kA)->dtype();
  const Value *zeros = node.input(kZeros), *groups = node.input(kGroupIndex);
  if (zeros != nullptr && zeros->dtype() != DataType::kUint8 && zeros->dtype() != type) {
    return absl::UnimplementedError(
        StrCat("zero points of ", DataTypeName(zeros->dtype()), " under ", DataTypeName(type)));
  }
  const bool in_order =
      groups == nullptr ||
      (groups->IsConstant() && microsoft_ops::AreGroupsInOrder(*groups->initializer(), sizes));
  if (in_order) return absl::OkStatus();
  return absl::UnimplementedError("g_idx may put columns into groups other than the blocks");
}

absl::Status RunNBits(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, NBitsSizes::Of(*args.node));
  ProductParams params = ParamsOf(args, sizes.k, sizes.n);
  params.weight = {.type = DataType::kUint8, .data = args.input(kB).data, .rows = true};
  params.weight.bits = static_cast<int>(sizes.bits);
  params.weight.block = sizes.block;
  params.weight.scales = args.input(kScales).data;
  const TensorArg& zeros = args.input(kZeros);
  if (zeros.dtype == DataType::kUint8) {
    params.weight.zero_codes = zeros.as<const uint8_t>();
  } else {
    params.weight.zeros = zeros.data;
  }
  SetRowBias(args.input(kBias), params);
  params.rounds_x = microsoft_ops::SupportsInt8(*args.node, sizes).ok();
  params.constant_weights = AreConstant(*args.node, {kB, kScales, kZeros});
  return Run(args, params);
}

}  // namespace

void AddProductKernels(OpRegistry& ops) {
  const auto add = [&](const char* domain, const char* op, absl::Status (*run)(KernelArgs&),
                       absl::Status (*supports)(const KernelQuery&) = nullptr) {
    Kernel kernel{.name = "cuda", .dtypes = FloatTypes(), .priority = 10, .run = run};
    if (supports != nullptr) kernel.supports = supports;
    AddKernelTo(ops, domain, op, kernel);
  };
  add("", "MatMul", RunMatMul);
  add("", "Gemm", RunGemm);
  add("com.microsoft", "FusedMatMul", RunFusedMatMul, SupportsFusedMatMul);
  add("com.microsoft", "MatMulNBits", RunNBits, SupportsNBits);
  add("pagefuse", "Linear", RunLinear);
  add("pagefuse", "SplitLinear", RunSplitLinear);
  add("pagefuse", "GatedLinear", RunGatedLinear);
}

}  // namespace pagefuse::cuda
