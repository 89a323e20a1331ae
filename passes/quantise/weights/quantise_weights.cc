// SPDX-License-Identifier: Apache-2.0
// quantise-weights: constant matrices of products and tables get a format of weights
// (weight_format.h). As rows of bfloat16:
//
//   y = MatMul (x, w)           =>  y = pagefuse.Linear (x, rows)
//   y = Gather (table, ids)     =>  y = Cast <to = float> (Gather (rows, ids))
//
// w may be a stack of matrices, one for each of x.
//
// As codes of 4 or 8 bits in blocks of 32 along what a product sums over, symmetric:
//
//   y = MatMul (x, w)           =>  y = com.microsoft.MatMulNBits (x, codes, scales)
//   y = Gather (table, ids)     =>  y = com.microsoft.GatherBlockQuantized (codes, ids, scales)
//
// pagefuse.GatedLinear and GroupedMatMul (expert by expert) take both in place of their weights.
//
// A matrix that several nodes read is stored once: the table of embeddings and a tied head share
// their memory.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fnmatch.h>

#include "absl/strings/str_split.h"

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/module_paths.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/edit/weight_origin.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/quantise/quantise.h"
#include "pagefuse/passes/quantise/weights/kept_weights.h"
#include "pagefuse/passes/quantise/weights/stored_weights.h"
#include "pagefuse/passes/quantise/weights/weight_matches.h"

namespace pagefuse {
namespace {

constexpr char kName[] = "quantise-weights";

std::string ExcludedBy(const std::string& pattern) {
  return StrCat("\"", pattern, "\" is excluded");
}

// Patterns of names, and which of them some name had.
class Exclusions {
 public:
  explicit Exclusions(const std::string& patterns) {
    for (absl::string_view pattern : absl::StrSplit(patterns, ',', absl::SkipEmpty())) {
      patterns_.emplace_back(pattern);
    }
  }

  // The pattern that the node, its output, one of its weights, what that was made of, or one of its
  // modules has; null if there is none.
  const std::string* Find(const WeightMatch& match) {
    std::vector<std::string> names = {match.node->name, match.node->output(0)->name()};
    for (const WeightUse& weight : match.weights) {
      names.push_back(weight.value->name());
      names.emplace_back(OriginOf(*weight.value));
    }
    return Find(names, *match.node);
  }
  const std::string* Find(std::vector<std::string> names, const Node& node) {
    const std::vector<std::string> modules = ModulePaths(node);
    names.insert(names.end(), modules.begin(), modules.end());
    const std::string* found = nullptr;
    for (const std::string& name : names) {
      if (!name.empty()) known_.insert(name);
      for (const std::string& pattern : patterns_) {
        if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
        used_.insert(pattern);
        found = &pattern;
      }
    }
    return found;
  }

  // InvalidArgument naming a pattern that nothing had, nor when the pass ran before, by its misses.
  absl::Status CheckUsed(const std::vector<MissedMatch>& misses) const {
    for (const std::string& pattern : patterns_) {
      const auto tells_of = [why = ExcludedBy(pattern)](const MissedMatch& miss) {
        return miss.rule == kName && miss.condition == why;
      };
      if (used_.contains(pattern) || std::ranges::any_of(misses, tells_of)) continue;
      return absl::InvalidArgumentError(
          StrCat(kName, ": weights_exclude: no product or table is called \"", pattern, "\"",
                 SimilarNames(pattern, {known_.begin(), known_.end()})));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> patterns_;
  std::set<std::string> used_, known_;
};

class Rewriter {
 public:
  Rewriter(Model& model, PassContext& context, const WeightFormat& format)
      : model_(model),
        context_(context),
        format_(format),
        earlier_(TakeMisses(context)),
        excluded_(context.Option("weights_exclude", "")) {}

  absl::StatusOr<bool> Run() {
    for (const GraphScope& scope : AllGraphs(model_)) {
      stored_.emplace(*scope.graph, format_);
      const auto nodes = NodesOf(*scope.graph);
      ProgressStage progress(StrCat("quantising weights to ", format_.name),
                             static_cast<int64_t>(nodes.size()));
      int64_t done = 0;
      for (Node* node : nodes) {
        progress.Reach(done++);
        PF_RETURN_IF_ERROR(Visit(scope, node));
      }
    }
    PF_RETURN_IF_ERROR(excluded_.CheckUsed(earlier_));
    return changed_;
  }

 private:
  // Those of a run before, which looked at the same places: what it saw computed may be a constant by
  // now.
  static std::vector<MissedMatch> TakeMisses(PassContext& context) {
    std::vector<MissedMatch> taken;
    std::erase_if(context.misses, [&taken](const MissedMatch& miss) {
      if (miss.rule == kName) taken.push_back(miss);
      return miss.rule == kName;
    });
    return taken;
  }

  absl::Status Visit(const GraphScope& scope, Node* node) {
    if (format_.layout == WeightLayout::kRows && RoundsInFloat(*node))
      return RoundActivations(node);
    const absl::StatusOr<WeightMatch> match = WeightMatchOf(node, format_);
    if (match.ok() && match->weights.empty()) {
      // What computes its weight may be folded before the next run.
      if (match->node != nullptr) excluded_.Find(*match);
      return absl::OkStatus();
    }
    const std::string* pattern = excluded_.Find(match.ok() ? *match : Refused(node));
    if (pattern != nullptr || !match.ok()) {
      context_.AddMissedMatch(
          kName, NodeLabel(*node),
          pattern != nullptr ? ExcludedBy(*pattern) : std::string(match.status().message()));
      return absl::OkStatus();
    }
    const absl::StatusOr<Node*> made = stored_->Put(*match);
    PF_RETURN_IF_ERROR(AtPlace(StrCat(kName, ": ", node->Description()), made.status()));
    std::vector<std::string> names;
    for (const WeightUse& weight : match->weights) names.push_back(weight.value->name());
    Replace(scope, *made, node);
    for (const std::string& name : names) EraseUnused(scope, name);
    return context_.Rewrote(model_, kName);
  }

  // What stays for another reason has names that patterns may have too.
  static WeightMatch Refused(Node* node) {
    WeightMatch match{.node = node};
    for (const Value* input : node->inputs()) {
      if (ConstantOf(input) != nullptr) match.weights.push_back({.value = input});
    }
    return match;
  }

  // Products with codes keep those: where they leave the activations' precision open, a unit for
  // bfloat16 multiplies them as such.
  static bool RoundsInFloat(const Node& node) {
    return node.Is("MatMulNBits", "com.microsoft") && IntOr(node, "accuracy_level", 0) == 0;
  }

  absl::Status RoundActivations(Node* node) {
    std::vector<std::string> names = {node->name, node->output(0)->name(), node->input(1)->name()};
    if (const std::string* pattern = excluded_.Find(names, *node)) {
      context_.AddMissedMatch(kName, NodeLabel(*node), ExcludedBy(*pattern));
      return absl::OkStatus();
    }
    node->SetAttribute("accuracy_level", MakeAttribute(kBfloat16Level));
    changed_ = true;
    return context_.Rewrote(model_, kName);
  }

  void Replace(const GraphScope& scope, Node* made, Node* old) {
    int64_t& version = (*scope.opsets)[std::string(made->domain())];
    if (version == 0) version = 1;
    ReplaceValue(*scope.graph, old->output(0), made->output(0));
    EraseDead(old, context_.contents);
    changed_ = true;
  }

  // A matrix that nothing reads any more would be saved with its codes.
  void EraseUnused(const GraphScope& scope, const std::string& name) {
    Value* value = scope.graph->FindValue(name);
    if (value == nullptr || !value->uses().empty() || value->is_output()) return;
    context_.contents.erase(value);
    scope.graph->EraseValue(value);
  }

  Model& model_;
  PassContext& context_;
  const WeightFormat& format_;
  const std::vector<MissedMatch> earlier_;
  Exclusions excluded_;
  std::optional<StoredWeights> stored_;
  bool changed_ = false;
};

absl::StatusOr<bool> Quantise(Model& model, PassContext& context) {
  const auto format = FindWeightFormat(context.Option("weights", "float32"));
  PF_RETURN_IF_ERROR(AtPlace(kName, format.status()));
  if (format->changes_nothing()) return false;
  return Rewriter(model, context, *format).Run();
}

}  // namespace

std::unique_ptr<Pass> QuantiseWeights() {
  std::vector<std::string> choices;
  for (const WeightFormat& format : WeightFormats()) choices.emplace_back(format.name);
  return MakePass(
      kName,
      "Stores constant matrices of products, of experts, and tables as bfloat16 or codes of 4 or 8 "
      "bits.",
      Quantise,
      {{"weights", "format of weights, float32 by default", choices},
       {.name = "weights_exclude",
        .description = "names of nodes, their outputs, weights or modules that stay as they are, "
                       "with commas; * stands for any letters, ? for one",
        .is_text = true}});
}

}  // namespace pagefuse
