// GroupedMatMulBf16: GroupedMatMul with experts of bfloat16 that lie as kernels read them.
#include <cstdint>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"
#include "pagefuse/ops/pagefuse/linear/experts.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"x", "T", "[M, K]"},
    PortSpec("expert_ids", "Tind", "[M * repeat]: negative ones count from the end").Metadata(),
    {"w", "bfloat16", "[E, column_blocks, row_blocks, 16, 16, 2]"},
});
constexpr Ports kOut({{"y", "T", "[M * repeat, N]"}});

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Bf16Sizes s, Bf16Sizes::Of(c.node()));
  const Shape* stack = c.input_shape(kIn["w"]);
  Shape expected = Shape::FromInts(s.Dims());
  expected.dims().insert(expected.dims().begin(),
                         stack != nullptr && stack->rank() > 0 ? (*stack)[0] : Dim::Unknown());
  PF_RETURN_IF_ERROR(ExpectShape(c, kIn["w"], expected));
  return SetRepeatedRowsOutput(c, kIn["x"], s.n);
}

absl::Status Validate(const KernelArgs& args) {
  return CheckExpertIds(args, kIn["expert_ids"], args.input(kIn["w"]).dims[0]);
}

// The matrices of all experts, then a copy for every row, as exporters write it.
absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(node));
  return StrCat("GroupedMatMulBf16 (x, expert_ids, w) => (y) {\n",
                DecodedBf16Text(Bf16Lead::kExperts), RepeatedRowsText(repeat),
                RoundedText("repeated"), "  last = Constant <value_ints: ints = [-1]> ()\n",
                "  middle = Constant <value_ints: ints = [1]> ()\n",
                "  ids = Cast <to = 7> (expert_ids)\n  index = Unsqueeze (ids, last)\n",
                "  matrices = GatherND (weight, index)\n",
                "  vectors = Unsqueeze (rounded, middle)\n",
                "  products = MatMul (vectors, matrices)\n  y = Squeeze (products, middle)\n}");
}

// What one call computes from.
struct Call {
  Bf16Sizes sizes;
  int64_t repeat = 1;
  const uint16_t* words = nullptr;
  std::vector<int64_t> experts;  // of each row
  int64_t num_experts = 0;

  PackedBf16 Weight(int64_t expert) const {
    return PackedBf16::Over(words + expert * sizes.words(), sizes.k, sizes.n);
  }
};

absl::StatusOr<Call> CallOf(const KernelArgs& args) {
  Call call;
  PF_ASSIGN_OR_RETURN(call.sizes, Bf16Sizes::Of(*args.node));
  PF_ASSIGN_OR_RETURN(call.repeat, RepeatOf(*args.node));
  call.words = Bf16WeightOf(args, kIn["w"]).as<uint16_t>();
  call.num_experts = args.input(kIn["w"]).dims[0];
  call.experts = ExpertsOf(args, kIn["expert_ids"], call.num_experts);
  return call;
}

absl::Status RunReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  const auto* x = args.input(kIn["x"]).as<float>();
  auto* y = args.output(0).as<float>();
  for (size_t row = 0; row < call.experts.size(); ++row) {
    const PackedBf16 weight = call.Weight(call.experts[row]);
    for (int64_t n = 0; n < weight.n(); ++n) {
      *y++ = static_cast<float>(Bf16ReferenceDot(x, weight, n));
    }
    if ((row + 1) % static_cast<size_t>(call.repeat) == 0) x += call.sizes.k;
  }
  return absl::OkStatus();
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  const ExpertGroups groups = GroupByExpert(call.experts, call.num_experts);
  const GroupedRows rows{args.input(kIn["x"]).as<float>(), call.repeat, args.output(0).as<float>(),
                         call.sizes.k, call.sizes.n};
  const auto product = [&](int64_t expert, const RowsView& x, const OutputView& y,
                           Scratch& scratch) -> absl::Status {
    LinearBf16(x, call.Weight(expert), scratch.Get(LinearBf16ScratchBytes(x.m, call.sizes.k)), y);
    return absl::OkStatus();
  };
  return GroupedProduct(groups, rows, product, *args.scratch);
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const PrepareArgs& args) {
  return PrepareBf16Weight(args, kIn["w"]);
}

}  // namespace

OpDef GroupedMatMulBf16Def() {
  return OpDef("pagefuse", "GroupedMatMulBf16", /*since=*/1)
      .Doc(StrCat("Row t / repeat of x, rounded to bfloat16, times matrix expert_ids[t]: products "
                  "are exact, sums in float. Reads the matrices of experts that a row asks for, "
                  "each once. ",
                  kBf16Doc))
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("K", "rows of a matrix")
      .AtLeast(1)
      .RequiredAttr("N", "columns of a matrix")
      .AtLeast(1)
      .Attr(kRepeat, int64_t{1}, kRepeatDoc)
      .AtLeast(1)
      .Types("T", {DataType::kFloat})
      .Types("Tind", {DataType::kInt32, DataType::kInt64})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = RunReference})
      .AddKernel({.name = "bf16", .priority = 10, .prepare = Prepare, .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
