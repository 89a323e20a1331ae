#include "pagefuse/passes/recognise/mask_analysis.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/absent_data.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/recognise/index_expression.h"

namespace pagefuse {
namespace {

absl::Status StoppedAt(const Value* value, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("mask: \"", value->name(), "\" ", why));
}

// One factor of the conjunction, over the indices of the value it was read from.
struct Atom {
  IndexExpression bound;           // visible only where bound <= 0
  const Value* padding = nullptr;  // or: visible only where padding[batch, key] is set
  bool indexed = false;            // padding is read by indices
  int batch_axis = -1;
  int key_axis = -1;
  std::vector<Dim> lengths;  // of the axes of the value that the factor was read from
};
using Predicate = std::vector<Atom>;  // empty: always visible

int RankOf(const Value* value) { return value->shape() ? value->shape()->rank() : -1; }

// The number in a constant with one element.
std::optional<double> ScalarOf(const Value* value) {
  if (!value->IsConstant() || value->initializer()->size() != 1) return std::nullopt;
  const Tensor& tensor = *value->initializer();
  if (IsAbsent(tensor)) return std::nullopt;
  if (tensor.dtype() == DataType::kFloat) return tensor.values<float>()[0];
  if (tensor.dtype() == DataType::kDouble) return tensor.values<double>()[0];
  auto integers = IntegerValues(tensor);
  if (integers.ok()) return static_cast<double>((*integers)[0]);
  return std::nullopt;
}

// Adding it hides a key: minus infinity, or so low that exp underflows beside any visible score.
bool Hides(double value) { return value <= -1e30; }

bool IsRealigning(const Node* node) {
  return node->Is("Unsqueeze") || node->Is("Squeeze") || node->Is("Reshape") || node->Is("Expand");
}

class MaskReader {
 public:
  explicit MaskReader(const SymbolicContents& contents) : contents_(contents) {}

  absl::StatusOr<Predicate> ReadBool(const Value* value) {
    PF_RETURN_IF_ERROR(CountValue(value));
    if (value->IsConstant()) {
      auto scalar = ScalarOf(value);
      if (scalar && *scalar != 0) return Predicate{};
      return StoppedAt(value, "is a constant mask");
    }
    const Node* node = value->producer();
    if (!node) return ReadPadding(value);
    if (node->Is("And")) return ReadBoth(node, /*additive=*/false);
    if (node->Is("LessOrEqual")) return ReadComparison(node, 0, 0);
    if (node->Is("Less")) return ReadComparison(node, 0, 1);
    if (node->Is("GreaterOrEqual")) return ReadComparison(node, 1, 0);
    if (node->Is("Greater")) return ReadComparison(node, 1, 1);
    if (node->Is("Not")) return ReadNot(node);
    if (node->Is("Identity")) return ReadBool(node->input(0));
    if (node->Is("Cast")) {
      const Value* source = node->input(0);
      return source->producer() ? ReadBool(source) : ReadPadding(source);
    }
    if (node->Is("GatherND")) return ReadGather(node);
    if (node->Is("Slice")) return ReadSlice(node, /*additive=*/false);
    if (IsRealigning(node)) return ReadRealigned(node, /*additive=*/false);
    return StoppedAt(value, StrCat("(", node->op_type(), ") is not understood"));
  }

  absl::StatusOr<Predicate> ReadAdditive(const Value* value) {
    PF_RETURN_IF_ERROR(CountValue(value));
    const Node* node = value->producer();
    if (!node) {
      auto scalar = ScalarOf(value);
      if (scalar && *scalar == 0) return Predicate{};
      return StoppedAt(value, "is no mask that a sub-graph explains");
    }
    if (node->Is("Where")) return ReadWhere(node);
    if (node->Is("Add")) return ReadBoth(node, /*additive=*/true);
    if (node->Is("Identity") || node->Is("Cast")) return ReadAdditive(node->input(0));
    if (node->Is("Slice")) return ReadSlice(node, /*additive=*/true);
    if (IsRealigning(node)) return ReadRealigned(node, /*additive=*/true);
    return StoppedAt(value, StrCat("(", node->op_type(), ") is not understood"));
  }

 private:
  // A value that both operands of a conjunction are computed from is read twice.
  absl::Status CountValue(const Value* value) {
    constexpr int kMaxValues = 512;
    if (++values_ <= kMaxValues) return absl::OkStatus();
    return StoppedAt(value, "is computed in too many steps");
  }

  // A mask input [B, T] read as it is.
  absl::StatusOr<Predicate> ReadPadding(const Value* value) {
    if (RankOf(value) != 2) return StoppedAt(value, "is an input that is no [batch, key] mask");
    return Predicate{Atom{.bound = {},
                          .padding = value,
                          .batch_axis = 0,
                          .key_axis = 1,
                          .lengths = value->shape()->dims()}};
  }

  // left + strict <= the other input, as left - other + strict <= 0.
  absl::StatusOr<Predicate> ReadComparison(const Node* node, int left, int64_t strict) {
    PF_ASSIGN_OR_RETURN(const auto operands, ReadIndexOperands(*node, contents_));
    const auto& [a, b] = operands;
    Atom atom;
    atom.bound = left == 0 ? a - b : b - a;
    atom.bound.constant = atom.bound.constant + Dim(strict);
    atom.lengths = node->output(0)->shape()->dims();
    return Predicate{atom};
  }

  absl::StatusOr<Predicate> ReadNot(const Node* node) {
    PF_ASSIGN_OR_RETURN(Predicate inner, ReadBool(node->input(0)));
    if (inner.size() != 1 || inner[0].padding) {
      return StoppedAt(node->output(0), "negates more than one comparison");
    }
    // not (x <= 0)  is  1 - x <= 0
    IndexExpression& bound = inner[0].bound;
    bound.constant = Dim(1) - bound.constant;
    for (int64_t& coefficient : bound.coefficients) coefficient = -coefficient;
    return inner;
  }

  absl::StatusOr<Predicate> ReadBoth(const Node* node, bool additive) {
    Predicate all;
    const int rank = RankOf(node->output(0));
    for (const Value* input : node->inputs()) {
      PF_ASSIGN_OR_RETURN(Predicate part, additive ? ReadAdditive(input) : ReadBool(input));
      for (Atom& atom : part) all.push_back(Aligned(std::move(atom), RankOf(input), rank));
    }
    return all;
  }

  absl::StatusOr<Predicate> ReadWhere(const Node* node) {
    auto yes = ScalarOf(node->input(1));
    auto no = ScalarOf(node->input(2));
    if (!yes || !no)
      return StoppedAt(node->output(0), "chooses between values that are no constants");
    const Value* visible = nullptr;
    if (*yes == 0 && Hides(*no)) visible = node->input(0);
    const Node* condition = node->input(0)->producer();
    if (*no == 0 && Hides(*yes) && condition && condition->Is("Not")) visible = condition->input(0);
    if (!visible) {
      return StoppedAt(node->output(0), "does not choose between 0 and minus infinity");
    }
    PF_ASSIGN_OR_RETURN(Predicate inner, ReadBool(visible));
    for (Atom& atom : inner) {
      atom = Aligned(std::move(atom), RankOf(visible), RankOf(node->output(0)));
    }
    return inner;
  }

  // mask[index0, index1] with indices joined on the last axis: GatherND(mask, Concat(b, j)).
  absl::StatusOr<Predicate> ReadGather(const Node* node) {
    PF_ASSIGN_OR_RETURN(int64_t batch_dims, node->IntAttribute("batch_dims", 0));
    const Node* join = node->input(1)->producer();
    if (batch_dims != 0 || !join || !join->Is("Concat") || join->num_inputs() != 2) {
      return StoppedAt(node->output(0), "(GatherND) does not read a mask by (batch, key)");
    }
    PF_ASSIGN_OR_RETURN(Predicate source, ReadBool(node->input(0)));
    if (source.size() != 1 || !source[0].padding || RankOf(node->input(0)) != 2) {
      return StoppedAt(node->input(0), "is no [batch, key] mask");
    }
    Atom atom = source[0];
    atom.indexed = true;
    PF_ASSIGN_OR_RETURN(atom.batch_axis, BatchAxis(join->input(0), *node->input(0)->shape()));
    PF_ASSIGN_OR_RETURN(atom.key_axis, SingleAxis(join->input(1)));
    if (!node->output(0)->shape()) return StoppedAt(node->output(0), "has an unknown shape");
    atom.lengths = node->output(0)->shape()->dims();
    return Predicate{atom};
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
        return StoppedAt(index, "does not count along one axis by 1");
      }
      found = axis;
    }
    if (found < 0 || expression.constant.constant() != 0) {
      return StoppedAt(index, "does not count along one axis from 0");
    }
    return found;
  }

  // The first elements along some axes: indices count as before.
  absl::StatusOr<Predicate> ReadSlice(const Node* node, bool additive) {
    const auto all = [&](int input, int64_t number) {
      const auto dims = KnownDims(node->input(input), contents_);
      return dims && std::all_of(dims->begin(), dims->end(),
                                 [&](const Dim& dim) { return dim.constant() == number; });
    };
    if (!all(1, 0) || (node->input(4) && !all(4, 1))) {
      return StoppedAt(node->output(0), "is no slice from 0 by 1");
    }
    PF_ASSIGN_OR_RETURN(Predicate inner,
                        additive ? ReadAdditive(node->input(0)) : ReadBool(node->input(0)));
    const auto& whole = node->input(0)->shape();
    const auto& part = node->output(0)->shape();
    if (!whole || !part) return StoppedAt(node->output(0), "has an unknown shape");
    for (Atom& atom : inner) {
      atom.indexed = true;
      for (size_t axis = 0; axis < atom.lengths.size(); ++axis) {
        const int i = static_cast<int>(axis);
        Dim& length = atom.lengths[axis];
        // What is repeated before the cut may be repeated behind it too.
        if (length.constant() == 1) continue;
        length = ProvablyEqual(length, (*whole)[i]) ? (*part)[i] : Dim::Unknown();
      }
    }
    return inner;
  }

  absl::StatusOr<Predicate> ReadRealigned(const Node* node, bool additive) {
    PF_ASSIGN_OR_RETURN(std::vector<int> axes, AxisMap(node));
    PF_ASSIGN_OR_RETURN(Predicate inner,
                        additive ? ReadAdditive(node->input(0)) : ReadBool(node->input(0)));
    for (Atom& atom : inner) {
      std::vector<Dim> lengths;
      for (int axis : axes) lengths.push_back(axis < 0 ? Dim(1) : atom.lengths[axis]);
      atom.lengths = std::move(lengths);
      if (atom.padding) {
        atom.batch_axis = PositionOf(axes, atom.batch_axis);
        atom.key_axis = PositionOf(axes, atom.key_axis);
        continue;
      }
      std::vector<int64_t> moved;
      for (int axis : axes) moved.push_back(axis < 0 ? 0 : atom.bound.coefficients[axis]);
      atom.bound.coefficients = std::move(moved);
    }
    return inner;
  }

  static int PositionOf(const std::vector<int>& axes, int source) {
    if (source < 0) return -1;
    auto it = std::find(axes.begin(), axes.end(), source);
    return it == axes.end() ? -1 : static_cast<int>(it - axes.begin());
  }

  static Atom Aligned(Atom atom, int from_rank, int to_rank) {
    atom.lengths.insert(atom.lengths.begin(), to_rank - from_rank, Dim(1));
    if (!atom.padding) {
      atom.bound = AlignedToRank(atom.bound, to_rank);
      return atom;
    }
    const int shift = to_rank - from_rank;
    if (atom.batch_axis >= 0) atom.batch_axis += shift;
    if (atom.key_axis >= 0) atom.key_axis += shift;
    return atom;
  }

  const SymbolicContents& contents_;
  int values_ = 0;  // that were read
};

absl::Status AddPadding(const Value* mask, const Atom& atom, int rank, MaskForm& form) {
  // A batch axis of -1 is a batch of one. The first of three axes is that of heads.
  const bool batch_fits = atom.batch_axis == -1 || (rank == 4 && atom.batch_axis == 0);
  if (!batch_fits || atom.key_axis != rank - 1) {
    return StoppedAt(mask, StrCat("reads \"", atom.padding->name(), "\" by unexpected axes"));
  }
  if (form.padding && form.padding != atom.padding) {
    return StoppedAt(mask, "reads two padding masks");
  }
  form.padding = atom.padding;
  form.padding_is_indexed = atom.indexed;
  form.padding_batch = atom.batch_axis < 0 ? Dim(1) : atom.lengths[atom.batch_axis];
  form.padding_keys = atom.lengths[atom.key_axis];
  return absl::OkStatus();
}

// Notes over how many queries and keys a limit holds.
absl::Status AddLengths(const Value* mask, const Atom& atom, int rank, MaskForm& form) {
  const Dim& queries = atom.lengths[rank - 2];
  const Dim& keys = atom.lengths[rank - 1];
  const bool first = !form.upper && !form.lower;
  if (first) {
    form.queries = queries;
    form.keys = keys;
  }
  if (ProvablyEqual(form.queries, queries) && ProvablyEqual(form.keys, keys)) {
    return absl::OkStatus();
  }
  return StoppedAt(
      mask, StrCat("has limits over ", form.queries.ToString(), " and ", queries.ToString(),
                   " queries, or ", form.keys.ToString(), " and ", keys.ToString(), " keys"));
}

// Puts one factor into the form, or says why it does not fit there.
absl::Status AddAtom(const Value* mask, const Atom& atom, int rank, MaskForm& form) {
  if (atom.padding) return AddPadding(mask, atom, rank, form);
  const std::vector<int64_t>& c = atom.bound.coefficients;
  for (int axis = 0; axis + 2 < rank; ++axis) {
    if (c[axis] != 0) return StoppedAt(mask, "depends on batch or head");
  }
  PF_RETURN_IF_ERROR(AddLengths(mask, atom, rank, form));
  const int64_t query = c[rank - 2];
  const int64_t key = c[rank - 1];
  // bound = constant + query*i + key*j <= 0
  if (key == 1 && query == -1) {
    if (form.upper) return StoppedAt(mask, "has two upper limits");
    form.upper = Dim(0) - atom.bound.constant;
    return absl::OkStatus();
  }
  if (key == -1 && query == 1) {
    if (form.lower) return StoppedAt(mask, "has two lower limits");
    form.lower = atom.bound.constant;
    return absl::OkStatus();
  }
  return StoppedAt(mask, "compares indices in a form that is neither causal nor a window");
}

bool SameLimit(const Atom& a, const Atom& b) {
  return !a.padding && !b.padding && a.bound.coefficients == b.bound.coefficients &&
         ProvablyEqual(a.bound.constant, b.bound.constant) &&
         ProvablyEqual(Shape(a.lengths), Shape(b.lengths));
}

}  // namespace

absl::StatusOr<MaskForm> AnalyseMask(const Value* mask, const SymbolicContents& contents) {
  const int rank = RankOf(mask);
  if (rank < 2 || rank > 4) return StoppedAt(mask, "has an unfit rank");
  MaskReader reader(contents);
  PF_ASSIGN_OR_RETURN(Predicate predicate, mask->dtype() == DataType::kBool
                                               ? reader.ReadBool(mask)
                                               : reader.ReadAdditive(mask));
  MaskForm form;
  for (size_t i = 0; i < predicate.size(); ++i) {
    const auto end = predicate.begin() + static_cast<std::ptrdiff_t>(i);
    const bool repeated = std::any_of(predicate.begin(), end, [&](const Atom& earlier) {
      return SameLimit(earlier, predicate[i]);
    });
    if (!repeated) PF_RETURN_IF_ERROR(AddAtom(mask, predicate[i], rank, form));
  }
  return form;
}

}  // namespace pagefuse
