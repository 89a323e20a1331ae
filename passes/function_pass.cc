// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/function_pass.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

class FunctionPass : public Pass {
 public:
  FunctionPass(std::string_view name, std::string_view description, PassFunction run,
               std::vector<PassOption> options, std::vector<RuleSummary> rules)
      : name_(name),
        description_(description),
        run_(std::move(run)),
        options_(std::move(options)),
        rules_(std::move(rules)) {}
  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  std::vector<RuleSummary> rules() const override { return rules_; }
  std::vector<PassOption> options() const override { return options_; }
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    return run_(model, context);
  }

 private:
  std::string name_, description_;
  PassFunction run_;
  std::vector<PassOption> options_;
  std::vector<RuleSummary> rules_;
};

}  // namespace

std::unique_ptr<Pass> MakePass(std::string_view name, std::string_view description,
                               PassFunction run, std::vector<PassOption> options,
                               std::vector<RuleSummary> rules) {
  return std::make_unique<FunctionPass>(name, description, std::move(run), std::move(options),
                                        std::move(rules));
}

std::unique_ptr<Pass> MakeNodePass(std::string_view name, std::string_view description,
                                   NodeFunction rewrite) {
  const auto on_nodes = [name = std::string(name), rewrite = std::move(rewrite)](
                            Model& model, PassContext& context) -> absl::StatusOr<bool> {
    bool changed = false;
    for (Node* node : NodesOf(*model.graph)) {
      PF_ASSIGN_OR_RETURN(const bool rewritten, rewrite(*model.graph, node, context.contents));
      if (!rewritten) continue;
      context.contents.clear();
      PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
      PF_RETURN_IF_ERROR(context.Rewrote(model, name));
      changed = true;
    }
    return changed;
  };
  return MakePass(name, description, on_nodes);
}

std::unique_ptr<Pass> MakeGraphPass(std::string_view name, std::string_view description,
                                    GraphFunction run, std::vector<RuleSummary> rules) {
  const auto on_all = [run = std::move(run)](Model& model,
                                             PassContext& context) -> absl::StatusOr<bool> {
    bool changed = false;
    const std::vector<GraphScope> scopes = AllGraphs(model);
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      PF_ASSIGN_OR_RETURN(const bool changed_here, run(model, context, *scope));
      changed = changed || changed_here;
    }
    return changed;
  };
  return MakePass(name, description, on_all, {}, std::move(rules));
}

}  // namespace pagefuse
