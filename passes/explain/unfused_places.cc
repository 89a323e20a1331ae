// SPDX-License-Identifier: Apache-2.0
// unfused-places: reports the places that belong to a family of fusions and that no fused op took,
// and why.
//
// Places are found by what they are made of (fusion_families.h), in one walk over the graph. Only
// where there are some, the rules that could take them up are asked for their nearest miss there;
// passes that are no rules have noted theirs already.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/node_walk.h"
#include "pagefuse/passes/explain/explain.h"
#include "pagefuse/passes/explain/fusion_families.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/function_pass.h"

namespace pagefuse {
namespace {

constexpr std::string_view kPagePass = "insert-paged-cache";
// From what tells a family to the last node of what its rules match.
constexpr int kReach = 8;
// A root alone may be that of any other place nearby.
constexpr int kLeastMatched = 2;

using Places = std::vector<Node*>;

// The nearest miss by where it was: names of values and nodes.
using MissesByPlace = std::map<std::string, MissedMatch, std::less<>>;

void Note(const MissedMatch& miss, MissesByPlace& places) {
  const auto [it, added] = places.try_emplace(miss.at, miss);
  if (!added && miss.matched_nodes > it->second.matched_nodes) it->second = miss;
}

class Finder {
 public:
  Finder(Model& model, PassContext& context, bool pages)
      : model_(model), context_(context), pages_(pages) {}

  absl::Status Run() {
    for (const FusionFamily& family : FusionFamilies()) {
      const Places matches = PlacesOf(family.holds);
      if (!matches.empty()) PF_RETURN_IF_ERROR(Tell(family, matches));
    }
    if (pages_) TellOps(PlacesOf(IsAttentionOp));
    return absl::OkStatus();
  }

 private:
  Places PlacesOf(bool (*holds)(const Node&)) {
    Places matches;
    for (const GraphScope& scope : AllGraphs(model_)) {
      for (const auto& node : scope.graph->nodes()) {
        if (node->output(0) != nullptr && holds(*node)) matches.push_back(node.get());
      }
    }
    return matches;
  }

  absl::Status Tell(const FusionFamily& family, const Places& matches) {
    MissesByPlace noted, asked;
    for (const MissedMatch& miss : context_.misses) {
      if (NotedBy(family, miss.rule)) Note(miss, noted);
    }
    for (const auto make : family.ask) PF_RETURN_IF_ERROR(Ask(*make(), matches, asked));
    for (const Node* match : matches) {
      Add(family.name, *match,
          Nearest(family, NearestAhead(*match, noted), NearestAhead(*match, asked)));
    }
    return absl::OkStatus();
  }

  // A pass that read the place whole knows more of it than the pattern that got furthest, unless it read
  // no more than the plain form, and all nodes of the pattern fit.
  static MissedMatch Nearest(const FusionFamily& family, const MissedMatch* read,
                             const MissedMatch* matched) {
    const bool is_plain = read && !family.plain.empty() && read->matched_nodes == kLeastMatched;
    const bool fits = matched && matched->matched_nodes >= matched->pattern_nodes;
    if (!read || (is_plain && fits)) return matched ? *matched : MissedMatch{};
    MissedMatch nearest = *read;
    if (is_plain) nearest.rule = std::string(family.plain);
    return nearest;
  }

  static bool NotedBy(const FusionFamily& family, const std::string& rule) {
    for (const std::string_view pass : family.noted) {
      if (rule == pass) return true;
      // The fusions that are compared by numbers are called after their ops.
      constexpr std::string_view kPrefix = "fuse-";
      if (pass == "fuse-equivalent" && rule.size() > kPrefix.size() &&
          std::isupper(static_cast<unsigned char>(rule[kPrefix.size()])) != 0) {
        return true;
      }
    }
    return false;
  }

  // The value that a condition speaks of first; empty if it speaks of none.
  static std::string_view NamedBy(std::string_view condition) {
    const size_t open = condition.find('"');
    if (open == std::string_view::npos) return {};
    return condition.substr(open + 1, condition.find('"', open + 1) - open - 1);
  }

  // Of as many nodes that fit, what failed behind the match comes before what failed elsewhere.
  static const MissedMatch* NearestAhead(const Node& match, const MissesByPlace& places) {
    const std::vector<const Node*> ahead = Ahead(match, kReach);
    absl::flat_hash_set<std::string_view> names;
    for (const Node* node : ahead) {
      for (const Value* output : node->outputs()) {
        if (output != nullptr) names.insert(output->name());
      }
    }
    const auto nearness = [&names](const MissedMatch& miss) {
      return std::pair(miss.matched_nodes, names.contains(NamedBy(miss.condition)));
    };
    const MissedMatch* nearest = nullptr;
    const auto look = [&](const std::string& name) {
      const auto found = places.find(name);
      if (found == places.end() || found->second.matched_nodes < kLeastMatched) return;
      if (nearest == nullptr || nearness(found->second) > nearness(*nearest)) {
        nearest = &found->second;
      }
    };
    for (const Node* node : ahead) {
      for (const Value* output : node->outputs()) {
        if (output != nullptr) look(output->name());
      }
      if (!node->name.empty()) look(node->name);
    }
    return nearest;
  }

  // Has the rules of a pass tried below the matches, without rewriting.
  absl::Status Ask(const Pass& pass, const Places& matches, MissesByPlace& places) {
    absl::flat_hash_set<const Node*> nodes;
    for (const Node* match : matches) {
      for (const Node* node : Ahead(*match, kReach)) nodes.insert(node);
    }
    PassContext asking;
    asking.options = context_.options;
    asking.explain = true;
    asking.side_by_side = context_.side_by_side;
    asking.asked_at = &nodes;
    std::swap(asking.contents, context_.contents);
    std::swap(asking.indices, context_.indices);
    const absl::Status ran = pass.Run(model_, asking).status();
    std::swap(asking.contents, context_.contents);
    std::swap(asking.indices, context_.indices);
    for (const MissedMatch& miss : asking.misses) Note(miss, places);
    return ran;
  }

  // Why attention that is one op has no pages: all have them or none.
  void TellOps(const Places& ops) {
    MissedMatch why{.rule = std::string(kPagePass), .at = "", .condition = "it did not run"};
    for (const MissedMatch& miss : context_.misses) {
      if (miss.rule == kPagePass) why.condition = miss.condition;
    }
    for (const Node* op : ops) Add("attention without pages", *op, why);
  }

  void Add(std::string_view family, const Node& node, const MissedMatch& miss) {
    const std::string key = StrCat(family, "\n", miss.rule, "\n", WithoutNumbers(miss.condition));
    const auto [it, added] = by_reason_.try_emplace(key, context_.unfused.size());
    if (!added) {
      ++context_.unfused[it->second].places;
      context_.unfused[it->second].values.push_back(node.output(0)->name());
      return;
    }
    context_.unfused.push_back({.family = std::string(family),
                                .node = node.Description(),
                                .rule = miss.rule,
                                .reason = miss.condition,
                                .nearest = miss,
                                .values = {node.output(0)->name()}});
  }

  Model& model_;
  PassContext& context_;
  const bool pages_;
  std::map<std::string, size_t> by_reason_;
};

}  // namespace

std::unique_ptr<Pass> UnfusedPlaces(bool pages) {
  return MakePass(
      "unfused-places",
      "Reports each attention without a paged cache and each place where an expected fusion did "
      "not fire, with the reason, and changes nothing.",
      [pages](Model& model, PassContext& context) -> absl::StatusOr<bool> {
        PF_RETURN_IF_ERROR(Finder(model, context, pages).Run());
        return false;
      });
}

}  // namespace pagefuse
