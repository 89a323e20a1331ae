#include "pagefuse/passes/analysis/masks/mask_constants.h"

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
std::optional<double> MaskNumber(const Value* value) {
  if (!value->IsConstant() || value->initializer()->size() != 1) return std::nullopt;
  const Tensor& tensor = *value->initializer();
  if (IsAbsent(tensor)) return std::nullopt;
  if (tensor.dtype() == DataType::kFloat) return tensor.values<float>()[0];
  if (tensor.dtype() == DataType::kDouble) return tensor.values<double>()[0];
  auto integers = IntegerValues(tensor);
  if (integers.ok()) return static_cast<double>((*integers)[0]);
  return std::nullopt;
}

std::optional<double> MaskFill(const Value* value) {
  if (const auto scalar = MaskNumber(value)) return scalar;
  const Node* node = value->producer();
  if (!node) return std::nullopt;
  if (node->Is("Expand") || node->Is("Identity") || node->Is("Cast")) {
    return MaskFill(node->input(0));
  }
  if (!node->Is("ConstantOfShape")) return std::nullopt;
  const Attribute* fill = node->attribute("value");
  const auto* tensor = fill ? std::get_if<Tensor>(&fill->value) : nullptr;
  double number = 0;
  const bool known = tensor && tensor->size() == 1 && !IsAbsent(*tensor) &&
                     DecodeToDouble(tensor->dtype(), tensor->data(), 1, &number).ok();
  return fill && !known ? std::nullopt : std::optional<double>(number);
}

bool HidesKey(double value) { return value <= -1e4; }

std::function<Sees(double)> SeesTruth(bool negated) {
  return [negated](double element) {
    return (element != 0) != negated ? Sees::kVisible : Sees::kHidden;
  };
}
Sees SeesAdded(double element) {
  if (element == 0) return Sees::kVisible;
  return HidesKey(element) ? Sees::kHidden : Sees::kNeither;
}

namespace {

// j - i + constant <= 0, of keys up to a diagonal; or i - j + constant <= 0, of those from it on.
MaskAtom Limit(const std::vector<Dim>& lengths, bool up_to, Dim constant) {
  MaskAtom symbol;
  symbol.lengths = lengths;
  symbol.bound.coefficients.assign(lengths.size(), 0);
  symbol.bound.coefficients.back() = up_to ? 1 : -1;
  symbol.bound.coefficients[lengths.size() - 2] = up_to ? -1 : 1;
  symbol.bound.constant = std::move(constant);
  return symbol;
}

}  // namespace

absl::StatusOr<MaskPredicate> ReadConstantMask(const Value* value,
                                               const std::function<Sees(double)>& sees) {
  if (const auto scalar = MaskNumber(value)) {
    if (sees(*scalar) == Sees::kVisible) return MaskPredicate{};
    return MaskStoppedAt(value, "is a constant that shows nothing");
  }
  const auto band = ReadBand(*value->initializer(), sees);
  if (!band) return MaskStoppedAt(value, "is a constant that shows no band of keys");
  const std::vector<Dim>& lengths = value->shape()->dims();
  MaskPredicate limits;
  if (band->upper) limits.push_back(Limit(lengths, /*up_to=*/true, -*band->upper));
  if (band->lower) limits.push_back(Limit(lengths, /*up_to=*/false, *band->lower));
  return limits;
}

absl::StatusOr<MaskPredicate> ReadFilled(const Node& node,
                                         const std::function<Sees(double)>& sees) {
  const auto fill = MaskFill(node.output(0));
  if (fill && sees(*fill) == Sees::kVisible) return MaskPredicate{};
  return MaskStoppedAt(node.output(0), "is filled with a number that shows nothing");
}

// A number in one triangle, 0 in the other. Kept are j <= i + k (lower) or j >= i + k.
absl::StatusOr<MaskPredicate> ReadTriangle(const Node& node,
                                           const std::function<Sees(double)>& sees,
                                           const SymbolicContents& contents) {
  const auto fill = MaskFill(node.input(0));
  const auto& shape = node.output(0)->shape();
  const auto diagonal =
      node.input(1) ? KnownDims(node.input(1), contents) : std::optional(std::vector<Dim>{Dim(0)});
  if (!fill || !shape || !diagonal || diagonal->size() != 1 || !(*diagonal)[0].known()) {
    return MaskStoppedAt(node.output(0), "is no triangle of one number");
  }
  const Sees kept = sees(*fill), left = sees(0);
  if (kept == Sees::kNeither || left == Sees::kNeither || kept == left) {
    return MaskStoppedAt(node.output(0), "does not tell visible keys from hidden ones");
  }
  const bool upper = IntOr(node, "upper", 1) != 0;
  const Dim& k = (*diagonal)[0];
  const bool to_the_left = upper == (kept == Sees::kHidden);
  // Visible: j <= i + k, i + k - 1 if hidden from i + k on; or j >= i + k, i + k + 1.
  const Dim strict = kept == Sees::kHidden ? Dim(1) : Dim(0);
  return MaskPredicate{Limit(shape->dims(), to_the_left, (to_the_left ? Dim(0) - k : k) + strict)};
}

}  // namespace pagefuse
