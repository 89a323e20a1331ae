// SPDX-License-Identifier: Apache-2.0
// GroupedMatMul: each row of x times the matrix of its expert. The products of a mixture of experts
// (MegaBlocks, arXiv 2211.15841, section 4; vLLM's fused_moe).
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/pagefuse/linear/experts.h"
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/code_lanes.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsSizes;

constexpr Ports kIn({
    {"x", "T", "[M, K]"},
    PortSpec("expert_ids", "Tind", "[M * repeat]: negative ones count from the end").Metadata(),
    {"weights", "uint8 if scales, else W",
     "[E, N, blocks, block_size * bits / 8] if scales, [E, N, K] if transB, else [E, K, N]: where W "
     "is bfloat16 and T float, x is rounded to bfloat16, products are exact, sums in float"},
    PortSpec("scales", "T", "[E, N, blocks]").Optional(),
});
constexpr Ports kOut({{"y", "T", "[M * repeat, N]"}});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kXPort = kIn["x"], kIdsPort = kIn["expert_ids"], kWeightsPort = kIn["weights"];
constexpr int kScalesPort = kIn["scales"];

constexpr WeightPorts kPorts{.x = kXPort, .w = kWeightsPort, .scales = kScalesPort};

absl::Status Validate(const KernelArgs& args) {
  return CheckExpertIds(args, kIn["expert_ids"], args.input(kIn["weights"]).dims[0]);
}

// --- what it means in standard ops ---

// What exporters write: a copy of the matrix for every row. Indices of GatherND are 64 bits wide.
// `rows` are multiplied by `stack`, whose matrices `turned` ones are transposed.
std::string ProductsText(const std::string& rows, const std::string& stack, bool turned,
                         bool casts) {
  const char* axis = turned ? "last" : "middle";
  return StrCat("  last = Constant <value_ints: ints = [-1]> ()\n",
                "  middle = Constant <value_ints: ints = [1]> ()\n",
                casts ? "  ids = Cast <to = 7> (expert_ids)\n" : "  ids = Identity (expert_ids)\n",
                "  index = Unsqueeze (ids, last)\n", "  matrices = GatherND (", stack, ", index)\n",
                "  vectors = Unsqueeze (", rows, ", ", axis, ")\n", "  products = MatMul (",
                turned ? "matrices, vectors" : "vectors, matrices", ")\n",
                "  y = Squeeze (products, ", axis, ")\n}");
}

// Lines that define `stack` in float from codes.
absl::StatusOr<std::string> DecodedStackText(const Node& node) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, kPorts.CodeSizes(node));
  const auto experts = (*node.input(kIn["weights"])->shape())[0].constant();
  if (!experts) return absl::FailedPreconditionError("the number of experts is not known");
  NBitsSizes all = s;
  all.n = *experts * s.n;
  return StrCat(microsoft_ops::DecodedRowsText(all, "weights", microsoft_ops::ZeroPoints::kNone),
                "  sizes = Constant <value_ints: ints = [", *experts, ", ", s.n, ", ", s.k,
                "]> ()\n  stack = Reshape (decoded, sizes)\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, node.IntAttribute("transB", 0));
  PF_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(node));
  const Value* ids = node.input(kIn["expert_ids"]);
  const bool casts = ids != nullptr && ids->dtype() == DataType::kInt32;
  constexpr char kHead[] = "GroupedMatMul (x, expert_ids, weights) => (y) {\n";
  switch (kPorts.KindAt(node)) {
    case WeightKind::kNumbers:
      return StrCat(kHead, repeat == 1 ? std::string() : RepeatedRowsText(repeat),
                    ProductsText(repeat == 1 ? "x" : "repeated", "weights", trans_b != 0, casts));
    case WeightKind::kBf16:
      return StrCat(kHead, RepeatedRowsText(repeat), RoundedText("repeated"),
                    "  stack = Cast <to = 1> (weights)\n",
                    ProductsText("rounded", "stack", trans_b != 0, casts));
    case WeightKind::kCodes:
      break;
  }
  PF_ASSIGN_OR_RETURN(const std::string stack, DecodedStackText(node));
  return StrCat("GroupedMatMul (x, expert_ids, weights, scales) => (y) {\n", stack,
                RepeatedRowsText(repeat),
                ProductsText("repeated", "stack", /*turned=*/true, casts));
}

// --- kernels ---

struct Sizes {
  int64_t rows = 0, repeat = 1, experts = 0, k = 0, n = 0;
  bool trans_b = false;
};

absl::StatusOr<Sizes> SizesOf(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, args.node->IntAttribute("transB", 0));
  Sizes s;
  s.trans_b = trans_b != 0;
  PF_ASSIGN_OR_RETURN(s.repeat, RepeatOf(*args.node));
  s.rows = args.output(0).dims[0];
  s.experts = args.input(kIn["weights"]).dims[0];
  s.k = args.input(kIn["x"]).dims[1];
  s.n = args.output(0).dims[1];
  return s;
}

// Matrices of codes. Points into the arguments: scales are float.
struct Codes {
  NBitsSizes sizes;
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;

  static absl::StatusOr<Codes> Of(const KernelArgs& args, const Sizes& s) {
    PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizesOf(*args.node, s.k, s.n));
    return Codes{.sizes = sizes,
                 .codes = args.input(kIn["weights"]).as<uint8_t>(),
                 .scales = args.input(kIn["scales"]).as<float>()};
  }
  NBitsWeight Matrix(int64_t expert) const {
    NBitsWeight w = sizes.Weight(codes, {});
    w.codes += expert * sizes.n * w.row_bytes;
    w.scales = scales + expert * sizes.n * sizes.blocks();
    return w;
  }
};

// Every number of y by dot(x, expert, column).
template <typename T, typename Dot>
void FillEach(KernelArgs& args, const Sizes& s, const Dot& dot) {
  const std::vector<int64_t> experts = ExpertsOf(args, kIdsPort, s.experts);
  const T* x = args.input(kXPort).as<T>();
  T* y = args.output(0).as<T>();
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t column = 0; column < s.n; ++column) {
      *y++ =
          static_cast<T>(static_cast<float>(dot(x + row / s.repeat * s.k, experts[row], column)));
    }
  }
}

template <typename T, typename W>
void ReferenceLoops(KernelArgs& args, const Sizes& s) {
  const W* w = args.input(kWeightsPort).as<W>();
  FillEach<T>(args, s, [&](const T* x, int64_t expert, int64_t column) {
    const W* from = w + expert * s.k * s.n + column * (s.trans_b ? s.k : 1);
    const int64_t step = s.trans_b ? 1 : s.n;
    if constexpr (std::is_same_v<T, W>) {
      return ReferenceDot(x, 1, from, step, s.k);
    } else {
      return Bf16ReferenceDot(x, from, step, s.k);
    }
  });
}

absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  switch (kPorts.KindAt(*args.node)) {
    case WeightKind::kBf16:
      ReferenceLoops<float, Bfloat16>(args, s);
      return absl::OkStatus();
    case WeightKind::kCodes: {
      PF_ASSIGN_OR_RETURN(const Codes codes, Codes::Of(args, s));
      FillEach<float>(args, s, [&](const float* x, int64_t expert, int64_t column) {
        return microsoft_ops::NBitsReferenceDot(x, codes.Matrix(expert), column);
      });
      return absl::OkStatus();
    }
    case WeightKind::kNumbers:
      break;
  }
  return DispatchFloat(args.input(kIn["x"]).dtype,
                       [&]<typename T>() { ReferenceLoops<T, T>(args, s); });
}

// The rows of each expert by `product`.
absl::Status RunByExpert(KernelArgs& args, const Sizes& s, const ExpertProduct& product) {
  const ExpertGroups groups = GroupByExpert(ExpertsOf(args, kIdsPort, s.experts), s.experts);
  const ExpertRows rows{args.input(kIn["x"]).as<float>(), s.repeat, args.output(0).as<float>(), s.k,
                        s.n};
  return GroupedProduct(groups, rows, product, *args.scratch);
}

absl::Status RunLinear(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  const float* w = args.input(kIn["weights"]).as<float>();
  return RunByExpert(args, s,
                     [&](int64_t expert, const RowsView& x, const OutputView& y, Scratch& scratch) {
                       const WeightView matrix{w + expert * s.k * s.n, s.k, s.n, s.trans_b};
                       LinearF32(x, matrix, scratch.Get(LinearF32ScratchBytes(x.m, matrix)), y);
                       return absl::OkStatus();
                     });
}

absl::Status RunBf16(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  const uint16_t* words = Bf16BlocksOf(args, kIn["weights"]);
  return RunByExpert(
      args, s, [&](int64_t expert, const RowsView& x, const OutputView& y, Scratch& scratch) {
        const PackedBf16 matrix(words + expert * PackedBf16::Words(s.k, s.n), s.k, s.n);
        LinearBf16(x, matrix, scratch.Get(LinearBf16ScratchBytes(x.m, s.k)), y);
        return absl::OkStatus();
      });
}

absl::Status RunCodes(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  PF_ASSIGN_OR_RETURN(const Codes codes, Codes::Of(args, s));
  return RunByExpert(args, s,
                     [&](int64_t expert, const RowsView& x, const OutputView& y, Scratch& scratch) {
                       const NBitsWeight w = codes.Matrix(expert);
                       return LinearNBits(x, w, NBitsPrecision::kFloat32,
                                          scratch.Get(NBitsScratchBytes(x.m, w)), y);
                     });
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareInt8(const PrepareArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, kPorts.CodeSizes(*args.query.node));
  const PackedMatrices experts{.count = args.constants[kWeightsPort]->dims()[0], .rows = sizes.n};
  return std::make_unique<PackedConstants>(CodeLanePorts(kWeightsPort, kScalesPort, experts));
}

absl::Status RunInt8(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizesOf(*args.node, s.k, s.n));
  return RunByExpert(args, s,
                     [&](int64_t expert, const RowsView& x, const OutputView& y, Scratch& scratch) {
                       const NBitsLanes w = sizes.Lanes(args, kWeightsPort, kScalesPort, expert);
                       LinearNBitsInt8(x, w, scratch.Get(NBitsInt8ScratchBytes(x.m, w)), y);
                       return absl::OkStatus();
                     });
}

absl::Status SupportsBf16(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const int64_t trans_b, query.node->IntAttribute("transB", 0));
  return kPorts.ExpectBf16Rows(query, trans_b);
}

auto Expecting(WeightKind kind) {
  return [kind](const KernelQuery& query) { return kPorts.Expect(query, kind); };
}

}  // namespace

OpDef GroupedMatMulDef() {
  OpDef op("pagefuse", "GroupedMatMul", /*since=*/1);
  op.Doc(
        "Row t / repeat of x times matrix expert_ids[t]. Reads the matrices of experts that a row "
        "asks for, each once.")
      .Inputs(kIn)
      .Outputs(kOut)
      .FlagAttr("transB", int64_t{0}, "1: matrices are stored transposed; codes always are")
      .Attr(kRepeat, int64_t{1}, kRepeatDoc)
      .AtLeast(1)
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Types("W", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .Types("Tind", {DataType::kInt32, DataType::kInt64})
      .InferShapes([](ShapeContext& c) { return kPorts.Check(c); })
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .supports = Expecting(WeightKind::kNumbers),
                  .run = RunLinear})
      .AddKernel({.name = "bf16",
                  .priority = 20,
                  .supports = SupportsBf16,
                  .prepare = PackedConstants::Prepare({{kWeightsPort, &kBf16Blocks}}),
                  .run = RunBf16})
      .AddKernel({.name = "hwy",
                  .priority = 20,
                  .supports = Expecting(WeightKind::kCodes),
                  .run = RunCodes})
      .AddKernel({.name = "int8",
                  .priority = 30,
                  .supports = [](const KernelQuery& query) { return kPorts.ExpectInt8(query); },
                  .prepare = PrepareInt8,
                  .run = RunInt8});
  AddCodeAttributes(op, kPorts);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
