// SPDX-License-Identifier: Apache-2.0
// write-bodies: makes a fused op a call of a function that says what it computes, so that a runtime
// that does not have the op runs the body.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/lower/body_rewrites.h"
#include "pagefuse/passes/lower/call_bodies.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "write-bodies";

// What `cache` is a view of.
const Value* ViewedBy(const Value* cache) {
  const Node* node = cache->producer();
  while (node != nullptr && IsAnyOf(*node, {"Reshape", "Unsqueeze", "Squeeze", "Identity"})) {
    cache = node->input(0);
    node = cache->producer();
  }
  return cache;
}

// Two inserts into one cache, one behind the other: a runtime copies the cache for the first of
// them, or writes into what its caller gave.
absl::Status CheckOneWriter(const Node& node, const OpDef& op) {
  for (const auto& [output, input] : op.aliases()) {
    if (node.input(input) == nullptr) continue;
    const Value* cache = ViewedBy(node.input(input));
    if (cache->producer() == nullptr) continue;
    return absl::FailedPreconditionError(
        StrCat(node.Description(), ": input ", input, " \"", cache->name(),
               "\": expected a cache as it comes into the graph, got the one that ",
               cache->producer()->Description(), " wrote: a file has one writer for each cache"));
  }
  return absl::OkStatus();
}

// Other runtimes have its ops, or are known to lack them.
bool IsStandard(std::string_view domain) {
  return domain.empty() || domain.starts_with("ai.onnx") || domain == "com.microsoft";
}

// Writes the bodies of one model.
class Writer {
 public:
  Writer(Model& model, PassContext& context) : model_(model), context_(context) {}

  // True if there were any.
  absl::StatusOr<bool> Run() {
    PF_RETURN_IF_ERROR(Write(*model_.graph, model_.opset_imports));
    // Bodies come to the end of the list, and may call ops themselves.
    for (size_t i = 0; i < model_.functions.size(); ++i) {
      const std::shared_ptr<Graph> body = model_.functions[i].body;
      OpsetImports opsets = model_.functions[i].opset_imports;
      PF_RETURN_IF_ERROR(Write(*body, opsets));
      model_.functions[i].opset_imports = std::move(opsets);
    }
    NameDomains();
    return changed_;
  }

 private:
  absl::Status Write(Graph& graph, OpsetImports& opsets) {
    for (Node* node : NodesOf(graph)) {
      for (Graph* subgraph : node->Subgraphs()) PF_RETURN_IF_ERROR(Write(*subgraph, opsets));
      if (!IsStandard(node->domain())) PF_RETURN_IF_ERROR(Write(node, opsets));
    }
    return absl::OkStatus();
  }

  absl::Status Write(Node* node, OpsetImports& opsets) {
    const OpDef* op = FindOpDef(*node, opsets);
    if (op == nullptr || !op->has_decomposition()) {
      if (node->domain() == kFusedDomain || op != nullptr) {
        context_.AddMissedMatch(kName, NodeLabel(*node),
                                StrCat(node->Description(), " has no body"));
      }
      return absl::OkStatus();
    }
    PF_RETURN_IF_ERROR(CheckOneWriter(*node, *op));
    CallBodies& bodies = bodies_.try_emplace(node->domain(), model_, node->domain()).first->second;
    PF_ASSIGN_OR_RETURN(const std::string domain, bodies.Add(node, *op));
    opsets[domain] = 1;
    changed_ = true;
    return context_.Rewrote(model_, kName);
  }

  // Says which domains besides ours have bodies.
  void NameDomains() {
    std::string names;
    for (const auto& [domain, bodies] : bodies_) {
      if (domain != kFusedDomain) StrAppend(&names, names.empty() ? "" : "\n", domain);
    }
    if (!names.empty()) SetMetadata(model_.metadata, kBodyDomains, names);
  }

  Model& model_;
  PassContext& context_;
  std::map<std::string, CallBodies> bodies_;  // by domain
  bool changed_ = false;
};

absl::StatusOr<bool> WriteAll(Model& model, PassContext& context) {
  // Written before.
  for (const Function& function : model.functions) {
    if (function.domain == kFusedDomain) return false;
  }
  if (FindMetadata(model.metadata, kBodyDomains)) return false;
  PF_ASSIGN_OR_RETURN(const bool changed, Writer(model, context).Run());
  if (!changed) return false;
  for (Function& function : model.functions) ScatterInPlace(*function.body);
  return true;
}

}  // namespace

std::unique_ptr<Pass> WriteBodies() {
  return MakePass(
      kName,
      "Writes a model-local function for each distinct body of a fused op or of an op of a "
      "plug-in.",
      WriteAll);
}

}  // namespace pagefuse
