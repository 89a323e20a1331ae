// SPDX-License-Identifier: Apache-2.0
// scalar-functions: whatever computes the codes of a number format from one tensor, by thresholds,
// logarithms or bit operations, becomes the casts that say so. The sub-graph is evaluated at every
// code and border and compared with the format's own definition (known_functions.h).
#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/functions/known_functions.h"
#include "pagefuse/passes/analysis/functions/scalar_region.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "scalar-functions";

// The first that has BitCast. From the canonical one on, no op that was there has changed its
// meaning.
constexpr int64_t kBitCastOpset = 26;

bool IsWritten(const ScalarRegion& region, const KnownFunction& function) {
  return std::equal(region.nodes.begin(), region.nodes.end(), function.written.begin(),
                    function.written.end(), [](const Node* node, const std::string& op) {
                      return node->domain().empty() && node->op_type() == op;
                    });
}

// What makes a region worth an evaluation: something rounds, chooses, looks up or works on bits.
bool HintsAtCodec(const Node& node) {
  static constexpr std::string_view kOps[] = {"Cast",   "BitCast", "Round", "Clip",
                                              "Gather", "Floor",   "Where"};
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&node](std::string_view op) { return node.Is(op); });
}

bool MayBeCodec(const ScalarRegion& region) {
  return std::ranges::any_of(region.nodes, [](const Node* node) { return HintsAtCodec(*node); });
}

class FunctionReader {
 public:
  FunctionReader(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model), context_(context), scope_(scope) {}

  absl::StatusOr<bool> Run() {
    bool changed = false;
    const auto ends = EndsOfRegionsWith(HintsAtCodec, *scope_.graph, *scope_.opsets);
    // From the end, so that the longest regions are found first.
    std::vector<Node*> nodes = NodesOf(*scope_.graph);
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      if (erased_.contains(*it) || !ends.contains(*it)) continue;
      PF_ASSIGN_OR_RETURN(const bool rewritten, RewriteAt((*it)->output(0)));
      changed = changed || rewritten;
    }
    return changed;
  }

 private:
  absl::StatusOr<bool> RewriteAt(Value* result) {
    std::vector<ScalarRegion> regions = ScalarRegionsOf(result, *scope_.opsets);
    for (auto region = regions.rbegin(); region != regions.rend(); ++region) {
      for (const KnownFunction& function : KnownFunctions()) {
        if (!IsFunction(*region, function)) continue;
        if (IsWritten(*region, function)) return false;
        PF_RETURN_IF_ERROR(Write(*region, function));
        return true;
      }
    }
    return false;
  }

  bool IsFunction(const ScalarRegion& region, const KnownFunction& function) {
    const bool types =
        region.source->dtype() == function.from && region.result->dtype() == function.to;
    if (!types || region.nodes.size() < 2 || !MayBeCodec(region)) return false;
    const auto values = EvaluateRegion(region, *scope_.opsets, function.points);
    if (!values.ok()) return false;
    const absl::Status same = CompareAtPoints(function, *values);
    if (!same.ok()) {
      context_.AddMissedMatch(kName, region.result->name(), StdView(same.message()),
                              static_cast<int>(region.nodes.size()));
    }
    return same.ok();
  }

  absl::Status Write(const ScalarRegion& region, const KnownFunction& function) {
    Node* old = region.result->producer();
    GraphBuilder builder(*scope_.graph, old, region.result->name());
    Value* written = function.write(builder, region.source);
    int64_t& opset = (*scope_.opsets)[""];
    opset = std::max(opset, kBitCastOpset);
    InferBetween(region.source, written);
    ReplaceValue(*scope_.graph, region.result, written);
    for (const Node* node : EraseDead(old, context_.contents)) erased_.insert(node);
    return context_.Rewrote(model_, kName);
  }

  // Types and shapes of the nodes from `source` to `written`, a chain.
  void InferBetween(const Value* source, const Value* written) {
    std::vector<const Node*> chain;
    for (const Value* value = written; value != source; value = value->producer()->input(0)) {
      chain.push_back(value->producer());
    }
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      (void)InferNode(**it, *scope_.opsets, context_.contents);
    }
  }

  Model& model_;
  PassContext& context_;
  GraphScope scope_;
  absl::flat_hash_set<const Node*> erased_;
};

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  bool changed = false;
  for (const GraphScope& scope : AllGraphs(model)) {
    PF_ASSIGN_OR_RETURN(const bool here, FunctionReader(model, context, scope).Run());
    changed = changed || here;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseScalarFunctions() {
  return MakePass(
      kName,
      "Recognises how values are encoded in a number format, by evaluating the subgraph at "
      "every code, and writes it as casts.",
      Run);
}

}  // namespace pagefuse
