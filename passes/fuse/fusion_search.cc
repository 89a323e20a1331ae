#include "pagefuse/passes/fuse/fusion_search.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/ops/evaluate.h"
#include "pagefuse/passes/pattern.h"
#include "pagefuse/passes/rule_impl.h"

namespace pagefuse {
namespace {

// Every symbol of a dim, for the comparison: several tokens, and windows of any usual ratio fit.
constexpr int64_t kSymbolSize = 8;
// Ways to bind the ports of one output that are looked at, and of these, compared by numbers.
constexpr int kMaxBindings = 4000;
constexpr int kMaxComparisons = 48;
// Pools of exports with a fixed number of blocks are compared on as they are.
constexpr int64_t kMaxPortBytes = int64_t{1} << 28;

void AddSymbols(const Value& value, DimSizes& sizes) {
  if (!value.shape()) return;
  for (const Dim& dim : value.shape()->dims()) {
    for (const auto& [symbol, factor] : dim.terms()) sizes.emplace(symbol, kSymbolSize);
  }
}

bool IsViewOrCast(const Node& node) {
  return IsViewNode(node) || node.Is("Cast") || node.Is("Identity");
}

// Magnitudes at which scales are at their floor, around it, and far from it.
std::vector<ProbeRound> Rounds(bool narrow) {
  std::vector<ProbeRound> rounds = {{.seed = 1, .exponent = 0}, {.seed = 2, .exponent = 3}};
  for (int exponent : {-13, -33, -9, 9, 30, -100}) {
    // What float16 cannot hold says nothing.
    if (narrow && (exponent < -13 || exponent > 9)) continue;
    rounds.push_back({.seed = static_cast<uint32_t>(200 + exponent), .exponent = exponent});
  }
  rounds.push_back({.seed = 3, .zero = true});
  return rounds;
}

// A replacement text as a model.
absl::StatusOr<Model> ModelOf(const std::string& text) {
  PF_ASSIGN_OR_RETURN(const Function function, ParseFunction(NormaliseFunctionText(text, nullptr)));
  Model model;
  model.graph = function.body;
  model.opset_imports = {{"", kNewestOpset}, {"pagefuse", 1}};
  return model;
}

}  // namespace

struct FusionSearch::Attempt {
  const std::string& rule;
  const std::vector<OutputSpec>& outputs;
  const std::vector<FusionPort>& ports;
  const std::function<Draft(const BoundPorts&, const ComputedRegion&)>& draft;
  std::vector<Value*> output_values = {};
  std::vector<Value*> bound = {};
  int bindings = 0;
  int comparisons = 0;
};

FusionSearch::FusionSearch(Model& model, PassContext& context, const GraphScope& scope)
    : model_(model),
      context_(context),
      scope_(scope),
      index_(*scope.graph),
      region_scope_{scope.opsets, &context.contents, {}} {
  for (const Value* input : scope.graph->inputs()) AddSymbols(*input, region_scope_.sizes);
}

std::vector<Value*> FusionSearch::ComputedValues() const {
  std::vector<Value*> values;
  for (const auto& node : graph().nodes()) {
    for (Value* output : node->outputs()) {
      if (output) values.push_back(output);
    }
  }
  std::reverse(values.begin(), values.end());
  return values;
}

Upstream FusionSearch::UpstreamOf(const std::vector<Value*>& outputs) const {
  return pagefuse::UpstreamOf(outputs, {}, region_scope_);
}

void FusionSearch::ReportMisses() const {
  for (const auto& [key, miss] : misses_) {
    // What became part of another op is no miss.
    const Value* output = graph().FindValue(miss.at);
    if (!output || !output->producer() || !output->producer()->domain().empty()) continue;
    context_.AddMiss(miss.rule, miss.at, miss.condition, miss.matched_nodes);
  }
}

absl::StatusOr<bool> FusionSearch::Fuse(
    const std::string& rule, const std::vector<OutputSpec>& outputs,
    const std::vector<FusionPort>& ports,
    const std::function<Draft(const BoundPorts&, const ComputedRegion&)>& draft) {
  Attempt attempt{.rule = rule, .outputs = outputs, .ports = ports, .draft = draft};
  for (const OutputSpec& output : outputs) attempt.output_values.push_back(output.value);
  return Bind(attempt, 0);
}

absl::StatusOr<bool> FusionSearch::Bind(Attempt& attempt, size_t next) {
  if (next == attempt.ports.size()) return Try(attempt);
  for (Value* candidate : Candidates(attempt, attempt.ports[next])) {
    if (++attempt.bindings > kMaxBindings) return false;
    attempt.bound.push_back(candidate);
    PF_ASSIGN_OR_RETURN(const bool fused, Bind(attempt, next + 1));
    if (fused) return true;
    attempt.bound.pop_back();
  }
  return false;
}

// The outermost first, so that nothing of the op is left outside.
std::vector<Value*> FusionSearch::Candidates(const Attempt& attempt, const FusionPort& spec) const {
  const absl::flat_hash_set<const Value*> border(attempt.bound.begin(), attempt.bound.end());
  const Upstream upstream = pagefuse::UpstreamOf(attempt.output_values, border, region_scope_);
  absl::flat_hash_set<const Value*> outer(upstream.leaves.begin(), upstream.leaves.end());
  outer.insert(upstream.constants.begin(), upstream.constants.end());
  std::vector<Value*> candidates;
  const auto add = [&](Value* value) {
    const auto& outputs = attempt.output_values;
    if (std::find(outputs.begin(), outputs.end(), value) == outputs.end() && spec.fits(*value)) {
      candidates.push_back(value);
    }
  };
  for (Value* leaf : upstream.leaves) add(leaf);
  for (Value* constant : upstream.constants) add(constant);
  for (Node* node : upstream.nodes) {
    const bool still_outer =
        IsViewOrCast(*node) && node->input(0) && outer.contains(node->input(0));
    for (Value* output : node->outputs()) {
      if (!output) continue;
      if (still_outer) outer.insert(output);
      if (spec.inner || still_outer) add(output);
    }
  }
  return candidates;
}

absl::StatusOr<bool> FusionSearch::Try(Attempt& attempt) {
  const auto region = RegionBetween(attempt.bound, attempt.output_values, region_scope_);
  const std::string& at = attempt.outputs[0].value->name();
  if (!region.ok()) return false;
  const auto miss = [&](const absl::Status& status) {
    const int nodes = static_cast<int>(region->nodes.size());
    Miss& nearest = misses_[{attempt.rule, at}];
    if (nodes > nearest.matched_nodes) {
      nearest = {attempt.rule, at, std::string(StdView(status.message())), nodes};
    }
    return false;
  };
  absl::flat_hash_set<const Value*> metadata;
  BoundPorts bound;
  for (size_t i = 0; i < attempt.ports.size(); ++i) {
    bound[attempt.ports[i].name] = attempt.bound[i];
    if (attempt.ports[i].metadata) metadata.insert(attempt.bound[i]);
  }
  const absl::Status readers = CheckReaders(*region, metadata);
  if (!readers.ok()) return miss(readers);
  const Draft draft = attempt.draft(bound, *region);
  if (draft.texts.empty() || ++attempt.comparisons > kMaxComparisons) return false;
  const absl::StatusOr<Found> found = FindText(attempt, *region, draft);
  if (!found.ok()) return miss(found.status());
  const absl::Status rewritten = Rewrite(attempt, *region, *found);
  if (absl::IsFailedPrecondition(rewritten)) return miss(rewritten);
  PF_RETURN_IF_ERROR(rewritten);
  return true;
}

namespace {

// The region and the texts on the same numbers.
class RegionComparison {
 public:
  RegionComparison(const ComputedRegion& region, const RegionScope& scope,
                   const std::vector<FusionPort>& specs, const std::vector<OutputSpec>& outputs,
                   const Draft& draft)
      : region_(region), scope_(scope), specs_(specs), outputs_(outputs), draft_(draft) {}

  absl::Status Prepare() {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Value& value = *region_.ports[i];
      const auto dims =
          value.shape() ? NumbersOf(value.shape()->dims(), scope_.sizes) : std::nullopt;
      if (!dims) {
        return absl::FailedPreconditionError(
            StrCat("the shape of \"", value.name(), "\" is not known"));
      }
      const auto bytes = ByteSize(value.dtype(), *dims);
      if (!bytes.ok() || *bytes > kMaxPortBytes) {
        return absl::FailedPreconditionError(
            StrCat("\"", value.name(), "\" ", DimsToString(*dims), " is too large to compare on"));
      }
      const auto limit = draft_.limits.find(specs_[i].name);
      ports_.push_back({.role = specs_[i].role,
                        .dtype = value.dtype(),
                        .dims = *dims,
                        .limit = limit == draft_.limits.end() ? 0 : limit->second,
                        .step = draft_.step});
      narrow_ = narrow_ || value.dtype() == DataType::kFloat16;
    }
    return absl::OkStatus();
  }

  bool narrow() const { return narrow_; }
  bool HasSlots() const {
    return std::any_of(ports_.begin(), ports_.end(),
                       [](const ProbePort& port) { return port.role == ProbeRole::kSlots; });
  }

  // What the region gives; constants stay what they are.
  absl::Status Run(const ProbeRound& round) {
    PF_ASSIGN_OR_RETURN(feeds_, MakeProbe(ports_, round));
    for (size_t i = 0; i < feeds_.size(); ++i) {
      if (const Tensor* constant = ConstantOf(region_.ports[i])) feeds_[i] = *constant;
    }
    PF_ASSIGN_OR_RETURN(found_, EvaluateRegion(region_, scope_, feeds_));
    return absl::OkStatus();
  }

  absl::Status Compare(const Model& text) const {
    std::map<std::string, Tensor> named;
    for (size_t i = 0; i < specs_.size(); ++i) named[specs_[i].name] = feeds_[i];
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> expected, EvaluateModel(text, named));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor before = outputs_[i].cache.empty() ? Tensor() : named.at(outputs_[i].cache);
      const absl::Status same = CompareResults(draft_.rules[i], expected[i], found_[i], before);
      if (same.ok()) continue;
      return absl::FailedPreconditionError(
          StrCat("\"", outputs_[i].value->name(), "\": ", StdView(same.message())));
    }
    return absl::OkStatus();
  }

 private:
  const ComputedRegion& region_;
  const RegionScope& scope_;
  const std::vector<FusionPort>& specs_;
  const std::vector<OutputSpec>& outputs_;
  const Draft& draft_;
  std::vector<ProbePort> ports_;
  std::vector<Tensor> feeds_, found_;
  bool narrow_ = false;
};

// Where the graph and the op differ on what the graph leaves open: slots of padding, and exponents
// of exact powers of two, which float logarithms do not all round alike.
std::string Assumptions(RegionComparison& comparison, const Model& text) {
  const auto same = [&](const ProbeRound& round) {
    return comparison.Run(round).ok() && comparison.Compare(text).ok();
  };
  std::string assumes;
  constexpr uint32_t kSeed = 77;
  if (comparison.HasSlots() && !same({.seed = kSeed, .padding = true})) {
    assumes = "slots are not negative";
  }
  for (int exponent : {-20, -7, -3, 0, 3, 6, 13}) {
    if (same({.seed = kSeed, .exponent = exponent, .powers = true})) continue;
    StrAppend(&assumes, assumes.empty() ? "" : "; ",
              "exponents of exact powers of two are rounded as the op does");
    break;
  }
  return assumes;
}

}  // namespace

absl::StatusOr<FusionSearch::Found> FusionSearch::FindText(const Attempt& attempt,
                                                           const ComputedRegion& region,
                                                           const Draft& draft) const {
  RegionScope scope = region_scope_;
  for (const Value* port : region.ports) AddSymbols(*port, scope.sizes);
  RegionComparison comparison(region, scope, attempt.ports, attempt.outputs, draft);
  PF_RETURN_IF_ERROR(comparison.Prepare());
  std::vector<std::pair<std::string, Model>> left;
  for (const std::string& text : draft.texts) {
    PF_ASSIGN_OR_RETURN(Model model, ModelOf(text));
    left.emplace_back(text, std::move(model));
  }
  absl::Status last = absl::FailedPreconditionError("there is nothing to compare with");
  for (const ProbeRound& round : Rounds(comparison.narrow())) {
    PF_RETURN_IF_ERROR(comparison.Run(round));
    std::erase_if(left, [&](const auto& text) {
      const absl::Status same = comparison.Compare(text.second);
      if (!same.ok()) {
        last = absl::FailedPreconditionError(
            StrCat("numbers near 2^", round.exponent, ": ", StdView(same.message())));
      }
      return !same.ok();
    });
    if (left.empty()) return last;
  }
  return Found{left.front().first, Assumptions(comparison, left.front().second)};
}

absl::Status FusionSearch::Rewrite(const Attempt& attempt, const ComputedRegion& region,
                                   const Found& found) {
  Rule rule(attempt.rule);
  rule.MatchText(found.text).ReplaceWith(found.text);
  PF_RETURN_IF_ERROR(rule.Compile());
  Match match;
  match.pattern = attempt.rule;
  match.graph = scope_.graph;
  match.contents = &context_.contents;
  match.nodes = region.nodes;
  std::sort(match.nodes.begin(), match.nodes.end(), [this](const Node* a, const Node* b) {
    return index_.position(a) < index_.position(b);
  });
  for (size_t i = 0; i < attempt.ports.size(); ++i) {
    match.values[attempt.ports[i].name] = attempt.bound[i];
  }
  for (const OutputSpec& output : attempt.outputs) match.values[output.name] = output.value;
  PF_RETURN_IF_ERROR(ReplaceMatch(rule.impl(), 0, match,
                                  {scope_.graph, scope_.opsets, &index_, &context_.contents}));
  if (!found.assumes.empty()) Note(attempt.rule, found.assumes);
  return context_.Rewrote(model_, attempt.rule);
}

void FusionSearch::Note(const std::string& rule, const std::string& assumes) {
  constexpr std::string_view kRuleKey = "pkg.pagefuse.rule", kAssumesKey = "pkg.pagefuse.assumes";
  for (const auto& node : graph().nodes()) {
    if (node->domain() != "pagefuse" || FindMetadata(node->metadata, kRuleKey) != rule) continue;
    if (!FindMetadata(node->metadata, kAssumesKey)) {
      SetMetadata(node->metadata, kAssumesKey, assumes);
    }
  }
}

}  // namespace pagefuse
