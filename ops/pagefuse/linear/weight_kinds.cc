// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/code_lanes.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsSizes;

std::string_view NameOf(WeightKind kind) {
  switch (kind) {
    case WeightKind::kBf16:
      return "bfloat16";
    case WeightKind::kCodes:
      return "codes";
    case WeightKind::kNumbers:
      break;
  }
  return "numbers of the type of x";
}

}  // namespace

WeightKind WeightPorts::KindAt(const Node& node) const {
  if (scales >= 0 && scales < node.num_inputs() && node.input(scales) != nullptr) {
    return WeightKind::kCodes;
  }
  return node.input(w)->dtype() == node.input(x)->dtype() ? WeightKind::kNumbers
                                                          : WeightKind::kBf16;
}

absl::Status WeightPorts::Check(const ShapeContext& c) const {
  const DataType type = c.input_type(x), weight = c.input_type(w);
  const bool codes = scales >= 0 && scales < c.num_inputs() && c.has_input(scales);
  if (codes) {
    const Shape* shape = c.input_shape(x);
    const auto k = shape == nullptr ? std::nullopt : shape->back(0).constant();
    PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizesOf(c.node(), k.value_or(1), 1));
    PF_RETURN_IF_ERROR(sizes.Check(c));
    if (type == DataType::kFloat || type == DataType::kUndefined) return absl::OkStatus();
    return c.InputError(x, StrCat("expected float with codes, got ", DataTypeName(type)));
  }
  const bool known = type != DataType::kUndefined && weight != DataType::kUndefined;
  const bool rounds = type == DataType::kFloat && weight == DataType::kBfloat16;
  if (!known || type == weight || rounds) return absl::OkStatus();
  return c.InputError(
      w, StrCat("expected ", DataTypeName(type), type == DataType::kFloat ? " or bfloat16" : "",
                ", got ", DataTypeName(weight)));
}

absl::Status WeightPorts::Expect(const KernelQuery& query, WeightKind kind) const {
  const WeightKind found = KindAt(*query.node);
  if (found == kind) return absl::OkStatus();
  return absl::FailedPreconditionError(
      AbslView(StrCat("weights are ", NameOf(found), ", expected ", NameOf(kind))));
}

absl::Status WeightPorts::ExpectBf16Rows(const KernelQuery& query, int64_t trans_b) const {
  PF_RETURN_IF_ERROR(Expect(query, WeightKind::kBf16));
  if (!query.node->input(w)->IsConstant()) {
    return absl::FailedPreconditionError("weights are no constant");
  }
  if (trans_b == 0) return absl::FailedPreconditionError("transB is 0, expected 1");
  return absl::OkStatus();
}

absl::Status WeightPorts::ExpectInt8(const KernelQuery& query) const {
  PF_RETURN_IF_ERROR(Expect(query, WeightKind::kCodes));
  PF_RETURN_IF_ERROR(ExpectConstants(*query.node, {w, scales}));
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizes(*query.node));
  return microsoft_ops::SupportsInt8(*query.node, sizes);
}

absl::StatusOr<NBitsSizes> WeightPorts::CodeSizes(const Node& node) const {
  const auto& in = node.input(x)->shape();
  const auto& codes = node.input(w)->shape();
  const auto k = in && in->rank() > 0 ? in->back(0).constant() : std::nullopt;
  const auto n = codes && codes->rank() > 2 ? codes->back(2).constant() : std::nullopt;
  if (k && n) return CodeSizesOf(node, *k, *n);
  return absl::FailedPreconditionError("the sizes of the weight are not known");
}

absl::StatusOr<NBitsSizes> CodeSizesOf(const Node& node, int64_t k, int64_t n) {
  NBitsSizes sizes{.k = k, .n = n};
  PF_ASSIGN_OR_RETURN(sizes.bits, node.IntAttribute("bits", 4));
  PF_ASSIGN_OR_RETURN(sizes.block, node.IntAttribute("block_size", 0));
  return sizes;
}

void AddCodeAttributes(OpDef& op, const WeightPorts& ports) {
  const auto blocks = [ports](const ShapeContext& c) -> absl::StatusOr<Dim> {
    const Shape* x = c.input_shape(ports.x);
    const auto k = x == nullptr || x->rank() == 0 ? std::nullopt : x->back(0).constant();
    PF_ASSIGN_OR_RETURN(const int64_t block, c.node().IntAttribute("block_size", 0));
    if (!k || block <= 0) return Dim::Unknown();
    return Dim((*k + block - 1) / block);
  };
  op.Attr("bits", int64_t{4},
          "of a code: weights with scales are as com.microsoft.MatMulNBits has them, without zero "
          "points, (code - 2^(bits - 1)) * scale")
      .OneOf({2, 4, 8})
      .Attr("block_size", int64_t{0}, "of codes: a power of two from 16 on")
      .Attr("accuracy_level", int64_t{0}, microsoft_ops::kAccuracyLevelDoc)
      .Let("blocks", "K / block_size, rounded up", blocks);
}

double Bf16ReferenceDot(const float* x, const Bfloat16* w, int64_t step, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    sum += double{static_cast<float>(Bfloat16(x[i]))} * static_cast<float>(w[i * step]);
  }
  return sum;
}

std::string RoundedText(std::string_view x) {
  return StrCat("  narrow = Cast <to = 16> (", x, ")\n  rounded = Cast <to = 1> (narrow)\n");
}

}  // namespace pagefuse::pagefuse_ops
