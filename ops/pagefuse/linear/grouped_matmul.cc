// GroupedMatMul: each row of x times the matrix of its expert. The products of a mixture of experts
// (MegaBlocks, arXiv 2211.15841, section 4; vLLM's fused_moe).
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/pagefuse/linear/experts.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"x", "T", "[M, K]"},
    PortSpec("expert_ids", "Tind", "[M * repeat]: negative ones count from the end").Metadata(),
    {"weights", "T", "[E, N, K] if transB, else [E, K, N]"},
});
constexpr Ports kOut({{"y", "T", "[M * repeat, N]"}});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kXPort = kIn["x"], kIdsPort = kIn["expert_ids"], kWeightsPort = kIn["weights"];

struct Sizes {
  int64_t rows = 0, repeat = 1, experts = 0, k = 0, n = 0;
  bool trans_b = false;
};

absl::StatusOr<Sizes> SizesOf(const KernelArgs& args) {
  const std::vector<int64_t>& w = args.input(kIn["weights"]).dims;
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, args.node->IntAttribute("transB", 0));
  Sizes s;
  s.trans_b = trans_b != 0;
  PF_ASSIGN_OR_RETURN(s.repeat, RepeatOf(*args.node));
  s.rows = args.output(0).dims[0];
  s.experts = w[0];
  s.k = w[s.trans_b ? 2 : 1];
  s.n = w[s.trans_b ? 1 : 2];
  return s;
}

absl::Status Validate(const KernelArgs& args) {
  return CheckExpertIds(args, kIn["expert_ids"], args.input(kIn["weights"]).dims[0]);
}

template <typename T>
void ReferenceLoops(KernelArgs& args, const Sizes& s) {
  const std::vector<int64_t> experts = ExpertsOf(args, kIdsPort, s.experts);
  const T* x = args.input(kXPort).as<T>();
  const T* w = args.input(kWeightsPort).as<T>();
  T* y = args.output(0).as<T>();
  for (int64_t row = 0; row < s.rows; ++row) {
    const T* matrix = w + experts[row] * s.k * s.n;
    for (int64_t column = 0; column < s.n; ++column) {
      *y++ = static_cast<T>(ReferenceDot(x + row / s.repeat * s.k, 1,
                                         matrix + column * (s.trans_b ? s.k : 1),
                                         s.trans_b ? 1 : s.n, s.k));
    }
  }
}

absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  return DispatchFloat(args.input(kIn["x"]).dtype,
                       [&]<typename T>() { ReferenceLoops<T>(args, s); });
}

absl::Status Linear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  const ExpertGroups groups = GroupByExpert(ExpertsOf(args, kIdsPort, s.experts), s.experts);
  const float* w = args.input(kIn["weights"]).as<float>();
  const auto product = [&](int64_t expert, const RowsView& x, const OutputView& y,
                           Scratch& scratch) -> absl::Status {
    const WeightView matrix{w + expert * s.k * s.n, s.k, s.n, s.trans_b};
    const size_t bytes = LinearF32ScratchBytes(x.m, matrix);
    return LinearF32(x, matrix, bytes > 0 ? scratch.Get(bytes) : nullptr, y);
  };
  const GroupedRows rows{args.input(kIn["x"]).as<float>(), s.repeat, args.output(0).as<float>(),
                         s.k, s.n};
  return GroupedProduct(groups, rows, product, *args.scratch);
}

// What exporters write: a copy of the matrix for every row. Indices of GatherND are 64 bits wide.
absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  PF_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(node));
  const Value* ids = node.input(kIn["expert_ids"]);
  const bool casts = ids != nullptr && ids->dtype() == DataType::kInt32;
  const char* axis = trans_b ? "last" : "middle";
  const char* factors = trans_b ? "matrices, vectors" : "vectors, matrices";
  const char* rows = repeat == 1 ? "x" : "repeated";
  return absl::StrCat(
      "GroupedMatMul (x, expert_ids, weights) => (y) {\n",
      repeat == 1 ? std::string() : RepeatedRowsText(repeat),
      "  last = Constant <value_ints: ints = [-1]> ()\n",
      "  middle = Constant <value_ints: ints = [1]> ()\n",
      casts ? "  ids = Cast <to = 7> (expert_ids)\n" : "  ids = Identity (expert_ids)\n",
      "  index = Unsqueeze (ids, last)\n", "  matrices = GatherND (weights, index)\n",
      "  vectors = Unsqueeze (", rows, ", ", axis, ")\n", "  products = MatMul (", factors, ")\n",
      "  y = Squeeze (products, ", axis, ")\n}");
}

}  // namespace

OpDef GroupedMatMulDef() {
  return OpDef("pagefuse", "GroupedMatMul", /*since=*/1)
      .Doc(
          "Row t / repeat of x times matrix expert_ids[t]. Reads the matrices of experts that a row "
          "asks for, each once.")
      .Inputs(kIn)
      .Outputs(kOut)
      .FlagAttr("transB", int64_t{0}, "1: matrices are stored transposed")
      .Attr(kRepeat, int64_t{1}, kRepeatDoc)
      .AtLeast(1)
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Types("Tind", {DataType::kInt32, DataType::kInt64})
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear", .dtypes = {DataType::kFloat}, .priority = 10, .run = Linear});
}

}  // namespace pagefuse::pagefuse_ops
