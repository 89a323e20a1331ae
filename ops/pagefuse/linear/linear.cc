// SPDX-License-Identifier: Apache-2.0
// Linear: rows times a constant matrix of bfloat16, or rows of matrices times those of a stack.
#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/product_batch.h"
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn(
    {{"x", "T", "[..., K]"},
     {"w", "bfloat16",
      "[N, K] or [G, N, K]: a stack, under an x of [..., G, M, K] whose rows at g are "
      "multiplied by matrix g"},
     PortSpec("bias", "T", "[N]").Optional()});
constexpr Ports kOut({{"y", "T", "[..., N]"}});

constexpr WeightPorts kPorts{.x = kIn["x"], .w = kIn["w"]};
constexpr int kStackRank = 3;

// Under a stack x has as many matrices of rows: neither side is repeated.
absl::Status CheckStack(const ShapeContext& c) {
  const Shape *x = c.input_shape(kIn["x"]), *w = c.input_shape(kIn["w"]);
  if (x == nullptr || w == nullptr || w->rank() < kStackRank) return absl::OkStatus();
  const Dim& matrices = (*w)[0];
  if (x->rank() >= kStackRank && !Differ(x->back(2), matrices)) return absl::OkStatus();
  return c.InputError(kIn["x"], StrCat("expected [..., G, M, K] with G = ", matrices.ToString(),
                                       " of \"w\", got ", x->ToString()));
}

bool IsStack(const Value* w) {
  return w != nullptr && w->shape() && w->shape()->rank() == kStackRank;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const bool adds = node.input(kIn["bias"]) != nullptr;
  return StrCat("Linear (x, w", adds ? ", bias" : "", ") => (y) {\n", RoundedText("x"),
                "  wide = Cast <to = 1> (w)\n  columns = Transpose <perm = [",
                IsStack(node.input(kIn["w"])) ? "0, 2, 1" : "1, 0", "]> (wide)\n  ",
                adds ? "product" : "y", " = MatMul (rounded, columns)\n",
                adds ? "  y = Add (product, bias)\n" : "", "}");
}

// What one call computes from: products of m rows each. Those of a stack take its matrices in turn.
struct Call {
  ProductBatch products;
  int64_t matrices = 1;
  const float* x = nullptr;
  float* y = nullptr;
  const float* bias = nullptr;

  explicit Call(const KernelArgs& args) {
    const TensorArg &in = args.input(kIn["x"]), &w = args.input(kIn["w"]), &out = args.output(0);
    products.n = w.dim(-2);
    products.k = w.dim(-1);
    products.m = products.n == 0 ? 0 : out.size() / products.n;
    products.count = 1;
    if (w.dims.size() == kStackRank) {
      matrices = w.dims[0];
      const int64_t rows = products.m;
      products.m = in.dim(-2);
      products.count = products.m == 0 ? 0 : rows / products.m;
    }
    x = in.as<float>();
    y = out.as<float>();
    bias = args.input(kIn["bias"]).as<float>();
  }
  RowsView RowsOf(int64_t product) const {
    return {x + product * products.m * products.k, products.m, products.k};
  }
  OutputView OutputOf(int64_t product) const {
    return {y + product * products.m * products.n, products.n};
  }
  const Bfloat16* MatrixOf(int64_t product, const Bfloat16* rows) const {
    return rows + product % matrices * products.n * products.k;
  }
  PackedBf16 MatrixOf(int64_t product, const uint16_t* words) const {
    const auto [count, m, n, k] = products;
    return {words + product % matrices * PackedBf16::Words(k, n), k, n};
  }

  void AddBias() const {
    const int64_t n = products.n;
    for (int64_t r = 0; bias != nullptr && r < products.count * products.m; ++r) {
      for (int64_t i = 0; i < n; ++i) y[r * n + i] += bias[i];
    }
  }
};

absl::Status RunReference(KernelArgs& args) {
  const Call call(args);
  const auto [count, m, n, k] = call.products;
  const auto* w = args.input(kIn["w"]).as<Bfloat16>();
  for (int64_t p = 0; p < count; ++p) {
    const float* x = call.RowsOf(p).data;
    const Bfloat16* matrix = call.MatrixOf(p, w);
    float* y = call.OutputOf(p).data;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        y[r * n + i] = static_cast<float>(Bf16ReferenceDot(x + r * k, matrix + i * k, 1, k));
      }
    }
  }
  call.AddBias();
  return absl::OkStatus();
}

void Multiply(const Call& call, const uint16_t* words, Scratch& memory) {
  const ProductBatch& products = call.products;
  const auto [count, m, n, k] = products;
  if (k == 0) {  // nothing is packed
    std::fill_n(call.y, count * m * n, 0.0f);
    return;
  }
  const size_t scratch_bytes = LinearBf16ScratchBytes(m, k);
  ForEachProduct(products, memory, [&](int64_t p, Scratch& scratch) {
    LinearBf16(call.RowsOf(p), call.MatrixOf(p, words), scratch.Get(scratch_bytes),
               call.OutputOf(p));
  });
}

absl::Status Run(KernelArgs& args) {
  const Call call(args);
  Multiply(call, Bf16BlocksOf(args, kIn["w"]), *args.scratch);
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
      .InferShapes([](ShapeContext& c) { return CheckStack(c); })
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
