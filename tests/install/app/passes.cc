// SPDX-License-Identifier: Apache-2.0
// An author of passes outside the source tree: a rule and a pass of their own run over a model given by
// path, which then gives the same numbers as before.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/plugin/loader/load_plugin.h"

namespace {

using pagefuse::Graph;
using pagefuse::GraphBuilder;
using pagefuse::Model;
using pagefuse::Node;
using pagefuse::PassContext;
using pagefuse::Value;

// Products with reciprocal roots are quotients, as a rule.
std::unique_ptr<pagefuse::Pass> QuotientsByRoots() {
  pagefuse::Rule rule("app-quotient", "Products with reciprocal roots are quotients");
  rule.MatchText(R"((x, square) => (y) {
          root = Sqrt (square)
          inverse = Reciprocal (root)
          y = Mul (x, inverse)
        })")
      .Where("float(x), rank(x) == rank(square)")
      .ReplaceWith("(x, square) => (y) { root = Sqrt (square)  y = Div (x, root) }");
  return pagefuse::MakeRulePass("app-quotients", "Writes quotients by roots as such.", {rule});
}

// Tanh (x) as 2 * Sigmoid (2 * x) - 1, node by node.
std::unique_ptr<pagefuse::Pass> TanhBySigmoid() {
  const auto rewrite = [](Graph& graph, Node* node,
                          const pagefuse::SymbolicContents&) -> absl::StatusOr<bool> {
    if (!node->Is("Tanh")) return false;
    GraphBuilder builder(graph, node, node->output(0)->name());
    Value* doubled = builder.Add("Mul", {node->input(0), builder.Float(2)});
    Value* sigmoid = builder.Add("Sigmoid", {doubled});
    Value* scaled = builder.Add("Mul", {sigmoid, builder.Float(2)});
    graph.ReplaceAllUses(node->output(0), builder.Add("Sub", {scaled, builder.Float(1)}));
    graph.EraseNode(node);
    return true;
  };
  return pagefuse::MakeNodePass("app-tanh", "Writes Tanh by Sigmoid.", rewrite);
}

absl::Status Run(const std::string& path) {
  absl::StatusOr<Model> model = pagefuse::LoadModel(path);
  if (!model.ok()) return model.status();
  Model before = model->Clone();
  std::vector<std::unique_ptr<pagefuse::Pass>> passes;
  passes.push_back(*pagefuse::FindPass("constant-folding"));
  passes.push_back(QuotientsByRoots());
  passes.push_back(TanhBySigmoid());
  for (const auto& pass : passes) {
    PassContext context;
    const absl::StatusOr<bool> changed = pagefuse::RunPass(*pass, *model, context);
    if (!changed.ok()) return changed.status();
    for (const auto& [rule, count] : context.counts) std::printf("%s: %d\n", rule.c_str(), count);
  }
  for (Model* each : {&before, &*model}) {
    const absl::Status inferred = pagefuse::InferShapes(*each);
    if (!inferred.ok()) return inferred;
  }
  const auto equal = pagefuse::CompareOnRandomInputs(before, *model);
  if (equal.ok()) std::printf("%s\n", equal->c_str());
  return equal.status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  absl::Status status = pagefuse::LoadPlugin(argv[2]).status();
  if (status.ok()) status = Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
