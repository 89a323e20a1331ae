// GatherBf16: columns of a matrix of bfloat16 that lies as kernels of products read it: a table of
// embeddings and the product with it, transposed, are the same memory.
#include <cstdint>
#include <optional>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn(
    {{"w", "bfloat16", kBf16Blocks},
     PortSpec("indices", "Tind", "[...]: negative ones count from the end").Metadata()});
constexpr Ports kOut({{"y", "float", "[..., K]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(c.node()));
  PF_RETURN_IF_ERROR(ExpectShape(c, kIn["w"], Shape::FromInts(s.Dims())));
  std::optional<Shape> y;
  if (c.input_shape(kIn["indices"]) != nullptr) {
    y = *c.input_shape(kIn["indices"]);
    y->dims().push_back(Dim(s.k));
  }
  c.SetOutput(0, DataType::kFloat, y);
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(*args.node));
  const TensorArg& indices = args.input(kIn["indices"]);
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = IndexAt(indices, i);
    if (index >= -s.n && index < s.n) continue;
    return InputRangeError(args, kIn["indices"],
                           StrCat("index ", index, " is out of range for ", s.n, " rows"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node&) {
  return StrCat("GatherBf16 (w, indices) => (y) {\n", DecodedBf16Text(Bf16Lead::kNone),
                "  table = Transpose <perm = [1, 0]> (weight)\n",
                "  y = Gather <axis = 0> (table, indices)\n}");
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(*args.node));
  const PackedBf16 table = PackedOf(args.input(kIn["w"]), s);
  const TensorArg& indices = args.input(kIn["indices"]);
  float* y = args.output(0).as<float>();
  // Each pair of numbers is in a cache line of its own.
  constexpr int64_t kBytesPerNumber = 32;
  ParallelFor(indices.size(), s.k * kBytesPerNumber, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = IndexAt(indices, i);
      const int64_t row = index < 0 ? index + s.n : index;
      for (int64_t k = 0; k < s.k; ++k) {
        y[i * s.k + k] = static_cast<float>(Bfloat16::FromBits(table.Word(k, row)));
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

OpDef GatherBf16Def() {
  return OpDef("pagefuse", "GatherBf16", /*since=*/1)
      .Doc(StrCat("Columns of a matrix as rows of float: y[.., k] = w[k, indices[..]]. ", kBf16Doc,
                  " A table of embeddings shares it with the product that gives logits."))
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("K", "numbers of a row of the table")
      .AtLeast(1)
      .RequiredAttr("N", "rows of the table")
      .AtLeast(1)
      .Types("Tind", {DataType::kInt32, DataType::kInt64})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
