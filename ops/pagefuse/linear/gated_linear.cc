// GatedLinear: activation(x * w_gate) * (x * w_up), the first half of a gated MLP.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/kernels/linalg/activation.h"
#include "pagefuse/kernels/linalg/linear_bf16.h"
#include "pagefuse/kernels/linalg/linear_f32.h"
#include "pagefuse/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"x", "T", "[..., K]"},
    {"w_gate", "T", "[K, N]"},
    {"w_up", "T", "[K, N]"},
});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

DecompositionVariant Variant(const std::string& name) {
  const Activation activation = *ActivationFromName(name);
  return {name,
          absl::StrCat("GatedLinear (x, w_gate, w_up) => (y) {\n  gate = MatMul (x, w_gate)\n",
                       GateText(activation, "gate", "activated"),
                       "  up = MatMul (x, w_up)\n  y = Mul (activated, up)\n}"),
          {{"activation", Attribute{name, "", ""}}}};
}

absl::StatusOr<DecompositionVariant> Decompose(const Node& node) {
  PF_RETURN_IF_ERROR(GateOf(node).status());
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("activation", ""));
  return Variant(name);
}

template <typename T>
void ReferenceLoops(KernelArgs& args, Activation activation) {
  const ProductDims dims = DimsOf({}, args.input(kIn["x"]), args.input(kIn["w_gate"]));
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const T* x = args.input(kIn["x"]).as<T>();
  const T* gate = args.input(kIn["w_gate"]).as<T>();
  const T* up = args.input(kIn["w_up"]).as<T>();
  T* y = args.output(0).as<T>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < dims.n; ++column) {
      const double g = ReferenceDot(x + row * dims.k, 1, gate + column, dims.n, dims.k);
      const double u = ReferenceDot(x + row * dims.k, 1, up + column, dims.n, dims.k);
      *y++ = static_cast<T>(static_cast<float>(ApplyActivation(activation, g) * u));
    }
  }
}

absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Activation activation, GateOf(*args.node));
  return DispatchFloat(args.input(kIn["x"]).dtype,
                       [&]<typename T>() { ReferenceLoops<T>(args, activation); });
}

WeightView ViewOf(const float* data, const std::vector<int64_t>& dims) {
  return {data, dims[0], dims[1], false};
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  const Tensor* gate = args.constants[kIn["w_gate"]];
  const Tensor* up = args.constants[kIn["w_up"]];
  if (args.query.weight_type != WeightType::kBfloat16 || gate == nullptr || up == nullptr) {
    return nullptr;
  }
  PF_ASSIGN_OR_RETURN(
      PackedBf16 packed,
      PackedBf16::PackGated(ViewOf(gate->values<float>().data(), gate->dims()),
                            ViewOf(up->values<float>().data(), up->dims()), ReleaseOf({gate, up})));
  return std::make_unique<PackedWeight>(std::move(packed));
}

absl::Status Linear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Activation activation, GateOf(*args.node));
  const TensorArg& w = args.input(kIn["w_gate"]);
  const ProductDims dims = DimsOf({}, args.input(kIn["x"]), w);
  const int64_t rows = static_cast<int64_t>(dims.a_index.size()) * dims.m;
  const RowsView x{args.input(kIn["x"]).as<float>(), rows, dims.k};
  const OutputView y{args.output(0).as<float>(), dims.n};
  if (args.state != nullptr) {
    const PackedBf16& packed = static_cast<const PackedWeight*>(args.state)->packed();
    void* scratch = args.scratch->Get(LinearBf16ScratchBytes(rows, dims.k));
    GatedLinearBf16(x, packed, activation, scratch, y);
    return absl::OkStatus();
  }
  const WeightView gate = ViewOf(w.as<float>(), w.dims);
  const WeightView up = ViewOf(args.input(kIn["w_up"]).as<float>(), w.dims);
  void* scratch = args.scratch->Get(GatedLinearF32ScratchBytes(rows, gate));
  return GatedLinearF32(x, gate, up, activation, scratch, y);
}

}  // namespace

OpDef GatedLinearDef() {
  return OpDef("pagefuse", "GatedLinear", /*since=*/1)
      .Doc("activation(x * w_gate) * (x * w_up), the first half of a gated MLP, in one pass.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("activation", "gelu_tanh is the tanh form")
      .OneOf({"gelu", "gelu_tanh", "silu"})
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Decomposition(Decompose)
      .Variants([] {
        return std::vector<DecompositionVariant>{Variant("gelu_tanh"), Variant("gelu"),
                                                 Variant("silu")};
      })
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .prepare = Prepare,
                  .run = Linear});
}

}  // namespace pagefuse::pagefuse_ops
