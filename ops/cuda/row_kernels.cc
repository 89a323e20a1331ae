// SPDX-License-Identifier: Apache-2.0
// Norms, softmax, reductions and rotary embedding.
#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/constant_inputs.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/kernels/cuda/rows.h"
#include "pagefuse/ops/onnx/movement.h"

namespace pagefuse::cuda {
namespace {

using onnx_ops::KernelAxis;
using onnx_ops::Product;

const std::vector<DataType>& FloatTypes() {
  static const auto* types =
      new std::vector<DataType>{DataType::kFloat, DataType::kFloat16, DataType::kBfloat16};
  return *types;
}

// --- norms ---

absl::Status ScaleError(std::string_view what) {
  return absl::UnimplementedError(StrCat("the scale ", what));
}

// One scale an element of a row, or one for all.
absl::Status SupportsNorm(const KernelQuery& query) {
  const Value *x = query.node->input(0), *scale = query.node->input(1);
  if (scale->dtype() != x->dtype()) return ScaleError("is of another type than the input");
  const auto dims = scale->shape() ? scale->shape()->constant() : std::nullopt;
  if (!dims || !x->shape()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const int64_t axis, query.node->IntAttribute("axis", -1));
  const int rank = x->shape()->rank();
  const int first = KernelAxis(axis, static_cast<size_t>(rank));
  int64_t count = Product(*dims, 0, dims->size()), n = 1;
  for (int d = first; d < rank; ++d) {
    if (!(*x->shape())[d].constant()) return absl::OkStatus();
    n *= *(*x->shape())[d].constant();
  }
  return count == n || count == 1 ? absl::OkStatus() : ScaleError("differs between rows");
}

// x and its rows: axes from `axis` on are normalised together.
absl::StatusOr<NormParams> NormOf(const KernelArgs& args, int64_t axis, float epsilon) {
  const TensorArg& x = args.input(0);
  const int first = KernelAxis(axis, x.dims.size());
  NormParams params{.type = x.dtype, .scale_type = args.output(0).dtype};
  params.rows = Product(x.dims, 0, first);
  params.n = Product(x.dims, first, x.dims.size());
  PF_ASSIGN_OR_RETURN(params.epsilon, args.node->FloatAttribute("epsilon", epsilon));
  params.x = x.data;
  params.y = args.output(0).data;
  return params;
}

absl::Status SetScale(const TensorArg& scale, const TensorArg& shift, NormParams& params) {
  params.scale = scale.data;
  params.one_scale = scale.size() == 1;
  params.shift = shift.data;
  const bool fits = (params.one_scale || scale.size() == params.n) &&
                    (!shift.present() || shift.size() == params.n);
  return fits ? absl::OkStatus() : ScaleError("is repeated inside of a row");
}

template <bool centred>
absl::Status RunNorm(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t axis, args.node->IntAttribute("axis", -1));
  PF_ASSIGN_OR_RETURN(NormParams params, NormOf(args, axis, 1e-5f));
  params.centred = centred;
  PF_RETURN_IF_ERROR(SetScale(args.input(1), centred ? args.input(2) : TensorArg(), params));
  params.constant_weights = AreConstant(*args.node, {1});
  if (centred) params.mean = args.output(1).as<float>();
  params.inverse = args.output(centred ? 2 : 1).as<float>();
  return LaunchStatus(LaunchNorm(params, StreamOf(args)));
}

// SkipLayerNormalization has a beta before the bias.
template <bool centred>
absl::Status RunSkipNorm(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(NormParams params, NormOf(args, -1, 1e-12f));
  params.centred = centred;
  PF_RETURN_IF_ERROR(SetScale(args.input(2), centred ? args.input(3) : TensorArg(), params));
  params.constant_weights = AreConstant(*args.node, {2});
  params.skip = args.input(1).data;
  params.skip_rows = std::max<int64_t>(args.input(1).size() / std::max<int64_t>(params.n, 1), 1);
  params.bias = args.input(centred ? 4 : 3).data;
  params.mean = args.output(1).as<float>();
  params.inverse = args.output(2).as<float>();
  params.sum = args.output(3).data;
  return LaunchStatus(LaunchNorm(params, StreamOf(args)));
}

// --- Softmax ---

// Before opset 13 a row is all axes from `axis` on, 1 by default.
template <bool log>
absl::Status RunSoftmax(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const bool flattens = args.opset < 13;
  PF_ASSIGN_OR_RETURN(const int64_t given, args.node->IntAttribute("axis", flattens ? 1 : -1));
  const auto axis = static_cast<size_t>(KernelAxis(given, x.dims.size()));
  const size_t end = flattens ? x.dims.size() : std::min(axis + 1, x.dims.size());
  const SoftmaxParams params{.type = x.dtype,
                             .outer = Product(x.dims, 0, std::min(axis, x.dims.size())),
                             .n = Product(x.dims, axis, end),
                             .inner = Product(x.dims, end, x.dims.size()),
                             .log = log,
                             .x = x.data,
                             .y = args.output(0).data};
  return LaunchStatus(LaunchSoftmax(params, StreamOf(args)));
}

// --- reductions ---

absl::Status RunReduce(KernelArgs& args, Reduction reduction) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> axes, args.node->IntsAttribute("axes", {}));
  if (args.input(1).present()) axes = onnx_ops::IndexValues(args.host_input(1));
  PF_ASSIGN_OR_RETURN(const int64_t noop, args.node->IntAttribute("noop_with_empty_axes", 0));
  ReduceParams params{.type = x.dtype,
                      .reduction = reduction,
                      .dims = x.dims,
                      .reduced = std::vector<bool>(x.dims.size(), axes.empty() && noop == 0),
                      .x = x.data,
                      .y = args.output(0).data};
  for (const int64_t axis : axes) params.reduced[KernelAxis(axis, x.dims.size())] = true;
  return LaunchStatus(LaunchReduce(params, StreamOf(args)));
}

void AddReduction(OpRegistry& ops, const char* op, Reduction reduction, bool of_integers) {
  Kernel kernel{.name = "cuda", .dtypes = FloatTypes(), .priority = 10, .host_inputs = {1}};
  if (of_integers) {
    kernel.dtypes.insert(kernel.dtypes.end(), {DataType::kInt32, DataType::kInt64});
  }
  kernel.run = [reduction](KernelArgs& args) { return RunReduce(args, reduction); };
  AddKernelTo(ops, "", op, kernel);
}

// --- RotaryEmbedding ---

// Of both domains: ports of ids and tables, and what the heads are if the node does not say.
struct RotaryPorts {
  int ids, cos;
  bool microsoft;
};

absl::Status RunRotary(KernelArgs& args, const RotaryPorts& ports) {
  const TensorArg &x = args.input(0), &cos = args.input(ports.cos), &ids = args.input(ports.ids);
  RotaryParams params{.type = x.dtype};
  const bool packed = x.dims.size() == 3;
  params.half = cos.dims.back();
  PF_ASSIGN_OR_RETURN(params.heads, args.node->IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  PF_ASSIGN_OR_RETURN(params.scale, args.node->FloatAttribute("scale", 1.0f));
  params.interleaved = interleaved != 0;
  if (!packed) params.heads = x.dims[1];
  if (params.heads == 0) params.heads = x.dims[2] / std::max<int64_t>(2 * params.half, 1);
  params.batches = x.dims[0];
  params.length = packed ? x.dims[1] : x.dims[2];
  params.size = packed ? x.dims[2] / std::max<int64_t>(params.heads, 1) : x.dims[3];
  params.batch = params.heads * params.length * params.size;
  params.step = packed ? x.dims[2] : params.size;
  params.head = packed ? params.size : params.length * params.size;
  params.x = x.data;
  params.y = args.output(0).data;
  params.cos = cos.data;
  params.sin = args.input(ports.cos + 1).data;
  params.table_rows = params.half == 0 ? 0 : cos.size() / params.half;
  params.positions = ids.as<const int64_t>();
  params.first_position = ports.microsoft && ids.dims.size() == 1;
  if (packed && params.heads * params.size != x.dims[2]) {
    return absl::InvalidArgumentError("num_heads does not divide the input's width");
  }
  return LaunchStatus(LaunchRotary(params, StreamOf(args)));
}

void AddRotary(OpRegistry& ops, const char* domain, const RotaryPorts& ports) {
  AddKernelTo(
      ops, domain, "RotaryEmbedding",
      {.name = "cuda", .dtypes = FloatTypes(), .priority = 10, .run = [ports](KernelArgs& args) {
         return RunRotary(args, ports);
       }});
}

}  // namespace

void AddRowKernels(OpRegistry& ops) {
  const auto add = [&](const char* domain, const char* op, absl::Status (*run)(KernelArgs&),
                       absl::Status (*supports)(const KernelQuery&) = nullptr) {
    Kernel kernel{.name = "cuda", .dtypes = FloatTypes(), .priority = 10, .run = run};
    if (supports != nullptr) kernel.supports = supports;
    AddKernelTo(ops, domain, op, kernel);
  };
  add("", "RMSNormalization", RunNorm<false>, SupportsNorm);
  add("", "SimplifiedLayerNormalization", RunNorm<false>, SupportsNorm);
  add("", "LayerNormalization", RunNorm<true>, SupportsNorm);
  add("com.microsoft", "SkipSimplifiedLayerNormalization", RunSkipNorm<false>);
  add("com.microsoft", "SkipLayerNormalization", RunSkipNorm<true>);
  add("", "Softmax", RunSoftmax<false>);
  add("", "LogSoftmax", RunSoftmax<true>);
  AddReduction(ops, "ReduceSum", Reduction::kSum, true);
  AddReduction(ops, "ReduceMean", Reduction::kMean, true);
  AddReduction(ops, "ReduceMax", Reduction::kMax, true);
  AddReduction(ops, "ReduceMin", Reduction::kMin, true);
  AddReduction(ops, "ReduceProd", Reduction::kProduct, true);
  AddReduction(ops, "ReduceL1", Reduction::kL1, true);
  AddReduction(ops, "ReduceL2", Reduction::kL2, false);
  AddReduction(ops, "ReduceSumSquare", Reduction::kSumSquare, true);
  AddReduction(ops, "ReduceLogSum", Reduction::kLogSum, false);
  AddRotary(ops, "", {.ids = 3, .cos = 1, .microsoft = false});
  AddRotary(ops, "com.microsoft", {.ids = 1, .cos = 2, .microsoft = true});
}

}  // namespace pagefuse::cuda
