// SPDX-License-Identifier: Apache-2.0
// SplitLinear: several linear layers over one input as one product, whose columns go to an output
// for each of them. A Split behind the product would copy every row; here each sum is stored where
// its reader wants it, so that one launch is all that the layers take.
#include "pagefuse/ops/pagefuse/linear/split_linear.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int kX = kSplitLinearIn["x"], kW = kSplitLinearIn["w"], kBias = kSplitLinearIn["bias"];

// One for each output, also where nobody reads it; each of a column at least, all of those that the
// weight has.
absl::Status CheckParts(const ShapeContext& c, const std::vector<int64_t>& parts) {
  int outputs = 1;
  for (int i = 0; i < c.num_outputs(); ++i) outputs = c.has_output(i) ? i + 1 : outputs;
  const auto count = static_cast<int>(parts.size());
  if (count < outputs || count > kMostLinearParts) {
    return c.AttributeError("parts", StrCat("has ", count, " sizes for ", outputs, " of ",
                                            kMostLinearParts, " outputs"));
  }
  for (const int64_t part : parts) {
    if (part < 1 || part > kMaxElements) {
      return c.AttributeError("parts", StrCat("expected positive sizes, got ", part));
    }
  }
  const int64_t total = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  const Shape* w = c.input_shape(kW);
  const auto rows = w == nullptr ? std::nullopt : (*w)[0].constant();
  if (!rows || *rows == total) return absl::OkStatus();
  return c.AttributeError("parts", StrCat("add up to ", total, ", expected N = ", *rows));
}

absl::Status Infer(ShapeContext& c) {
  PF_RETURN_IF_ERROR(kSplitLinearPorts.Check(c));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, c.node().IntsAttribute("parts", {}));
  PF_RETURN_IF_ERROR(CheckParts(c, parts));
  const Shape* x = c.input_shape(kX);
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    std::optional<Shape> y;
    if (x != nullptr) {
      y = *x;
      y->dims().back() = Dim(parts[i]);
    }
    c.SetOutput(i, c.input_type(kX), std::move(y));
  }
  return absl::OkStatus();
}

// Lines that define `product` of `x` [.., K] and the ports of the weight.
absl::StatusOr<std::string> ProductText(const Node& node) {
  if (kSplitLinearPorts.KindAt(node) != WeightKind::kCodes) {
    return StrCat(RoundedText("x"), "  wide = Cast <to = 1> (w)\n",
                  "  columns = Transpose <perm = [1, 0]> (wide)\n",
                  "  product = MatMul (rounded, columns)\n");
  }
  PF_ASSIGN_OR_RETURN(const auto s, kSplitLinearPorts.CodeSizes(node));
  return StrCat("  product = com.microsoft.MatMulNBits <K = ", s.k, ", N = ", s.n,
                ", bits = ", s.bits, ", block_size = ", s.block, "> (x, w, scales)\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, node.IntsAttribute("parts", {}));
  PF_ASSIGN_OR_RETURN(const std::string product, ProductText(node));
  const bool adds = node.input(kBias) != nullptr;
  const bool codes = kSplitLinearPorts.KindAt(node) == WeightKind::kCodes;
  std::vector<std::string> outputs, cut;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool read = node.output(static_cast<int>(i)) != nullptr;
    cut.push_back(StrCat(read ? "y" : "unread", i));
    if (read) outputs.push_back(cut.back());
  }
  return StrCat("SplitLinear (x, w", adds ? ", bias" : "", codes ? ", scales" : "", ") => (",
                absl::StrJoin(outputs, ", "), ") {\n", product,
                adds ? "  whole = Add (product, bias)\n" : "  whole = Identity (product)\n",
                "  sizes = Constant <value_ints: ints = [", absl::StrJoin(parts, ", "), "]> ()\n  ",
                absl::StrJoin(cut, ", "), " = Split <axis = -1> (whole, sizes)\n}");
}

absl::Status Reference(KernelArgs& args) {
  if (kSplitLinearPorts.KindAt(*args.node) == WeightKind::kCodes) {
    return RunSplitCodesReference(args);
  }
  PF_ASSIGN_OR_RETURN(const SplitLinearCall call, SplitLinearCall::Of(args));
  const auto* w = args.input(kW).as<Bfloat16>();
  for (const LinearPart& part : call.parts) {
    for (int64_t r = 0; part.y != nullptr && r < call.x.m; ++r) {
      for (int64_t i = 0; i < part.n; ++i) {
        part.y[r * part.n + i] = static_cast<float>(Bf16ReferenceDot(
            call.x.data + r * call.x.stride, w + (part.begin + i) * call.k, 1, call.k));
      }
    }
  }
  call.AddBias();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SplitLinearCall> SplitLinearCall::Of(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, args.node->IntsAttribute("parts", {}));
  const TensorArg& x = args.input(kX);
  SplitLinearCall call;
  call.k = x.dim(-1);
  call.bias = args.input(kBias).as<float>();
  call.x = {x.as<float>(), call.k == 0 ? 0 : x.size() / call.k, call.k};
  for (size_t i = 0; i < sizes.size(); ++i) {
    call.parts.push_back({call.n, sizes[i], args.output(static_cast<int>(i)).as<float>()});
    call.n += sizes[i];
  }
  return call;
}

void SplitLinearCall::AddBias() const {
  if (bias == nullptr) return;
  for (const LinearPart& part : parts) {
    for (int64_t r = 0; part.y != nullptr && r < x.m; ++r) {
      for (int64_t i = 0; i < part.n; ++i) part.y[r * part.n + i] += bias[part.begin + i];
    }
  }
}

OpDef SplitLinearDef() {
  OpDef op("pagefuse", "SplitLinear", /*since=*/1);
  op.Doc(
        "x * w^T + bias, cut into parts along its last axis: linear layers over one input as one "
        "product.")
      .Inputs(kSplitLinearIn)
      .RequiredAttr("parts", "columns of each output, N in all")
      .Types("T", {DataType::kFloat})
      .InferShapes(Infer)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "bf16",
                  .priority = 20,
                  .supports =
                      [](const KernelQuery& query) {
                        return kSplitLinearPorts.ExpectBf16Rows(query, /*trans_b=*/1);
                      },
                  .prepare = PackedConstants::Prepare({{kW, &kBf16Blocks}}),
                  .run = RunSplitBf16})
      .AddKernel({.name = "hwy",
                  .priority = 20,
                  .supports =
                      [](const KernelQuery& query) {
                        return kSplitLinearPorts.Expect(query, WeightKind::kCodes);
                      },
                  .run = RunSplitCodes})
      .AddKernel(
          {.name = "int8",
           .priority = 30,
           .supports = [](const KernelQuery& query) { return kSplitLinearPorts.ExpectInt8(query); },
           .prepare = PrepareSplitInt8,
           .run = RunSplitInt8});
  for (int i = 0; i < kMostLinearParts; ++i) {
    op.Output(StrCat("y", i), "T", StrCat("[..., ", "parts[", i, "]]"),
              i == 0 ? PortKind::kRequired : PortKind::kOptional);
  }
  AddCodeAttributes(op, kSplitLinearPorts);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
