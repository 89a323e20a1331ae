// SPDX-License-Identifier: Apache-2.0
// The pass that applies rules everywhere until none fires.
#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/rewrite/rule_impl.h"

namespace pagefuse {
namespace {

// The pattern's nodes, in order, and what they are in the graph.
std::vector<std::pair<std::string, std::string>> SideBySide(const Pattern& pattern,
                                                            const MatchResult& result) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Node* node : pattern.nodes) {
    const auto found =
        std::ranges::find_if(result.nodes, [node](const auto& pair) { return pair.first == node; });
    lines.emplace_back(NodeLine(*node),
                       found == result.nodes.end() ? "" : NodeLine(*found->second));
  }
  return lines;
}

// The work of one pass run on one graph.
class RuleRun {
 public:
  RuleRun(Model& model, PassContext& context, const GraphScope& scope,
          const std::vector<Rule>& rules)
      : model_(model),
        context_(context),
        scope_(scope),
        rules_(rules),
        index_(context.indices.Of(*scope.graph)) {}

  absl::StatusOr<bool> Run() {
    const int64_t limit = 2 * index_.num_nodes() + 100;
    while (true) {
      misses_.clear();
      const int64_t before = rewrites_;
      for (const Rule& rule : rules_) PF_RETURN_IF_ERROR(Apply(rule));
      if (rewrites_ == before) break;
      if (rewrites_ > limit) {
        return absl::InternalError(StrCat("rules of \"", rules_.front().name(),
                                          "\" keep rewriting: stopped after ", rewrites_,
                                          " rewrites"));
      }
    }
    // The last sweep changed nothing, so its misses speak of the graph as it is now.
    context_.misses.insert(context_.misses.end(), misses_.begin(), misses_.end());
    return rewrites_ > 0;
  }

 private:
  absl::Status Apply(const Rule& rule) {
    if (context_.left_out.contains(rule.name())) return absl::OkStatus();
    if (!context_.explain && !HasAll(index_, rule.impl().needs)) return absl::OkStatus();
    PF_RETURN_IF_ERROR(rule.Compile());
    const auto& patterns = rule.impl().compiled->patterns;
    for (int i = 0; i < static_cast<int>(patterns.size()); ++i) {
      // How near a pattern comes that cannot match is told to those who ask.
      if (!context_.explain && !HasAll(index_, patterns[i]->needed_types)) continue;
      for (Node* node : Candidates(*patterns[i])) {
        if (index_.alive(node)) PF_RETURN_IF_ERROR(TryAt(rule, i, node));
      }
    }
    return absl::OkStatus();
  }

  // In the order of the graph.
  std::vector<Node*> Candidates(const Pattern& pattern) const {
    std::vector<std::pair<int64_t, Node*>> found;
    for (const std::string& type : AnchorTypes(pattern)) {
      for (Node* node : index_.nodes(type)) {
        if (context_.asked_at != nullptr && !context_.asked_at->contains(node)) continue;
        if (index_.alive(node)) found.emplace_back(index_.position(node), node);
      }
    }
    std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Node*> nodes;
    nodes.reserve(found.size());
    for (const auto& [position, node] : found) nodes.push_back(node);
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return nodes;
  }

  absl::Status TryAt(const Rule& rule, int pattern_index, Node* node) {
    const Pattern& pattern = *rule.impl().compiled->patterns[pattern_index];
    const Value& output = *pattern[pattern.outputs[AnchorOutput(pattern)]].value;
    const bool same_type = output.producer()->op_type() == node->op_type();
    Value* anchor = node->output(same_type ? output.producer_index() : 0);
    if (anchor == nullptr) return absl::OkStatus();
    const std::string at = context_.explain ? anchor->name() : "";
    const MatchScope scope{scope_.graph, scope_.opsets, &index_, &context_.contents,
                           context_.explain};
    absl::Status failure;
    const MatchResult result = MatchAt(pattern, scope, anchor, [&](Match& match) {
      absl::Status status = Rewrite(rule, pattern_index, match);
      // Anything else is a reason not to fire here.
      if (absl::IsInternal(status)) failure = status;
      return status;
    });
    PF_RETURN_IF_ERROR(failure);
    if (result.matched) {
      ++rewrites_;
      return context_.Rewrote(model_, rule.name());
    }
    // The root alone is a near miss too.
    if (context_.explain && result.matched_nodes >= 1) NoteMissedMatch(rule, pattern, at, result);
    return absl::OkStatus();
  }

  void NoteMissedMatch(const Rule& rule, const Pattern& pattern, const std::string& at,
                       const MatchResult& result) {
    MissedMatch miss{rule.name(), at, result.reason, result.matched_nodes};
    miss.variant = pattern.name;
    miss.pattern_nodes = static_cast<int>(pattern.nodes.size());
    if (context_.side_by_side) miss.side_by_side = SideBySide(pattern, result);
    misses_.push_back(std::move(miss));
  }

  absl::Status Rewrite(const Rule& rule, int pattern_index, Match& match) {
    for (const auto& step : rule.impl().steps) {
      if (const auto* condition = std::get_if<Condition>(&step)) {
        PF_RETURN_IF_ERROR(condition->run(match));
      } else {
        PF_RETURN_IF_ERROR(std::get<Derivation>(step)(match));
      }
    }
    if (context_.asked_at != nullptr) {
      return MatchFailure("it fits the graph as later passes left it, and only so");
    }
    return ReplaceMatch(rule.impl(), pattern_index, match,
                        {scope_.graph, scope_.opsets, &index_, &context_.contents});
  }

  Model& model_;
  PassContext& context_;
  const GraphScope& scope_;
  const std::vector<Rule>& rules_;
  GraphIndex& index_;
  std::vector<MissedMatch> misses_;
  int64_t rewrites_ = 0;
};

}  // namespace

std::unique_ptr<Pass> MakeRulePass(std::string_view name, std::string_view description,
                                   std::vector<Rule> rules) {
  std::vector<RuleSummary> summaries;
  for (const Rule& rule : rules) summaries.push_back({rule.name(), rule.description()});
  const auto run = [rules = std::move(rules)](Model& model, PassContext& context,
                                              const GraphScope& scope) {
    return RuleRun(model, context, scope, rules).Run();
  };
  return MakeGraphPass(name, description, run, std::move(summaries));
}

}  // namespace pagefuse
