// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/factors.h"

#include <algorithm>

#include "absl/strings/str_split.h"

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

class FactorReader {
 public:
  FactorReader(IndexingAnalysis& reader, Casts casts) : reader_(reader), casts_(casts) {}

  void Read(const Element& unresolved) {
    const Element element = reader_.Source(unresolved);
    // A product of products of one value has as many factors as there are ways to it: what is left is
    // one factor then.
    if (++steps_ > kMostSteps) return factors_.others.push_back(element);
    if (const auto number = reader_.Number(element)) {
      factors_.number *= *number;
      return;
    }
    if (element.From("Mul")) {
      Read(reader_.Operand(element, 0));
      Read(reader_.Operand(element, 1));
      return;
    }
    if (element.From("Neg")) {
      factors_.number = -factors_.number;
      return Read(reader_.Operand(element, 0));
    }
    if (element.From("Cast") && casts_ == Casts::kFollow &&
        IsFloatingPoint(element.value->dtype()) && KeepsNumbers(*element.producer())) {
      return Read(reader_.Operand(element, 0));
    }
    // Integers are cut.
    if (element.From("Div") && IsFloatingPoint(element.value->dtype())) {
      const auto divisor = reader_.Number(reader_.Operand(element, 1));
      if (divisor && *divisor != 0) {
        factors_.number /= *divisor;
        return Read(reader_.Operand(element, 0));
      }
    }
    if (element.From("DequantizeLinear") && ReadDequantised(element)) return;
    factors_.others.push_back(element);
  }

  Factors factors() { return std::move(factors_); }

 private:
  // scale[] of the tensor, [axis] of an axis, or one for every block_size elements of the axis.
  bool ReadDequantised(const Element& element) {
    const Node& node = *element.producer();
    Value* zero = node.input(ports::QuantizeLinear::kZeroPoint);
    const Tensor* point = zero ? ConstantOf(zero) : nullptr;
    if (zero && !(point && IsFilledWith(*point, 0))) return false;
    Element scale{node.input(ports::QuantizeLinear::kScale), {}};
    const auto& shape = scale.value->shape();
    if (!shape) return false;
    const int rank = static_cast<int>(element.at.size());
    const auto axis = NormalAxis(IntOr(node, "axis", 1), rank);
    const int64_t block = IntOr(node, "block_size", 0);
    if (shape->rank() == rank && block > 0) {
      scale.at = element.at;
      scale.at[axis] = DivMod(element.at[axis], Dim(block)).first;
    } else if (shape->rank() == 1 && axis < rank) {
      scale.at = {element.at[axis]};
    } else if (shape->rank() != 0) {
      return false;
    }
    Read(reader_.Operand(element, 0));
    Read(scale);
    return true;
  }

  static constexpr int kMostSteps = 512;
  IndexingAnalysis& reader_;
  Casts casts_;
  Factors factors_;
  int steps_ = 0;
};

// The dims of a MatMul operand's summed axis.
std::optional<SummedProduct> MatMulOf(IndexingAnalysis& reader, const Element& element) {
  const Node& node = *element.producer();
  Value* left = node.input(0);
  Value* right = node.input(1);
  const int rank = static_cast<int>(element.at.size());
  if (!left->shape() || !right->shape()) return std::nullopt;
  const int left_rank = left->shape()->rank();
  const int right_rank = right->shape()->rank();
  if (left_rank < 2 || right_rank < 2 || rank < 2) return std::nullopt;
  // Both are as long wherever the product is computed.
  Dim length = left->shape()->back(0);
  const Dim same = right->shape()->back(1);
  if (!length.known()) length = same;
  const IndexSymbolPtr summed = reader.NewAxis(length, {same});
  const auto batch = [&](int operand_rank) {
    return std::vector<IndexExpr>(element.at.begin() + (rank - operand_rank), element.at.end() - 2);
  };
  Element a{left, batch(left_rank)};
  a.at.push_back(element.at[rank - 2]);
  a.at.push_back(IndexExpr::Of(summed));
  Element b{right, batch(right_rank)};
  b.at.push_back(IndexExpr::Of(summed));
  b.at.push_back(element.at[rank - 1]);
  return SummedProduct{std::move(a), std::move(b), summed};
}

// Two factors, no label twice in one, one label summed.
std::optional<SummedProduct> EinsumOf(IndexingAnalysis& reader, const Element& element) {
  const Node& node = *element.producer();
  std::string equation = StringOr(node, "equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  if (sides.size() != 2 || node.num_inputs() != 2) return std::nullopt;
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (terms.size() != 2 || sides[1].size() != element.at.size()) return std::nullopt;
  SummedProduct product;
  Element* operands[] = {&product.left, &product.right};
  for (int i = 0; i < 2; ++i) {
    operands[i]->value = node.input(i);
    if (!node.input(i)->shape()) return std::nullopt;
    for (size_t axis = 0; axis < terms[i].size(); ++axis) {
      const size_t place = sides[1].find(terms[i][axis]);
      if (place != std::string::npos) {
        operands[i]->at.push_back(element.at[place]);
        continue;
      }
      if (!product.summed) {
        product.summed = reader.NewAxis((*node.input(i)->shape())[static_cast<int>(axis)]);
      } else if (i == 0) {
        return std::nullopt;
      }
      operands[i]->at.push_back(IndexExpr::Of(product.summed));
    }
  }
  if (!product.summed) return std::nullopt;
  return product;
}

// ReduceSum of an elementwise product along one axis.
std::optional<SummedProduct> ReducedProductOf(IndexingAnalysis& reader, const Element& element) {
  const auto reduced = ReducedBy(*element.producer(), reader.contents());
  if (!reduced) return std::nullopt;
  SummedProduct product;
  product.summed = reader.NewAxis(reduced->length);
  const Element factors = reader.Source(reduced->At(element, IndexExpr::Of(product.summed)));
  if (!factors.From("Mul")) return std::nullopt;
  product.left = reader.Operand(factors, 0);
  product.right = reader.Operand(factors, 1);
  reader.Visit(*element.producer());
  return product;
}

}  // namespace

bool KeepsNumbers(const Node& cast) {
  const DataType from = cast.input(0)->dtype(), to = cast.output(0)->dtype();
  if (from == to) return true;
  if (!IsFloatingPoint(from)) {
    return HoldsNumbersOf(to, from);
  }
  if (!IsFloatingPoint(to)) return false;
  if (to == DataType::kDouble) return true;
  if (to == DataType::kFloat) return from != DataType::kDouble;
  return BitWidth(from) == 8 && BitWidth(to) == 16;
}

Factors FactorsOf(IndexingAnalysis& reader, const Element& element, Casts casts) {
  FactorReader factors(reader, casts);
  factors.Read(element);
  return factors.factors();
}

std::optional<SummedProduct> ProductOf(IndexingAnalysis& reader, const Element& unresolved) {
  const Element element = reader.Source(unresolved);
  std::optional<SummedProduct> product;
  if (element.From("MatMul")) product = MatMulOf(reader, element);
  if (element.From("Einsum")) product = EinsumOf(reader, element);
  if (element.From("ReduceSum")) return ReducedProductOf(reader, element);
  if (!product) return product;
  (void)reader.Operand(element, 0);  // went through
  // A broadcast axis is read at 0.
  for (Element* side : {&product->left, &product->right}) *side = reader.Source(*side);
  return product;
}

}  // namespace pagefuse
