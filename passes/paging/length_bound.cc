// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/length_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

using Role = Premises::Role;

// A graph that is paged holds a prompt and a token at least.
constexpr double kFewestTokens = 2, kMostTokens = 1 << 23;

// Ops all of whose outputs' elements are elements of their first input.
bool PicksElements(const Node& node) {
  constexpr std::string_view kOps[] = {"Identity", "Squeeze",   "Unsqueeze", "Reshape",
                                       "Flatten",  "Transpose", "Expand",    "Slice",
                                       "Gather",   "ReduceMax", "ReduceMin"};
  return node.domain().empty() && std::ranges::count(kOps, node.op_type()) > 0;
}

bool IsIndexInput(const Value& value, bool mask) {
  const bool type = value.dtype() == DataType::kInt64 || value.dtype() == DataType::kInt32 ||
                    (mask && value.dtype() == DataType::kBool);
  return type && value.is_input() && !value.initializer() && value.shape() &&
         value.shape()->rank() == 2;
}

// What a value is at most where no sequence has more than n tokens: n + offset, and `offset` at
// least. Every type that it went through holds it as it is.
class LengthReader {
 public:
  LengthReader(const Graph& graph, const SymbolicContents& contents)
      : graph_(graph), contents_(contents) {}

  bool Read(const Value* value) {
    while (true) {
      if (IsIndexInput(*value, /*mask=*/false)) return Begin(*value, Role::kPositions, -1);
      if (IsSize(value)) return true;
      const Node* node = value->producer();
      if (!node || !node->domain().empty() || node->inputs().empty()) return false;
      if (IsMaskSum(*node)) return true;
      if (node->Is("Add") || node->Is("Sub")) {
        value = Shifted(*node);
      } else if (node->Is("Cast") || PicksElements(*node)) {
        value = node->input(0);
      } else {
        return false;
      }
      if (!value) return false;
      if (!node->Is("Add") && !node->Is("Sub")) Note(*node->output(0));
    }
  }

  double offset() const { return offset_; }
  const std::pair<std::string, Role>& input() const { return input_; }

  // Whether all types hold what they are to hold, with n tokens at most.
  bool Holds(double tokens) const {
    return std::ranges::all_of(passed_, [&](const Passed& passed) {
      const auto range = ExactIntegers(passed.type);
      // `later`: what was added behind that value.
      const double least = offset_ - passed.later;
      return range && range->least <= least && tokens + std::max(least, 0.0) <= range->most;
    });
  }

 private:
  struct Passed {
    DataType type;
    double later;
  };

  bool Begin(const Value& input, Role role, double offset) {
    input_ = {input.name(), role};
    if (role == Role::kPositions) Note(input);
    offset_ += offset;
    return true;
  }

  void Note(const Value& value) { passed_.push_back({value.dtype(), offset_}); }

  // The side that is no constant, whose number is added on the way back.
  const Value* Shifted(const Node& node) {
    const auto right = NumberOf(node.input(1));
    const auto left = node.Is("Add") ? NumberOf(node.input(0)) : std::nullopt;
    const auto number = right ? right : left;
    if (!number || std::abs(*number) > kMostTokens || *number != std::floor(*number)) {
      return nullptr;
    }
    Note(*node.output(0));
    offset_ += node.Is("Sub") ? -*number : *number;
    return node.input(right ? 0 : 1);
  }

  // The number of columns of an input, which new tokens, or these and the past, are.
  bool IsSize(const Value* value) {
    const auto dims = KnownDims(value, contents_);
    if (!dims || dims->size() != 1 || (*dims)[0].constant()) return false;
    for (const Value* input : graph_.inputs()) {
      if (!IsIndexInput(*input, /*mask=*/true)) continue;
      const auto more = ((*dims)[0] - (*input->shape())[1]).constant();
      if (!more || std::abs(static_cast<double>(*more)) > kMostTokens) continue;
      Note(*value);
      return Begin(*input, Role::kSized, static_cast<double>(*more));
    }
    return false;
  }

  // How many tokens of a row a mask of ones shows.
  bool IsMaskSum(const Node& node) {
    if (!node.Is("ReduceSum") || node.inputs().size() < 2) return false;
    const auto axes = KnownInts(node.input(1), contents_);
    if (!axes || axes->size() != 1 || ((*axes)[0] != 1 && (*axes)[0] != -1)) return false;
    const Value* mask = node.input(0);
    while (mask && !mask->is_input()) {
      const Node* cast = mask->producer();
      if (!cast || !(cast->Is("Cast") || cast->Is("Identity"))) return false;
      mask = cast->input(0);
    }
    if (!mask || !IsIndexInput(*mask, /*mask=*/true)) return false;
    Note(*node.output(0));
    input_ = {mask->name(), Role::kMask};
    return true;
  }

  const Graph& graph_;
  const SymbolicContents& contents_;
  double offset_ = 0;
  std::pair<std::string, Role> input_;
  std::vector<Passed> passed_;
};

struct Comparison {
  const Value* length = nullptr;
  double number = 0;
  bool answer = false;     // what it comes to up to the bound
  bool equal_too = false;  // the length may be the number for that
};

// What is compared with a constant, and one for all tokens.
std::optional<Comparison> ComparisonIn(const Node& node) {
  const bool less = node.Is("Less") || node.Is("LessOrEqual");
  const bool greater = node.Is("Greater") || node.Is("GreaterOrEqual");
  if (!(less || greater) || node.output(0)->is_output() || !node.output(0)->shape()) {
    return std::nullopt;
  }
  const auto dims = node.output(0)->shape()->constant();
  if (!dims || std::ranges::any_of(*dims, [](int64_t dim) { return dim != 1; })) {
    return std::nullopt;
  }
  const auto right = NumberOf(node.input(1)), left = NumberOf(node.input(0));
  if (right.has_value() == left.has_value()) return std::nullopt;
  Comparison found{.length = node.input(right ? 0 : 1), .number = right ? *right : *left};
  found.answer = less == right.has_value();
  const bool or_equal = node.Is("LessOrEqual") || node.Is("GreaterOrEqual");
  // length <= number, which is also where length > number is false.
  found.equal_too = found.answer == or_equal;
  return found;
}

// The most tokens for which the comparison comes to its answer; 0 if that is not known.
double MostTokens(const Comparison& comparison, const LengthReader& reader) {
  const double room = comparison.number - reader.offset();
  if (!(std::abs(comparison.number) <= kMostTokens)) return 0;
  const double most = comparison.equal_too ? std::floor(room) : std::ceil(room) - 1;
  return most >= kFewestTokens && most <= kMostTokens && reader.Holds(most) ? most : 0;
}

void Settle(Graph& graph, const Node& node, bool answer) {
  Value* output = node.output(0);
  const std::vector<int64_t> dims(output->shape()->rank(), 1);
  Value* settled =
      graph.AddInitializer(graph.UniqueName(output->name()), Tensor::Of<bool>(dims, {answer}));
  graph.ReplaceAllUses(output, settled);
}

}  // namespace

void SettleLengths(Graph& graph, const SymbolicContents& contents, bool fixed, Premises& premises) {
  for (const Node* node : NodesOf(graph)) {
    const auto comparison = ComparisonIn(*node);
    LengthReader reader(graph, contents);
    if (!comparison || !reader.Read(comparison->length)) continue;
    if (fixed && reader.input().second != Role::kPositions) continue;
    const auto most = static_cast<int64_t>(MostTokens(*comparison, reader));
    if (most == 0) continue;
    premises.LimitTokens(most);
    premises.assumed.push_back({reader.input().first, reader.input().second, node->Description()});
    Settle(graph, *node, comparison->answer);
  }
}

}  // namespace pagefuse
