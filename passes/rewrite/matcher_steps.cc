// SPDX-License-Identifier: Apache-2.0
// The ways in which one pattern value can be one graph value.
#include <algorithm>

#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/rewrite/match_solver.h"

namespace pagefuse {
namespace {

bool IsAxesInput(const Node& node, int index) {
  return index == 1 && (node.op_type().starts_with("Reduce") || node.Is("CumSum"));
}

// Inputs and computed values: the same value wherever the pattern reads it.
bool IsOneValue(const PatternValue& pattern) {
  return pattern.kind == PatternKind::kInput || pattern.kind == PatternKind::kNode;
}

// The values from `value` upwards through views, itself first, kMaxViews of them at most.
std::vector<Value*> ViewChain(Value* value, const Graph* graph) {
  std::vector<Value*> chain = {value};
  while (chain.size() < kMaxViews && value->producer() != nullptr &&
         value->producer()->graph() == graph && IsViewNode(*value->producer()) &&
         value->producer()->input(0) != nullptr) {
    value = value->producer()->input(0);
    chain.push_back(value);
  }
  return chain;
}

std::optional<Tensor> IntsTensor(const Value& value, const SymbolicContents& contents) {
  const auto ints = KnownInts(&value, contents);
  if (!ints.has_value()) return std::nullopt;
  return Tensor::Of<int64_t>({static_cast<int64_t>(ints->size())}, *ints);
}

// Two lists of axes of a tensor of that rank, in any order.
bool SameAxes(const Tensor& a, const Tensor& b, int64_t rank) {
  auto x = IntegerValues(a), y = IntegerValues(b);
  if (!x.ok() || !y.ok()) return false;
  for (int64_t& axis : *x) axis = NormalAxis(axis, rank);
  for (int64_t& axis : *y) axis = NormalAxis(axis, rank);
  std::sort(x->begin(), x->end());
  std::sort(y->begin(), y->end());
  return *x == *y;
}

// One value under one shape, however the views are written.
bool AreSameViews(Value& a, Value& b, const Graph* graph) {
  return a.shape() && b.shape() && ProvablyEqual(*a.shape(), *b.shape()) &&
         ViewChain(&a, graph).back() == ViewChain(&b, graph).back();
}

}  // namespace

std::vector<Step> MatchSolver::StepsFor(const Obligation& claim) {
  const PatternValue& pattern = pattern_[claim.pattern];
  if (claim.value == nullptr) {
    if (pattern.optional) return {Step{}};
    return None("pattern value ", *pattern.value, " is missing");
  }
  // One derived or attribute value of the pattern may stand for several equal ones in the graph.
  const Value* bound = state_.bound[claim.pattern];
  if (bound != nullptr && IsOneValue(pattern)) {
    if (bound == claim.value) return {Step{}};
    const Tensor* a = ConstantOf(bound);
    const Tensor* b = ConstantOf(claim.value);
    if (a != nullptr && b != nullptr && a->dtype() == b->dtype() && ConstantsEqual(*a, *b)) {
      return {Step{}};
    }
    if (AreSameViews(*const_cast<Value*>(bound), *claim.value, scope_.graph)) return {Step{}};
    return None(*claim.value, " and ", *bound, " are not the same value, as pattern value ",
                *pattern.value, " requires");
  }
  switch (pattern.kind) {
    case PatternKind::kInput:
      return InputSteps(claim);
    case PatternKind::kConstant:
      return ConstantSteps(claim);
    case PatternKind::kAttribute:
      return AttributeSteps(claim);
    case PatternKind::kDerived:
      return DerivedSteps(claim);
    case PatternKind::kNode:
      break;
  }
  const Node& producer = *PatternProducer(claim.pattern);
  if (IsViewNode(producer)) return ViewSteps(claim);
  if (producer.Is("Cast")) return CastSteps(claim);
  if (producer.Is("Expand")) return ExpandSteps(claim);
  return NodeSteps(claim);
}

bool MatchSolver::BindDeclaredType(const PatternValue& pattern, const Value& value) {
  const Value& declared = *pattern.value;
  if (declared.dtype() != DataType::kUndefined && declared.dtype() != value.dtype()) {
    return Fail(value, ": expected type ", DataTypeName(declared.dtype()), ", got ",
                DataTypeName(value.dtype()));
  }
  if (!declared.shape().has_value()) return true;
  if (!value.shape().has_value()) {
    return Fail(value, ": expected shape ", declared.shape()->ToString(), ", got an unknown one");
  }
  const Shape& shape = *value.shape();
  bool same = shape.rank() == declared.shape()->rank();
  for (int i = 0; same && i < shape.rank(); ++i) {
    const Dim& wanted = (*declared.shape())[i];
    if (!wanted.known()) continue;
    if (const std::optional<std::string> symbol = wanted.symbol()) {
      const auto [it, inserted] = state_.dims.emplace(*symbol, shape[i]);
      same = inserted || ProvablyEqual(it->second, shape[i]);
    } else {
      std::map<std::string, Dim> bindings(state_.dims.begin(), state_.dims.end());
      same = ProvablyEqual(wanted.Substitute(bindings), shape[i]);
    }
  }
  if (same) return true;
  return Fail(value, ": expected shape ", declared.shape()->ToString(), ", got ", shape.ToString());
}

std::vector<Step> MatchSolver::InputSteps(const Obligation& claim) {
  if (!BindDeclaredType(pattern_[claim.pattern], *claim.value)) return {};
  return {Step{.bind = claim.pattern, .bind_to = claim.value}};
}

std::vector<Step> MatchSolver::ConstantSteps(const Obligation& claim) {
  const Value& pattern = *pattern_[claim.pattern].value;
  const Tensor* wanted = pattern.initializer();
  const Tensor* constant = ConstantOf(claim.value);
  std::optional<Tensor> known;
  if (constant == nullptr) {
    known = IntsTensor(*claim.value, *scope_.contents);
    if (!known.has_value()) return Unlike(*claim.value, "a constant");
    constant = &*known;
  }
  // Not bound: one constant of the pattern may stand for several in the graph, of other types.
  const bool equal = claim.rank >= 0    ? SameAxes(*wanted, *constant, claim.rank)
                     : claim.any_number ? ConstantNumbersEqual(*wanted, *constant)
                                        : ConstantsEqual(*wanted, *constant);
  if (equal) return {Step{}};
  if (const auto number = ScalarNumber(*wanted)) {
    return None(*claim.value, " is not the constant ", *number);
  }
  return None(*claim.value, " is not the constant ", pattern);
}

std::vector<Step> MatchSolver::AttributeSteps(const Obligation& claim) {
  const Tensor* constant = ConstantOf(claim.value);
  std::optional<Tensor> known;
  if (constant == nullptr) {
    known = IntsTensor(*claim.value, *scope_.contents);
    if (known.has_value()) constant = &*known;
  }
  if (constant == nullptr) return Unlike(*claim.value, "a constant");
  const auto attribute = AttributeFromConstant(*PatternProducer(claim.pattern), *constant);
  if (!attribute.ok()) return None(*claim.value, ": ", attribute.status().message());
  Step step{.bind = claim.pattern, .bind_to = claim.value};
  step.attributes.emplace_back(pattern_[claim.pattern].attribute, *attribute);
  return {step};
}

std::vector<Step> MatchSolver::DerivedSteps(const Obligation& claim) {
  std::vector<Step> steps;
  const bool known = ConstantOf(claim.value) != nullptr || scope_.contents->contains(claim.value);
  if (known) {
    Step step{.bind = claim.pattern, .bind_to = claim.value};
    step.deferred.push_back(
        {.kind = Deferred::Kind::kContents, .pattern = claim.pattern, .value = claim.value});
    steps.push_back(std::move(step));
  }
  if (claim.value->producer() != nullptr && Plausible(claim.pattern, claim.value)) {
    for (Step& step : NodeSteps(claim)) steps.push_back(std::move(step));
  }
  if (!steps.empty()) return steps;
  return Unlike(*claim.value, "pattern value ", *pattern_[claim.pattern].value);
}

int MatchSolver::PatternViewSource(int pattern) const {
  while (pattern_[pattern].kind == PatternKind::kNode && IsViewNode(*PatternProducer(pattern))) {
    pattern = pattern_.id(PatternProducer(pattern)->input(0));
  }
  return pattern;
}

std::vector<Step> MatchSolver::ViewSteps(const Obligation& claim) {
  const int source = PatternViewSource(claim.pattern);
  const std::vector<Value*> chain = ViewChain(claim.value, scope_.graph);
  const bool border = pattern_[source].kind == PatternKind::kInput;
  // An input may be any value along the chain; first the one as many views away as in the pattern:
  // one.
  std::vector<size_t> order;
  if (border) {
    for (size_t i = 1; i < chain.size(); ++i) order.push_back(i);
    order.push_back(0);
  } else {
    order.push_back(chain.size() - 1);
  }
  std::vector<Step> steps;
  for (size_t i : order) {
    if (!Plausible(source, chain[i])) continue;
    Step step{.bind = claim.pattern, .bind_to = claim.value};
    step.todo.push_back({.pattern = source, .value = chain[i]});
    step.deferred.push_back(
        {.kind = Deferred::Kind::kShape, .pattern = claim.pattern, .value = claim.value});
    for (size_t k = 0; k < i; ++k) {
      step.views.push_back({chain[k]->producer(), border || pattern_[source].metadata});
    }
    steps.push_back(std::move(step));
  }
  if (!steps.empty()) return steps;
  return None(*claim.value, ": expected a view of pattern value ", *pattern_[source].value,
              ", got ", OriginOf(*chain.back()));
}

// True if the pattern casts a port to an index type, and the graph reads the other one: indices are
// the same numbers in both. The replacement casts them to what the port takes.
bool MatchSolver::WidensIndex(const Node& cast, const Value& value) const {
  const auto is_index = [](DataType type) {
    return type == DataType::kInt32 || type == DataType::kInt64;
  };
  return pattern_[pattern_.id(cast.input(0))].kind == PatternKind::kInput &&
         is_index(static_cast<DataType>(IntOr(cast, "to", 0))) && is_index(value.dtype());
}

std::vector<Step> MatchSolver::CastSteps(const Obligation& claim) {
  const Node& cast = *PatternProducer(claim.pattern);
  const int source = pattern_.id(cast.input(0));
  std::vector<Step> steps;
  const Node* producer = claim.value->producer();
  if (producer != nullptr && producer->Is("Cast")) {
    for (Step& step : NodeSteps(claim)) steps.push_back(std::move(step));
  }
  const bool typed = cast.attribute("to") != nullptr &&
                     IntOr(cast, "to", 0) == static_cast<int64_t>(claim.value->dtype());
  if ((typed || WidensIndex(cast, *claim.value)) && Plausible(source, claim.value)) {
    Step step{.bind = claim.pattern, .bind_to = claim.value};
    step.todo.push_back({.pattern = source, .value = claim.value});
    steps.push_back(std::move(step));
  }
  if (!steps.empty()) return steps;
  return Unlike(*claim.value, "Cast, as pattern value ", *pattern_[claim.pattern].value);
}

std::vector<Step> MatchSolver::ExpandSteps(const Obligation& claim) {
  const Node& expand = *PatternProducer(claim.pattern);
  const int source = pattern_.id(expand.input(0));
  const Deferred shape{
      .kind = Deferred::Kind::kShape, .pattern = claim.pattern, .value = claim.value};
  std::vector<Step> steps;
  Node* producer = claim.value->producer();
  if (producer != nullptr && producer->Is("Expand") && producer->graph() == scope_.graph) {
    Step step{.pattern_node = &expand, .node = producer};
    step.todo.push_back({.pattern = source, .value = producer->input(0)});
    step.deferred.push_back(shape);
    steps.push_back(std::move(step));
  }
  if (Plausible(source, claim.value)) {
    Step step{.bind = claim.pattern, .bind_to = claim.value};
    step.todo.push_back({.pattern = source, .value = claim.value});
    step.deferred.push_back(shape);
    steps.push_back(std::move(step));
  }
  if (!steps.empty()) return steps;
  return Unlike(*claim.value, "Expand, as pattern value ", *pattern_[claim.pattern].value);
}

std::vector<Step> MatchSolver::NodeSteps(const Obligation& claim) {
  const Node& pattern_node = *PatternProducer(claim.pattern);
  Node* node = claim.value->producer();
  const auto expected = [&](std::string_view got) {
    return None(*claim.value, ": expected ", pattern_node.op_type(), ", got ", got);
  };
  if (node == nullptr || node->graph() != scope_.graph) {
    return expected(OriginOf(*claim.value));
  }
  const bool mirrored = node->domain() == pattern_node.domain() &&
                        MirroredType(pattern_node.op_type()) == node->op_type() &&
                        !MirroredType(pattern_node.op_type()).empty();
  if (!mirrored && !node->Is(pattern_node.op_type(), pattern_node.domain())) {
    return expected(node->op_type());
  }
  if (claim.value->producer_index() != pattern_[claim.pattern].value->producer_index()) {
    return None(*claim.value, " is another output of ", *node);
  }
  if (IsOneValue(pattern_[claim.pattern]) && state_.Holds(node)) {
    return None(*node, " would be used twice");
  }
  if (!node->Subgraphs().empty()) return None(*node, " has a subgraph");
  std::vector<Step> steps = PairSteps(pattern_node, node);
  if (steps.empty()) return steps;
  Step exchanged = steps.front();
  const int misfits = AddOperands(pattern_node, node, mirrored, steps.front());
  if (misfits < 0) return {};
  const auto hopeless = [this](int count) { return count > 0 && !scope_.explain; };
  if (!IsCommutative(pattern_node) || node->num_inputs() != 2 || node->input(0) == node->input(1)) {
    return hopeless(misfits) ? std::vector<Step>() : steps;
  }
  const int exchanged_misfits = AddOperands(pattern_node, node, true, exchanged);
  if (hopeless(std::min(misfits, exchanged_misfits))) return {};
  // An order that cannot hold is tried only for the reason that it gives.
  if (exchanged_misfits < misfits) return {std::move(exchanged)};
  if (misfits == 0 && exchanged_misfits == 0) steps.push_back(std::move(exchanged));
  return steps;
}

std::vector<Step> MatchSolver::PairSteps(const Node& pattern_node, Node* node) {
  Step step{.pattern_node = &pattern_node, .node = node};
  const absl::Status status = MatchAttributes(pattern_node, *node, *scope_.opsets, step.attributes);
  if (!status.ok()) return None(status.message());
  return {std::move(step)};
}

bool MatchSolver::HasComputedBounds(const Node& slice) const {
  for (int i = 1; i < slice.num_inputs(); ++i) {
    if (slice.input(i) == nullptr) continue;
    const PatternKind kind = pattern_[pattern_.id(slice.input(i))].kind;
    if (kind != PatternKind::kConstant && kind != PatternKind::kDerived) return false;
  }
  return true;
}

int MatchSolver::AddOperands(const Node& pattern_node, Node* node, bool exchanged, Step& step) {
  int count = std::max(pattern_node.num_inputs(), node->num_inputs());
  int misfits = 0;
  if (pattern_node.Is("Slice") && HasComputedBounds(pattern_node)) {
    step.deferred.push_back({.kind = Deferred::Kind::kSlice,
                             .pattern = pattern_.id(pattern_node.output(0)),
                             .value = node->output(0)});
    count = 1;
  }
  for (int i = count - 1; i >= 0; --i) {
    const Value* wanted = pattern_node.input(i);
    Value* value = node->input(exchanged ? 1 - i : i);
    if (wanted == nullptr && value == nullptr) continue;
    if (wanted == nullptr) {
      if (pattern_node.Is("Split") && i == 1) continue;  // see ProveDeferred: equal parts
      Fail(*node, " has an input ", i, " that the pattern lacks");
      return -1;
    }
    Obligation claim{.pattern = pattern_.id(wanted), .value = value};
    if (value != nullptr && IsAxesInput(pattern_node, i) && node->input(0) != nullptr &&
        node->input(0)->shape().has_value()) {
      claim.rank = node->input(0)->shape()->rank();
    }
    claim.any_number = pattern_node.Is("Pow") && i == 1;
    // Axes are the same in either way of counting, which is not for a glance to tell.
    if (claim.rank < 0 && !Plausible(claim.pattern, value)) ++misfits;
    step.todo.push_back(claim);
  }
  return misfits;
}

bool MatchSolver::Plausible(int pattern, const Value* value) const {
  if (value == nullptr) return pattern_[pattern].optional;
  const Value* bound = state_.bound[pattern];
  if (bound != nullptr && IsOneValue(pattern_[pattern])) {
    return bound == value || (ConstantOf(bound) != nullptr && ConstantOf(value) != nullptr);
  }
  const Value& wanted = *pattern_[pattern].value;
  const Node* producer = value->producer();
  switch (pattern_[pattern].kind) {
    case PatternKind::kInput:
      if (wanted.dtype() != DataType::kUndefined && wanted.dtype() != value->dtype()) return false;
      return !wanted.shape().has_value() || !value->shape().has_value() ||
             wanted.shape()->rank() == value->shape()->rank();
    case PatternKind::kConstant:
      if (ConstantOf(value) != nullptr && ConstantOf(value)->size() == 1) {
        return wanted.initializer()->size() == 1 &&
               ConstantNumbersEqual(*wanted.initializer(), *ConstantOf(value));
      }
      return ConstantOf(value) != nullptr || scope_.contents->contains(value);
    case PatternKind::kAttribute:
      return ConstantOf(value) != nullptr || scope_.contents->contains(value);
    case PatternKind::kDerived:
      if (ConstantOf(value) != nullptr || scope_.contents->contains(value)) return true;
      break;
    case PatternKind::kNode:
      break;
  }
  const Node& wanted_node = *wanted.producer();
  if (IsViewNode(wanted_node)) {
    Value* source = ViewChain(const_cast<Value*>(value), scope_.graph).back();
    const int pattern_source = PatternViewSource(pattern);
    return pattern_source == pattern || pattern_[pattern_source].kind == PatternKind::kInput ||
           Plausible(pattern_source, source);
  }
  if (producer != nullptr && producer->graph() == scope_.graph &&
      (producer->Is(wanted_node.op_type(), wanted_node.domain()) ||
       MirroredType(wanted_node.op_type()) == producer->op_type())) {
    return true;
  }
  if (wanted_node.Is("Cast") || wanted_node.Is("Expand")) {
    return Plausible(pattern_.id(wanted_node.input(0)), value);
  }
  return false;
}

}  // namespace pagefuse
