#include "pagefuse/passes/analysis/tokens/token_index.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/slice_cuts.h"

namespace pagefuse {
namespace {

using Result = std::optional<IndexExpression>;

// What the functions below read: the node, its inputs, and the shapes around them.
struct IndexNode {
  const Node& node;
  const std::vector<const IndexExpression*>& inputs;
  const SymbolicContents& contents;

  const IndexExpression* in(size_t i) const { return i < inputs.size() ? inputs[i] : nullptr; }
  int rank() const {
    const auto& shape = node.output(0)->shape();
    return shape ? shape->rank() : -1;
  }
};

IndexExpression Uniform(const Dim& value, int rank) {
  return {.constant = value, .coefficients = std::vector<int64_t>(std::max(rank, 0), 0)};
}

bool IsUniform(const IndexExpression& index) {
  return std::ranges::all_of(index.coefficients, [](int64_t c) { return c == 0; });
}

std::optional<int64_t> NumberOf(const IndexExpression* index) {
  return index && IsUniform(*index) ? index->constant.constant() : std::nullopt;
}

// A number that no element is below; indices and sizes are not negative.
std::optional<int64_t> LeastOf(const IndexExpression& index) {
  const auto negative = [](int64_t c) { return c < 0; };
  const auto& terms = index.constant.terms();
  if (!index.constant.known() || std::ranges::any_of(index.coefficients, negative) ||
      std::ranges::any_of(terms, [](const auto& term) { return term.second < 0; })) {
    return std::nullopt;
  }
  return index.constant.offset();
}

Result Truth(bool value, const IndexNode& n) { return Uniform(value ? 1 : 0, n.rank()); }

// left < right (or <=), where it is the same for all indices.
std::optional<bool> AlwaysLess(const IndexExpression& left, const IndexExpression& right,
                               bool or_equal) {
  const IndexExpression ahead = right - left;
  if (auto least = LeastOf(ahead); least && *least >= (or_equal ? 0 : 1)) return true;
  const IndexExpression behind = left - right;
  if (auto least = LeastOf(behind); least && *least >= (or_equal ? 1 : 0)) return false;
  return std::nullopt;
}

Result Compare(const IndexNode& n) {
  if (!n.in(0) || !n.in(1)) return std::nullopt;
  const IndexExpression& a = *n.in(0);
  const IndexExpression& b = *n.in(1);
  std::optional<bool> truth;
  if (n.node.Is("Less")) truth = AlwaysLess(a, b, false);
  if (n.node.Is("LessOrEqual")) truth = AlwaysLess(a, b, true);
  if (n.node.Is("Greater")) truth = AlwaysLess(b, a, false);
  if (n.node.Is("GreaterOrEqual")) truth = AlwaysLess(b, a, true);
  if (n.node.Is("Equal")) {
    const IndexExpression difference = a - b;
    if (IsUniform(difference) && difference.constant.constant() == 0) truth = true;
    if (AlwaysLess(a, b, false) == true || AlwaysLess(b, a, false) == true) truth = false;
  }
  return truth ? Truth(*truth, n) : std::nullopt;
}

Result Choose(const IndexNode& n) {
  const auto condition = NumberOf(n.in(0));
  const IndexExpression* chosen = condition ? n.in(*condition != 0 ? 1 : 2) : nullptr;
  return chosen ? Result(AlignedToRank(*chosen, n.rank())) : std::nullopt;
}

Result Logic(const IndexNode& n) {
  const auto a = NumberOf(n.in(0));
  if (!a) return std::nullopt;
  if (n.node.Is("Not")) return Truth(*a == 0, n);
  const auto b = NumberOf(n.in(1));
  if (!b) return std::nullopt;
  return Truth(n.node.Is("And") ? *a != 0 && *b != 0 : *a != 0 || *b != 0, n);
}

Result Sum(const IndexNode& n) {
  if (!n.in(0) || !n.in(1)) return std::nullopt;
  return n.node.Is("Add") ? *n.in(0) + *n.in(1) : *n.in(0) - *n.in(1);
}

Result Scaled(const IndexExpression& index, int64_t factor, int rank) {
  constexpr int64_t kLargest = int64_t{1} << 31;
  IndexExpression result = AlignedToRank(index, rank);
  result.constant = result.constant * Dim(factor);
  for (int64_t& c : result.coefficients) {
    if (std::max(c, factor) > kLargest || std::min(c, factor) < -kLargest) return std::nullopt;
    c *= factor;
  }
  return result;
}

Result Product(const IndexNode& n) {
  if (!n.in(0) || !n.in(1)) return std::nullopt;
  if (auto factor = NumberOf(n.in(1))) return Scaled(*n.in(0), *factor, n.rank());
  if (auto factor = NumberOf(n.in(0))) return Scaled(*n.in(1), *factor, n.rank());
  return std::nullopt;
}

Result Negated(const IndexNode& n) {
  return n.in(0) ? Scaled(*n.in(0), -1, n.rank()) : std::nullopt;
}

// The larger (smaller) of two, where it is always the same one.
Result Extreme(const IndexNode& n) {
  if (n.inputs.size() != 2 || !n.in(0) || !n.in(1)) return std::nullopt;
  const auto first_is_less = AlwaysLess(*n.in(0), *n.in(1), true);
  if (!first_is_less) return std::nullopt;
  const bool first = *first_is_less == n.node.Is("Min");
  return AlignedToRank(*n.in(first ? 0 : 1), n.rank());
}

// Clip whose limits no element passes.
Result Clipped(const IndexNode& n) {
  if (!n.in(0)) return std::nullopt;
  for (size_t limit : {size_t{1}, size_t{2}}) {
    if (!n.node.input(static_cast<int>(limit))) continue;
    if (!n.in(limit)) return std::nullopt;
    const auto within =
        limit == 1 ? AlwaysLess(*n.in(1), *n.in(0), true) : AlwaysLess(*n.in(0), *n.in(2), true);
    if (within != true) return std::nullopt;
  }
  return *n.in(0);
}

Result Viewed(const IndexNode& n) {
  if (!n.in(0)) return std::nullopt;
  const auto axes = AxisMap(&n.node);
  if (!axes.ok()) return std::nullopt;
  IndexExpression result{.constant = n.in(0)->constant, .coefficients = {}};
  for (int axis : *axes) {
    result.coefficients.push_back(axis < 0 ? 0 : n.in(0)->coefficients[axis]);
  }
  return result;
}

Result Counted(const IndexNode& n) {
  const auto step = NumberOf(n.in(2));
  if (!n.in(0) || !IsUniform(*n.in(0)) || !step) return std::nullopt;
  return IndexExpression{.constant = n.in(0)->constant, .coefficients = {*step}};
}

// The running sum of a number.
Result Accumulated(const IndexNode& n) {
  const auto number = NumberOf(n.in(0));
  const auto axis = NumberOf(n.in(1));
  if (!number || !axis || n.rank() < 1 || IntOr(n.node, "reverse", 0) != 0) return std::nullopt;
  IndexExpression result = Uniform(IntOr(n.node, "exclusive", 0) != 0 ? 0 : *number, n.rank());
  const int64_t along = NormalAxis(*axis, n.rank());
  if (along < 0 || along >= n.rank()) return std::nullopt;
  result.coefficients[along] = *number;
  return result;
}

// The sum of ones along axes: their length.
Result Totalled(const IndexNode& n) {
  const auto& shape = n.node.input(0)->shape();
  if (NumberOf(n.in(0)) != 1 || !n.node.input(1) || !shape) return std::nullopt;
  const auto axes = KnownInts(n.node.input(1), n.contents);
  if (!axes || axes->size() != 1) return std::nullopt;
  const int64_t axis = NormalAxis((*axes)[0], shape->rank());
  if (axis < 0 || axis >= shape->rank()) return std::nullopt;
  return Uniform((*shape)[static_cast<int>(axis)], n.rank());
}

// A bound of Slice counted from the front; nullopt if its sign is not known.
std::optional<Dim> FromFront(const Dim& bound, const Dim& length) {
  const auto& terms = bound.terms();
  const auto all = [&](auto&& fits) {
    return bound.known() && fits(bound.offset()) &&
           std::ranges::all_of(terms, [&](const auto& t) { return fits(t.second); });
  };
  if (all([](int64_t c) { return c >= 0; })) return bound;
  if (all([](int64_t c) { return c <= 0; })) return length + bound;
  return std::nullopt;
}

Result Sliced(const IndexNode& n) {
  const auto cuts = CutsOfSlice(n.node, n.contents);
  if (!n.in(0) || !cuts) return std::nullopt;
  const Shape& shape = *n.node.input(0)->shape();
  IndexExpression result = *n.in(0);
  for (const SliceCut& cut : *cuts) {
    const auto start = FromFront(cut.start, shape[cut.axis]);
    if (!start || cut.step != 1) return std::nullopt;
    result.constant = result.constant + *start * Dim(result.coefficients[cut.axis]);
  }
  return result;
}

Result Filled(const IndexNode& n) {
  const Attribute* value = n.node.attribute("value");
  const Tensor* tensor = value ? std::get_if<Tensor>(&value->value) : nullptr;
  if (!tensor || n.rank() < 0) return std::nullopt;
  const auto numbers = IntegerValues(*tensor);
  if (!numbers.ok() || numbers->size() != 1) return std::nullopt;
  return Uniform((*numbers)[0], n.rank());
}

Result Same(const IndexNode& n) { return n.in(0) ? Result(*n.in(0)) : std::nullopt; }

Result IndexOfChain(const Value* value, const Value* mask, const SymbolicContents& contents,
                    int depth) {
  if (value == mask) return Uniform(1, 2);
  if (auto known = ReadIndexExpression(value, contents); known.ok()) return *std::move(known);
  if (!value->producer() || depth == 0) return std::nullopt;
  const Node& node = *value->producer();
  std::vector<IndexExpression> read(node.num_inputs());
  std::vector<const IndexExpression*> inputs(node.num_inputs(), nullptr);
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.input(i)) continue;
    if (auto index = IndexOfChain(node.input(i), mask, contents, depth - 1)) {
      read[i] = *std::move(index);
      inputs[i] = &read[i];
    }
  }
  return IndexOfNode(node, inputs, contents);
}

}  // namespace

std::optional<IndexExpression> IndexOfNode(const Node& node,
                                           const std::vector<const IndexExpression*>& inputs,
                                           const SymbolicContents& contents) {
  using Function = Result (*)(const IndexNode&);
  static const auto& functions = *new absl::flat_hash_map<std::string_view, Function>{
      {"Range", Counted},
      {"Identity", Same},
      {"Cast", Same},
      {"Add", Sum},
      {"Sub", Sum},
      {"Mul", Product},
      {"Neg", Negated},
      {"Max", Extreme},
      {"Min", Extreme},
      {"Clip", Clipped},
      {"Where", Choose},
      {"Equal", Compare},
      {"Less", Compare},
      {"LessOrEqual", Compare},
      {"Greater", Compare},
      {"And", Logic},
      {"GreaterOrEqual", Compare},
      {"Or", Logic},
      {"Not", Logic},
      {"CumSum", Accumulated},
      {"ReduceSum", Totalled},
      {"Unsqueeze", Viewed},
      {"Squeeze", Viewed},
      {"Reshape", Viewed},
      {"Expand", Viewed},
      {"Slice", Sliced},
      {"ConstantOfShape", Filled},
  };
  if (!node.domain().empty()) return std::nullopt;
  const auto it = functions.find(node.op_type());
  if (it == functions.end()) return std::nullopt;
  return it->second({node, inputs, contents});
}

std::optional<IndexExpression> IndexOfMask(const Value* value, const Value* mask,
                                           const SymbolicContents& contents) {
  constexpr int kLongestChain = 12;
  return IndexOfChain(value, mask, contents, kLongestChain);
}

}  // namespace pagefuse
