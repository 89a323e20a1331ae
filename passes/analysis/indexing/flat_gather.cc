#include "pagefuse/passes/analysis/indexing/flat_gather.h"

#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// The number that an operand holds, if it is one.
std::optional<Dim> HeldNumber(const Value* value, const SymbolicContents& contents) {
  if (const Tensor* tensor = ConstantOf(value)) {
    const auto numbers = IntegerValues(*tensor);
    if (!numbers.ok() || numbers->size() != 1) return std::nullopt;
    return Dim(numbers->front());
  }
  const auto it = contents.find(value);
  if (it == contents.end() || it->second.size() != 1 || !it->second[0].known()) return std::nullopt;
  return it->second[0];
}

// The matrix that was laid out in one row, or one column.
const Value* FlattenedMatrix(const Value* value) {
  const Node* reshape = value->producer();
  if (reshape == nullptr || !reshape->Is("Reshape") || !value->shape()) return nullptr;
  const Value* matrix = reshape->input(0);
  if (!matrix->shape() || matrix->shape()->rank() != 2) return nullptr;
  const Shape& flat = *value->shape();
  const bool is_column = flat.rank() == 2 && flat[1].constant() == 1;
  if (flat.rank() != 1 && !is_column) return nullptr;
  const Shape& sides = *matrix->shape();
  return ProvablyEqual(flat[0], sides[0] * sides[1]) ? matrix : nullptr;
}

}  // namespace

std::optional<FlatGather> FindFlatGather(const Node& gather, const SymbolicContents& contents) {
  if (!gather.Is("Gather") || IntOr(gather, "axis", 0) != 0) return std::nullopt;
  FlatGather found{.matrix = FlattenedMatrix(gather.input(0))};
  const Node* sum = gather.input(1)->producer();
  if (found.matrix == nullptr || sum == nullptr || !sum->Is("Add")) return std::nullopt;
  const Dim& columns = (*found.matrix->shape())[1];
  for (const int side : {0, 1}) {
    const Node* product = sum->input(side)->producer();
    if (product == nullptr || !product->Is("Mul")) continue;
    for (const int factor : {0, 1}) {
      const auto number = HeldNumber(product->input(factor), contents);
      if (!number || !ProvablyEqual(*number, columns)) continue;
      found.rows = product->input(1 - factor);
      found.columns = sum->input(1 - side);
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace pagefuse
