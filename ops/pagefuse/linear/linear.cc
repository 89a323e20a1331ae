// SPDX-License-Identifier: Apache-2.0
// Linear: rows times a constant matrix of bfloat16.
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({{"x", "T", "[..., K]"},
                     {"w", "bfloat16", "[N, K]"},
                     PortSpec("bias", "T", "[N]").Optional()});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

constexpr WeightPorts kPorts{.x = kIn["x"], .w = kIn["w"]};

absl::StatusOr<std::string> Decompose(const Node& node) {
  const bool adds = node.input(kIn["bias"]) != nullptr;
  return StrCat("Linear (x, w", adds ? ", bias" : "", ") => (y) {\n", RoundedText("x"),
                "  wide = Cast <to = 1> (w)\n  columns = Transpose <perm = [1, 0]> (wide)\n  ",
                adds ? "product" : "y", " = MatMul (rounded, columns)\n",
                adds ? "  y = Add (product, bias)\n" : "", "}");
}

// What one call computes from.
struct Call {
  int64_t k = 0, n = 0;
  RowsView x;
  OutputView y;
  const float* bias = nullptr;

  explicit Call(const KernelArgs& args) {
    const TensorArg &in = args.input(kIn["x"]), &w = args.input(kIn["w"]);
    n = w.dims[0];
    k = w.dims[1];
    x = {in.as<float>(), k == 0 ? 0 : in.size() / k, k};
    y = {args.output(0).as<float>(), n};
    bias = args.input(kIn["bias"]).as<float>();
  }
  void AddBias() const {
    for (int64_t r = 0; bias != nullptr && r < x.m; ++r) {
      for (int64_t i = 0; i < n; ++i) y.data[r * y.stride + i] += bias[i];
    }
  }
};

absl::Status RunReference(KernelArgs& args) {
  const Call call(args);
  const auto* w = args.input(kIn["w"]).as<Bfloat16>();
  for (int64_t r = 0; r < call.x.m; ++r) {
    for (int64_t n = 0; n < call.n; ++n) {
      call.y.data[r * call.y.stride + n] = static_cast<float>(
          Bf16ReferenceDot(call.x.data + r * call.x.stride, w + n * call.k, 1, call.k));
    }
  }
  call.AddBias();
  return absl::OkStatus();
}

absl::Status Run(KernelArgs& args) {
  const Call call(args);
  const PackedBf16 weight(Bf16BlocksOf(args, kIn["w"]), call.k, call.n);
  LinearBf16(call.x, weight, args.scratch->Get(LinearBf16ScratchBytes(call.x.m, call.k)), call.y);
  call.AddBias();
  return absl::OkStatus();
}

}  // namespace

OpDef LinearDef() {
  return OpDef("pagefuse", "Linear", /*since=*/1)
      .Doc("x * w^T + bias with x rounded to bfloat16: products are exact, sums in float.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Types("T", {DataType::kFloat})
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel(
          {.name = "bf16",
           .priority = 10,
           .supports =
               [](const KernelQuery& query) { return kPorts.ExpectBf16Rows(query, /*trans_b=*/1); },
           .prepare = PackedConstants::Prepare({{kIn["w"], &kBf16Blocks}}),
           .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
