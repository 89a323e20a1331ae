// GroupedMatMulNBits: GroupedMatMul with experts of 4 or 8 bits, as MatMulNBits has them.
#include <cstdint>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/pagefuse/linear/experts.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsSizes;

constexpr Ports kIn({
    {"x", "T", "[M, K]"},
    PortSpec("expert_ids", "Tind", "[M * repeat]: negative ones count from the end").Metadata(),
    {"weights", "uint8", "[E, N, blocks, block_size * bits / 8]"},
    {"scales", "T", "[E, N, blocks]"},
});
constexpr Ports kOut({{"y", "T", "[M * repeat, N]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(c.node()));
  PF_RETURN_IF_ERROR(s.Check(c));
  const Shape* codes = c.input_shape(kIn["weights"]);
  const Dim experts = codes != nullptr && codes->rank() == 4 ? (*codes)[0] : Dim::Unknown();
  PF_RETURN_IF_ERROR(ExpectShape(
      c, kIn["weights"], Shape({experts, Dim(s.n), Dim(s.blocks()), Dim(s.block_bytes())})));
  PF_RETURN_IF_ERROR(ExpectShape(c, kIn["scales"], Shape({experts, Dim(s.n), Dim(s.blocks())})));
  return SetRepeatedRowsOutput(c, kIn["x"], s.n);
}

absl::Status Validate(const KernelArgs& args) {
  return CheckExpertIds(args, kIn["expert_ids"], args.input(kIn["weights"]).dims[0]);
}

// The matrices of all experts, then a copy for every row, as exporters write it.
absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(node));
  const auto& codes = node.input(kIn["weights"])->shape();
  const auto experts =
      codes && codes->rank() == 4 ? (*codes)[0].constant() : std::optional<int64_t>();
  if (!experts) return absl::FailedPreconditionError("the number of experts is not known");
  PF_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(node));
  NBitsSizes all = s;
  all.n = *experts * s.n;
  return StrCat("GroupedMatMulNBits (x, expert_ids, weights, scales) => (y) {\n",
                microsoft_ops::DecodedRowsText(all, "weights", microsoft_ops::ZeroPoints::kNone),
                "  stack = Constant <value_ints: ints = [", *experts, ", ", s.n, ", ", s.k,
                "]> ()\n  stacked = Reshape (decoded, stack)\n",
                "  last = Constant <value_ints: ints = [-1]> ()\n",
                "  ids = Cast <to = 7> (expert_ids)\n  index = Unsqueeze (ids, last)\n",
                "  matrices = GatherND (stacked, index)\n", RepeatedRowsText(repeat),
                "  vectors = Unsqueeze (repeated, last)\n",
                "  products = MatMul (matrices, vectors)\n  y = Squeeze (products, last)\n}");
}

// What one call computes from. Points into the arguments: scales are float.
struct Call {
  NBitsSizes sizes;
  int64_t repeat = 1;
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::vector<int64_t> experts;  // of each row
  int64_t num_experts = 0;

  NBitsWeight Weight(int64_t expert) const {
    NBitsWeight w = sizes.Weight(codes, {});
    w.codes += expert * sizes.n * w.row_bytes;
    w.scales = scales + expert * sizes.n * sizes.blocks();
    return w;
  }
};

absl::StatusOr<Call> CallOf(const KernelArgs& args) {
  Call call;
  PF_ASSIGN_OR_RETURN(call.sizes, NBitsSizes::Of(*args.node));
  PF_ASSIGN_OR_RETURN(call.repeat, RepeatOf(*args.node));
  call.codes = args.input(kIn["weights"]).as<uint8_t>();
  call.scales = args.input(kIn["scales"]).as<float>();
  call.num_experts = args.input(kIn["weights"]).dims[0];
  call.experts = ExpertsOf(args, kIn["expert_ids"], call.num_experts);
  return call;
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  const NBitsSizes& s = call.sizes;
  const auto* x = args.input(kIn["x"]).as<float>();
  auto* y = args.output(0).as<float>();
  for (size_t row = 0; row < call.experts.size(); ++row) {
    const NBitsWeight w = call.Weight(call.experts[row]);
    for (int64_t n = 0; n < s.n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        const int64_t b = k / s.block;
        sum += (static_cast<double>(w.Code(n, k)) - w.Zero(n, b)) * w.scales[n * s.blocks() + b] *
               x[k];
      }
      *y++ = static_cast<float>(sum);
    }
    if ((row + 1) % static_cast<size_t>(call.repeat) == 0) x += s.k;
  }
  return absl::OkStatus();
}

using Product = absl::Status (*)(const RowsView& x, const NBitsWeight& w, Scratch& scratch,
                                 const OutputView& y);

absl::Status FloatProduct(const RowsView& x, const NBitsWeight& w, Scratch& scratch,
                          const OutputView& y) {
  return LinearNBits(x, w, NBitsPrecision::kFloat32, scratch.Get(NBitsScratchBytes(x.m, w)), y);
}

absl::Status Int8Product(const RowsView& x, const NBitsWeight& w, Scratch& scratch,
                         const OutputView& y) {
  LinearNBitsInt8(x, w, scratch.Get(NBitsInt8ScratchBytes(x.m, w)), y);
  return absl::OkStatus();
}

absl::Status Run(KernelArgs& args, Product product) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  const ExpertGroups groups = GroupByExpert(call.experts, call.num_experts);
  const GroupedRows rows{args.input(kIn["x"]).as<float>(), call.repeat, args.output(0).as<float>(),
                         call.sizes.k, call.sizes.n};
  const auto of_expert = [&](int64_t expert, const RowsView& x, const OutputView& y,
                             Scratch& scratch) {
    return product(x, call.Weight(expert), scratch, y);
  };
  return GroupedProduct(groups, rows, of_expert, *args.scratch);
}

}  // namespace

OpDef GroupedMatMulNBitsDef() {
  return OpDef("pagefuse", "GroupedMatMulNBits", /*since=*/1)
      .Doc(
          "Row t / repeat of x times matrix expert_ids[t], transposed, of matrices as com.microsoft."
          "MatMulNBits has them, without zero points: (code - 2^(bits - 1)) * scale. Reads the "
          "matrices of experts that a row asks for, each once.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("K", "columns of a matrix")
      .RequiredAttr("N", "rows of a matrix")
      .Attr(kRepeat, int64_t{1}, kRepeatDoc)
      .AtLeast(1)
      .Attr("bits", int64_t{4}, "4 or 8")
      .RequiredAttr("block_size", "a power of two from 16 on")
      .Attr("accuracy_level", int64_t{0}, microsoft_ops::kAccuracyLevelDoc)
      .Types("T", {DataType::kFloat})
      .Types("Tind", {DataType::kInt32, DataType::kInt64})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "hwy",
                  .priority = 10,
                  .run = [](KernelArgs& args) { return Run(args, FloatProduct); }})
      .AddKernel({.name = "int8",
                  .priority = 20,
                  .supports = microsoft_ops::SupportsInt8,
                  .run = [](KernelArgs& args) { return Run(args, Int8Product); }});
}

}  // namespace pagefuse::pagefuse_ops
