// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/subgraph_equivalence.h"
#include "pagefuse/passes/rewrite/pattern.h"
#include "pagefuse/passes/rewrite/rule_impl.h"

namespace pagefuse {
namespace {

// Every symbol of a dim, for the comparison: several tokens, and windows of any usual ratio fit.
constexpr int64_t kSymbolSize = 8;
// Ways to bind the ports of one output that are looked at, and of these, compared by numbers.
constexpr int kMaxBindings = 4000;
constexpr int kMaxComparisons = 128;
void AddSymbols(const Value& value, DimSizes& sizes) {
  if (!value.shape()) return;
  for (const Dim& dim : value.shape()->dims()) {
    for (const auto& [symbol, factor] : dim.terms()) sizes.emplace(symbol, kSymbolSize);
  }
}

// Each symbol another multiple of the size that all have: in their order, or against it.
DimSizes Apart(DimSizes sizes, int step) {
  int64_t times = step > 0 ? 1 : static_cast<int64_t>(sizes.size());
  for (auto& [symbol, size] : sizes) {
    size *= times;
    times += step;
  }
  return sizes;
}

bool IsViewOrCast(const Node& node) {
  return IsViewNode(node) || node.Is("Cast") || node.Is("Identity");
}

// A part of what the graph is given, as caches are that lie in one tensor.
bool IsPart(const Node& node) {
  return node.Is("Slice") || node.Is("Split") || (node.Is("Gather") && ConstantOf(node.input(1)));
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
  bool only_leaves = false;  // ports are not taken behind views and casts
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

void FusionSearch::NoteMissedMatch(const std::string& rule, const Value& output,
                                   std::string_view condition) {
  constexpr int kLeastTold = 2;  // nodes
  misses_.try_emplace({rule, output.name()},
                      MissedMatch{rule, output.name(), std::string(condition), kLeastTold});
}

void FusionSearch::ReportMisses() const {
  for (const auto& [key, miss] : misses_) {
    // What became part of another op is no miss.
    const Value* output = graph().FindValue(miss.at);
    if (!output || !output->producer() || !output->producer()->domain().empty()) continue;
    context_.AddMissedMatch(miss.rule, miss.at, miss.condition, miss.matched_nodes);
  }
}

absl::StatusOr<bool> FusionSearch::Fuse(
    const std::string& rule, const std::vector<OutputSpec>& outputs,
    const std::vector<FusionPort>& ports,
    const std::function<Draft(const BoundPorts&, const ComputedRegion&)>& draft) {
  Attempt attempt{.rule = rule, .outputs = outputs, .ports = ports, .draft = draft};
  for (const OutputSpec& output : outputs) attempt.output_values.push_back(output.value);
  PF_ASSIGN_OR_RETURN(const bool fused, Bind(attempt, 0));
  const bool gave_up = attempt.bindings > kMaxBindings || attempt.comparisons > kMaxComparisons;
  if (fused || !gave_up) return fused;
  // Too many to try all, mostly since each may be taken behind a cast: as they come, then.
  attempt.bound.clear();
  attempt.bindings = 0;
  attempt.comparisons = 0;
  attempt.only_leaves = true;
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
  if (attempt.only_leaves && !spec.inner) return candidates;
  for (Node* node : upstream.nodes) {
    const bool moves = IsViewOrCast(*node) || (spec.role == ProbeRole::kContents && IsPart(*node));
    const bool still_outer = moves && node->input(0) && outer.contains(node->input(0));
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
  if (!region.ok()) return false;
  const auto miss = [&](const absl::Status& status) {
    const int nodes = static_cast<int>(region->nodes.size());
    for (const OutputSpec& output : attempt.outputs) {
      const std::string& at = output.value->name();
      MissedMatch& nearest = misses_[{attempt.rule, at}];
      if (nodes <= nearest.matched_nodes) continue;
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
  const absl::StatusOr<FoundText> found = FindText(attempt, *region, draft);
  if (!found.ok()) return miss(found.status());
  const absl::Status rewritten = Rewrite(attempt, *region, *found);
  if (absl::IsFailedPrecondition(rewritten)) return miss(rewritten);
  PF_RETURN_IF_ERROR(rewritten);
  return true;
}

absl::StatusOr<FoundText> FusionSearch::FindText(const Attempt& attempt,
                                                 const ComputedRegion& region,
                                                 const Draft& draft) const {
  ComparedScopes scopes{.alike = region_scope_, .apart = {}};
  for (const Value* port : region.ports) AddSymbols(*port, scopes.alike.sizes);
  for (const int step : {1, -1}) {
    scopes.apart.push_back(scopes.alike);
    scopes.apart.back().sizes = Apart(scopes.alike.sizes, step);
  }
  for (const auto& [symbol, size] : draft.sizes) {
    scopes.alike.sizes[symbol] = size;
    for (RegionScope& apart : scopes.apart) apart.sizes[symbol] = size;
  }
  return FindSameText(region, scopes, attempt.ports, attempt.outputs, draft);
}

absl::Status FusionSearch::Rewrite(const Attempt& attempt, const ComputedRegion& region,
                                   const FoundText& found) {
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
