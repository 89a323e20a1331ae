// MatMulBf16: rows times a constant matrix of bfloat16 that lies as kernels read it.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({{"x", "T", "[..., K]"},
                     {"w", "bfloat16", kBf16Blocks},
                     PortSpec("bias", "T", "[N]").Optional()});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(c.node()));
  PF_RETURN_IF_ERROR(ExpectShape(c, kIn["w"], Shape::FromInts(s.Dims())));
  SetRowsOutput(c, kIn["x"], s);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const bool adds = node.input(kIn["bias"]) != nullptr;
  return StrCat("MatMulBf16 (x, w", adds ? ", bias" : "", ") => (y) {\n", RoundedText("x"),
                DecodedBf16Text(Bf16Lead::kNone), "  ", adds ? "product" : "y",
                " = MatMul (rounded, weight)\n", adds ? "  y = Add (product, bias)\n" : "", "}");
}

// What one call computes from.
struct Call {
  PackedBf16 weight;
  RowsView x;
  OutputView y;
  const float* bias = nullptr;

  void AddBias() const {
    for (int64_t r = 0; bias != nullptr && r < x.m; ++r) {
      for (int64_t n = 0; n < weight.n(); ++n) y.data[r * y.stride + n] += bias[n];
    }
  }
};

absl::StatusOr<Call> CallOf(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(*args.node));
  const TensorArg& x = args.input(kIn["x"]);
  return Call{.weight = PackedOf(Bf16WeightOf(args, kIn["w"]), s),
              .x = {x.as<float>(), x.size() / s.k, s.k},
              .y = {args.output(0).as<float>(), s.n},
              .bias = args.input(kIn["bias"]).as<float>()};
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  for (int64_t r = 0; r < call.x.m; ++r) {
    for (int64_t n = 0; n < call.weight.n(); ++n) {
      call.y.data[r * call.y.stride + n] =
          static_cast<float>(Bf16ReferenceDot(call.x.data + r * call.x.stride, call.weight, n));
    }
  }
  call.AddBias();
  return absl::OkStatus();
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  void* scratch = args.scratch->Get(LinearBf16ScratchBytes(call.x.m, call.weight.k()));
  LinearBf16(call.x, call.weight, scratch, call.y);
  call.AddBias();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  return PrepareBf16Weight(args, kIn["w"]);
}

}  // namespace

OpDef MatMulBf16Def() {
  return OpDef("pagefuse", "MatMulBf16", /*since=*/1)
      .Doc(StrCat("x * w + bias with x rounded to bfloat16: products are exact, sums in float. ",
                  kBf16Doc))
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("K", "rows of the matrix")
      .AtLeast(1)
      .RequiredAttr("N", "columns of the matrix")
      .AtLeast(1)
      .Types("T", {DataType::kFloat})
      .InferShapes(Infer)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "bf16", .priority = 10, .prepare = Prepare, .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
