#include "pagefuse/passes/analysis/masks/mask_reader.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/analysis/indexing/flat_gather.h"
#include "pagefuse/passes/analysis/indexing/index_expr.h"
#include "pagefuse/passes/analysis/masks/mask_constants.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {
namespace {

using Symbol = MaskAtom;
using Predicate = MaskPredicate;

bool IsRealigning(const Node* node) {
  return node->Is("Unsqueeze") || node->Is("Squeeze") || node->Is("Reshape") || node->Is("Expand");
}

class MaskReader {
 public:
  explicit MaskReader(const SymbolicContents& contents) : contents_(contents) {}

  // Where `value` is not zero, or, `negated`, where it is.
  absl::StatusOr<Predicate> ReadBool(const Value* value, bool negated = false) {
    PF_RETURN_IF_ERROR(CountValue(value));
    if (value->IsConstant()) {
      return ReadConstantMask(value, SeesTruth(negated));
    }
    const Node* node = value->producer();
    if (!node) return ReadPadding(value, negated);
    // Of a conjunction, the negation is none.
    if (node->Is("And") && !negated) return ReadBoth(*node, kTruth, false);
    if (node->Is("Or") && negated) return ReadBoth(*node, kTruth, true);
    if (IsComparison(*node)) return ReadComparison(*node, negated);
    if (node->Is("Equal") && negated) return ReadNotEqual(*node);
    if (node->Is("Not")) return ReadBool(node->input(0), !negated);
    if (node->Is("Sub")) return ReadDifferenceFromOne(*node, negated);
    if (node->Is("Identity") || node->Is("Cast")) return ReadBool(node->input(0), negated);
    if (node->Is("GatherND")) return ReadGatherND(*node, negated);
    if (const auto flat = FindFlatGather(*node, contents_)) return ReadFlat(*node, *flat, negated);
    if (node->Is("Trilu")) return ReadTriangle(*node, SeesTruth(negated), contents_);
    if (node->Is("ConstantOfShape")) return ReadFilled(*node, SeesTruth(negated));
    return ReadMoved(*node, kTruth, negated);
  }

  absl::StatusOr<Predicate> ReadAdditive(const Value* value) {
    PF_RETURN_IF_ERROR(CountValue(value));
    if (value->IsConstant()) {
      return ReadConstantMask(value, SeesAdded);
    }
    const Node* node = value->producer();
    if (!node) return MaskStoppedAt(value, "is no mask that a sub-graph explains");
    if (node->Is("Where")) return ReadWhere(*node);
    if (node->Is("Mul")) return ReadProduct(*node);
    if (node->Is("Trilu")) return ReadTriangle(*node, SeesAdded, contents_);
    if (node->Is("ConstantOfShape")) return ReadFilled(*node, SeesAdded);
    if (node->Is("Add")) return ReadBoth(*node, kAdded, false);
    if (node->Is("Identity") || node->Is("Cast")) return ReadAdditive(node->input(0));
    return ReadMoved(*node, kAdded, false);
  }

 private:
  // A value that both operands of a conjunction are computed from is read twice.
  absl::Status CountValue(const Value* value) {
    constexpr int kMaxValues = 512;
    if (++values_ <= kMaxValues) return absl::OkStatus();
    return MaskStoppedAt(value, "is computed in too many steps");
  }

  enum Meaning { kTruth, kAdded };
  absl::StatusOr<Predicate> Read(const Value* value, Meaning meaning, bool negated) {
    return meaning == kAdded ? ReadAdditive(value) : ReadBool(value, negated);
  }

  // Elements of the mask that were moved, repeated or left out.
  absl::StatusOr<Predicate> ReadMoved(const Node& node, Meaning meaning, bool negated) {
    const bool cut = node.Is("Slice"), gathered = node.Is("Gather"),
               realigned = IsRealigning(&node);
    if (!cut && !gathered && !realigned) {
      return MaskStoppedAt(node.output(0), StrCat("(", node.op_type(), ") is not understood"));
    }
    PF_ASSIGN_OR_RETURN(Predicate inner, Read(node.input(0), meaning, negated));
    if (cut) return ReadSlice(node, std::move(inner));
    if (gathered) return ReadGather(node, std::move(inner));
    return ReadRealigned(node, std::move(inner));
  }

  // A mask input [B, T] read as it is.
  static absl::StatusOr<Predicate> ReadPadding(const Value* value, bool negated) {
    if (negated) return MaskStoppedAt(value, "is a mask of what is hidden");
    if (MaskRank(value) != 2)
      return MaskStoppedAt(value, "is an input that is no [batch, key] mask");
    return Predicate{Symbol{.bound = {},
                            .padding = value,
                            .batch_axis = 0,
                            .key_axis = 1,
                            .lengths = value->shape()->dims()}};
  }

  static bool IsComparison(const Node& node) {
    return node.Is("LessOrEqual") || node.Is("Less") || node.Is("GreaterOrEqual") ||
           node.Is("Greater");
  }

  // One input + strict <= the other, as one - other + strict <= 0.
  absl::StatusOr<Predicate> ReadComparison(const Node& node, bool negated) {
    const bool greater = node.Is("Greater") || node.Is("GreaterOrEqual");
    const bool strict = node.Is("Greater") || node.Is("Less");
    if (const auto counted = ReadCounted(node, greater); counted && strict && !negated) {
      return Predicate{*counted};
    }
    PF_ASSIGN_OR_RETURN(const auto operands, ReadIndexOperands(node, contents_));
    const auto& [a, b] = operands;
    Symbol symbol;
    symbol.bound = greater == negated ? a - b : b - a;
    symbol.bound.constant = symbol.bound.constant + Dim(strict != negated ? 1 : 0);
    symbol.lengths = node.output(0)->shape()->dims();
    return Predicate{symbol};
  }

  // The mask input [B, T] whose ones are counted by row, behind views and casts; null if it is
  // another value.
  static const Value* CountedInput(const Value* value) {
    const Node* node = value->producer();
    while (node && (node->Is("Cast") || node->Is("Identity") || IsRealigning(node))) {
      node = node->input(0)->producer();
    }
    const bool sums = node && node->Is("ReduceSum") && MaskRank(node->input(0)) == 2;
    const Tensor* axes = sums ? ConstantOf(node->input(1)) : nullptr;
    const auto axis = axes ? IntegerValues(*axes) : absl::StatusOr<std::vector<int64_t>>();
    if (!axes || !axis.ok() || axis->size() != 1 || NormalAxis(axis->front(), 2) != 1) {
      return nullptr;
    }
    const Value* mask = node->input(0);
    for (const Node* step = mask->producer(); step != nullptr; step = mask->producer()) {
      const bool is_set = step->Is("Equal") && MaskNumber(step->input(1)) == 1.0;
      if (!is_set && !step->Is("Cast") && !step->Is("Identity")) return nullptr;
      mask = step->input(0);
    }
    return mask->is_input() && MaskRank(mask) == 2 ? mask : nullptr;
  }

  // key < count[batch], of shape [batch, key].
  std::optional<Symbol> ReadCounted(const Node& node, bool greater) const {
    const Value* counts = node.input(greater ? 0 : 1);
    const Value* padding = CountedInput(counts);
    const auto& shape = node.output(0)->shape();
    if (!padding || !shape || shape->rank() != 2 || MaskRank(counts) != 2) return std::nullopt;
    const auto key = ReadIndexExpression(node.input(greater ? 1 : 0), contents_);
    if (!key.ok() || !counts->shape()->back(0).is_constant()) return std::nullopt;
    const IndexExpression aligned = AlignedToRank(*key, 2);
    const bool counts_keys =
        aligned.constant.constant() == 0 && aligned.coefficients == std::vector<int64_t>{0, 1};
    if (!counts_keys || counts->shape()->back(0).constant() != 1) return std::nullopt;
    return Symbol{.bound = {},
                  .padding = padding,
                  .counted = true,
                  .batch_axis = 0,
                  .key_axis = 1,
                  .lengths = shape->dims()};
  }

  // not (mask == 0)
  absl::StatusOr<Predicate> ReadNotEqual(const Node& node) {
    for (int side : {0, 1}) {
      if (MaskNumber(node.input(side)) == 0.0) return ReadBool(node.input(1 - side));
    }
    return MaskStoppedAt(node.output(0), "compares with something else than 0");
  }

  // 1 - mask, for a mask of 0 and 1.
  absl::StatusOr<Predicate> ReadDifferenceFromOne(const Node& node, bool negated) {
    if (MaskNumber(node.input(0)) != 1.0) {
      return MaskStoppedAt(node.output(0), "subtracts from something else than 1");
    }
    if (!IsZeroOrOne(node.input(1))) {
      return MaskStoppedAt(node.input(1), "may be something else than 0 and 1");
    }
    return ReadBool(node.input(1), !negated);
  }

  // A mask of what is hidden, 1 or 0, times minus infinity.
  absl::StatusOr<Predicate> ReadProduct(const Node& node) {
    for (int side : {0, 1}) {
      const auto factor = MaskNumber(node.input(side));
      // An infinite factor makes NaN of 0.
      if (!factor || !HidesKey(*factor) || std::isinf(*factor)) continue;
      if (!IsZeroOrOne(node.input(1 - side))) continue;
      PF_ASSIGN_OR_RETURN(Predicate inner, ReadBool(node.input(1 - side), /*negated=*/true));
      return Lined(std::move(inner), node.input(1 - side), node.output(0));
    }
    return MaskStoppedAt(node.output(0), "is no product with a low number");
  }

  absl::StatusOr<Predicate> ReadBoth(const Node& node, Meaning meaning, bool negated) {
    Predicate all;
    for (const Value* input : node.inputs()) {
      PF_ASSIGN_OR_RETURN(Predicate part, Read(input, meaning, negated));
      for (Symbol& symbol : Lined(std::move(part), input, node.output(0))) {
        all.push_back(std::move(symbol));
      }
    }
    return all;
  }

  // Seen with the axes of `to`.
  static Predicate Lined(Predicate predicate, const Value* from, const Value* to) {
    for (Symbol& symbol : predicate)
      symbol = Aligned(std::move(symbol), MaskRank(from), MaskRank(to));
    return predicate;
  }

  // A mask but where a condition hides keys too: Where (hidden, low, mask), Where (seen, mask, low).
  absl::StatusOr<Predicate> ReadHiddenToo(const Node& node, int low, int mask) {
    PF_ASSIGN_OR_RETURN(Predicate all, ReadBool(node.input(0), low == ports::Where::kTrue));
    all = Lined(std::move(all), node.input(0), node.output(0));
    PF_ASSIGN_OR_RETURN(Predicate rest, ReadAdditive(node.input(mask)));
    rest = Lined(std::move(rest), node.input(mask), node.output(0));
    std::move(rest.begin(), rest.end(), std::back_inserter(all));
    return all;
  }

  absl::StatusOr<Predicate> ReadWhere(const Node& node) {
    const auto yes = MaskNumber(node.input(ports::Where::kTrue));
    const auto no = MaskNumber(node.input(ports::Where::kFalse));
    if (yes && !no && HidesKey(*yes)) {
      return ReadHiddenToo(node, ports::Where::kTrue, ports::Where::kFalse);
    }
    if (no && !yes && HidesKey(*no)) {
      return ReadHiddenToo(node, ports::Where::kFalse, ports::Where::kTrue);
    }
    if (!yes || !no) {
      return MaskStoppedAt(node.output(0), "chooses between values that are no constants");
    }
    const bool hidden = *no == 0 && HidesKey(*yes);
    if (!hidden && !(*yes == 0 && HidesKey(*no))) {
      return MaskStoppedAt(node.output(0), "does not choose between 0 and minus infinity");
    }
    PF_ASSIGN_OR_RETURN(Predicate inner, ReadBool(node.input(0), hidden));
    return Lined(std::move(inner), node.input(0), node.output(0));
  }

  // mask[index0, index1] with indices joined on the last axis: GatherND(mask, Concat(b, j)).
  absl::StatusOr<Predicate> ReadGatherND(const Node& node, bool negated) {
    PF_ASSIGN_OR_RETURN(int64_t batch_dims, node.IntAttribute("batch_dims", 0));
    const Node* join = node.input(1)->producer();
    if (batch_dims != 0 || !join || !join->Is("Concat") || join->num_inputs() != 2) {
      return MaskStoppedAt(node.output(0), "(GatherND) does not read a mask by (batch, key)");
    }
    PF_ASSIGN_OR_RETURN(Symbol symbol, ReadIndexed(node, node.input(0), negated));
    PF_ASSIGN_OR_RETURN(symbol.batch_axis, BatchAxis(join->input(0), *node.input(0)->shape()));
    PF_ASSIGN_OR_RETURN(symbol.key_axis, SingleAxis(join->input(1)));
    return Predicate{symbol};
  }

  // The same by one index.
  absl::StatusOr<Predicate> ReadFlat(const Node& node, const FlatGather& flat, bool negated) {
    PF_ASSIGN_OR_RETURN(Symbol symbol, ReadIndexed(node, flat.matrix, negated));
    PF_ASSIGN_OR_RETURN(symbol.batch_axis, BatchAxis(flat.rows, *flat.matrix->shape()));
    PF_ASSIGN_OR_RETURN(symbol.key_axis, SingleAxis(flat.columns));
    const int rank = MaskRank(node.input(1));
    if (symbol.batch_axis >= 0) symbol.batch_axis += rank - MaskRank(flat.rows);
    symbol.key_axis += rank - MaskRank(flat.columns);
    if (!ProvablyEqual(symbol.lengths[symbol.key_axis], (*flat.matrix->shape())[1])) {
      return MaskStoppedAt(node.output(0), "may read keys of the next row");
    }
    return Predicate{symbol};
  }

  // A factor of a [batch, key] mask that `node` reads by indices; which axes they run along is left
  // open.
  absl::StatusOr<Symbol> ReadIndexed(const Node& node, const Value* mask, bool negated) {
    PF_ASSIGN_OR_RETURN(const Predicate source, ReadBool(mask, negated));
    if (source.size() != 1 || !source[0].padding || MaskRank(mask) != 2) {
      return MaskStoppedAt(mask, "is no [batch, key] mask");
    }
    Symbol symbol = source[0];
    symbol.indexed = true;
    if (!node.output(0)->shape()) return MaskStoppedAt(node.output(0), "has an unknown shape");
    symbol.lengths = node.output(0)->shape()->dims();
    return symbol;
  }

  // As SingleAxis; -1 for the only row of a batch of one.
  absl::StatusOr<int> BatchAxis(const Value* index, const Shape& source) {
    PF_ASSIGN_OR_RETURN(IndexExpression expression, ReadIndexExpression(index, contents_));
    const auto& steps = expression.coefficients;
    const bool first = expression.constant.constant() == 0 &&
                       std::all_of(steps.begin(), steps.end(), [](int64_t c) { return c == 0; });
    if (first && source[0].constant() == 1) return -1;
    return SingleAxis(index);
  }

  // The axis that an index tensor [..., 1] counts along, from 0 by 1.
  absl::StatusOr<int> SingleAxis(const Value* index) {
    PF_ASSIGN_OR_RETURN(IndexExpression expression, ReadIndexExpression(index, contents_));
    int found = -1;
    for (int axis = 0; axis < static_cast<int>(expression.coefficients.size()); ++axis) {
      if (expression.coefficients[axis] == 0) continue;
      if (found != -1 || expression.coefficients[axis] != 1) {
        return MaskStoppedAt(index, "does not count along one axis by 1");
      }
      found = axis;
    }
    if (found < 0 || expression.constant.constant() != 0) {
      return MaskStoppedAt(index, "does not count along one axis from 0");
    }
    return found;
  }

  // Elements of some axes from a start on, by 1: indices count from there.
  absl::StatusOr<Predicate> ReadSlice(const Node& node, Predicate inner) {
    const auto cuts = CutsOfSlice(node, contents_);
    if (!cuts) return MaskStoppedAt(node.output(0), "cuts axes that are not known");
    for (const SliceCut& cut : *cuts) {
      if (cut.step != 1) return MaskStoppedAt(node.output(0), "is no slice by 1");
      if (cut.start.constant() == 0) continue;
      if (!ProvablyNotNegative(cut.start)) {
        return MaskStoppedAt(node.output(0), "is not known to start at the front");
      }
      PF_RETURN_IF_ERROR(Shift(node, cut.axis, cut.start, inner));
    }
    return Cut(node, std::move(inner));
  }

  // Elements of one axis by indices that count up by 1.
  absl::StatusOr<Predicate> ReadGather(const Node& node, Predicate inner) {
    const int axis = static_cast<int>(NormalAxis(IntOr(node, "axis", 0), MaskRank(node.input(0))));
    PF_ASSIGN_OR_RETURN(const IndexExpression index, ReadIndexExpression(node.input(1), contents_));
    if (index.coefficients.size() != 1 || index.coefficients[0] != 1) {
      return MaskStoppedAt(node.output(0), "gathers by indices that do not count up by 1");
    }
    if (!ProvablyNotNegative(index.constant)) {
      return MaskStoppedAt(node.output(0), "gathers from the end");
    }
    PF_RETURN_IF_ERROR(Shift(node, axis, index.constant, inner));
    return Cut(node, std::move(inner));
  }

  // Index 0 of an axis is `start` from here on.
  static absl::Status Shift(const Node& node, int axis, const Dim& start, Predicate& inner) {
    for (Symbol& symbol : inner) {
      if (symbol.lengths[axis].constant() == 1) continue;
      const bool moves_padding =
          symbol.padding && (axis == symbol.batch_axis || axis == symbol.key_axis);
      if (moves_padding && start.constant() != 0) {
        return MaskStoppedAt(node.output(0), "leaves out the first rows or keys of a padding mask");
      }
      if (symbol.padding) continue;
      symbol.bound.constant = symbol.bound.constant + Dim(symbol.bound.coefficients[axis]) * start;
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Predicate> Cut(const Node& node, Predicate inner) {
    const auto& whole = node.input(0)->shape();
    const auto& part = node.output(0)->shape();
    if (!whole || !part || whole->rank() != part->rank()) {
      return MaskStoppedAt(node.output(0), "has an unknown shape");
    }
    for (Symbol& symbol : inner) {
      symbol.indexed = true;
      for (int axis = 0; axis < whole->rank(); ++axis) {
        Dim& length = symbol.lengths[axis];
        // What is repeated before the cut may be repeated behind it too.
        if (length.constant() == 1) continue;
        length = ProvablyEqual(length, (*whole)[axis]) ? (*part)[axis] : Dim::Unknown();
      }
    }
    return inner;
  }

  static absl::StatusOr<Predicate> ReadRealigned(const Node& node, Predicate inner) {
    PF_ASSIGN_OR_RETURN(std::vector<int> axes, AxisMap(&node));
    for (Symbol& symbol : inner) {
      std::vector<Dim> lengths;
      for (int axis : axes) lengths.push_back(axis < 0 ? Dim(1) : symbol.lengths[axis]);
      symbol.lengths = std::move(lengths);
      if (symbol.padding) {
        symbol.batch_axis = PositionOf(axes, symbol.batch_axis);
        symbol.key_axis = PositionOf(axes, symbol.key_axis);
        continue;
      }
      std::vector<int64_t> moved;
      for (int axis : axes) moved.push_back(axis < 0 ? 0 : symbol.bound.coefficients[axis]);
      symbol.bound.coefficients = std::move(moved);
    }
    return inner;
  }

  static int PositionOf(const std::vector<int>& axes, int source) {
    if (source < 0) return -1;
    auto it = std::find(axes.begin(), axes.end(), source);
    return it == axes.end() ? -1 : static_cast<int>(it - axes.begin());
  }

  static Symbol Aligned(Symbol symbol, int from_rank, int to_rank) {
    symbol.lengths.insert(symbol.lengths.begin(), to_rank - from_rank, Dim(1));
    if (!symbol.padding) {
      symbol.bound = AlignedToRank(symbol.bound, to_rank);
      return symbol;
    }
    const int shift = to_rank - from_rank;
    if (symbol.batch_axis >= 0) symbol.batch_axis += shift;
    if (symbol.key_axis >= 0) symbol.key_axis += shift;
    return symbol;
  }

  const SymbolicContents& contents_;
  int values_ = 0;  // that were read
};

bool IsUnit(double number) { return number == 0 || number == 1; }

// True if all elements are.
bool HoldsUnits(const Tensor& tensor) {
  constexpr int64_t kMost = int64_t{1} << 26;  // no mask that somebody wrote into a model is larger
  if (tensor.size() > kMost || IsAbsent(tensor)) return false;
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  return DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()).ok() &&
         std::all_of(values.begin(), values.end(), IsUnit);
}

}  // namespace

bool IsZeroOrOne(const Value* value) {
  if (value->dtype() == DataType::kBool) return true;
  if (const auto fill = MaskFill(value)) return IsUnit(*fill);
  if (value->IsConstant()) return HoldsUnits(*value->initializer());
  const Node* node = value->producer();
  if (!node) return true;
  if (node->Is("Sub")) return MaskNumber(node->input(0)) == 1.0 && IsZeroOrOne(node->input(1));
  const bool moved = node->Is("Cast") || node->Is("Identity") || node->Is("Slice") ||
                     node->Is("Gather") || node->Is("GatherND") || node->Is("Trilu");
  return (moved || IsRealigning(node)) && IsZeroOrOne(node->input(0));
}

int MaskRank(const Value* value) { return value->shape() ? value->shape()->rank() : -1; }

absl::Status MaskStoppedAt(const Value* value, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("mask: \"", value->name(), "\" ", why));
}

absl::StatusOr<MaskPredicate> ReadMask(const Value* mask, const SymbolicContents& contents) {
  MaskReader reader(contents);
  return mask->dtype() == DataType::kBool ? reader.ReadBool(mask) : reader.ReadAdditive(mask);
}

}  // namespace pagefuse
