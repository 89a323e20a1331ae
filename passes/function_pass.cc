// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/function_pass.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/node_pass.h"

namespace pagefuse {
namespace {

class FunctionPass : public Pass {
 public:
  FunctionPass(std::string_view name, std::string_view description, PassFunction run,
               std::vector<PassOption> options)
      : name_(name),
        description_(description),
        run_(std::move(run)),
        options_(std::move(options)) {}
  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  std::vector<PassOption> options() const override { return options_; }
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    return run_(model, context);
  }

 private:
  std::string name_, description_;
  PassFunction run_;
  std::vector<PassOption> options_;
};

class FunctionNodePass : public NodePass {
 public:
  FunctionNodePass(std::string_view name, std::string_view description, NodeFunction rewrite)
      : NodePass(std::string(name), std::string(description)), rewrite_(std::move(rewrite)) {}

 private:
  absl::StatusOr<bool> Rewrite(Graph& graph, Node* node,
                               const SymbolicContents& contents) const override {
    return rewrite_(graph, node, contents);
  }

  NodeFunction rewrite_;
};

}  // namespace

std::unique_ptr<Pass> MakePass(std::string_view name, std::string_view description,
                               PassFunction run, std::vector<PassOption> options) {
  return std::make_unique<FunctionPass>(name, description, std::move(run), std::move(options));
}

std::unique_ptr<Pass> MakeNodePass(std::string_view name, std::string_view description,
                                   NodeFunction rewrite) {
  return std::make_unique<FunctionNodePass>(name, description, std::move(rewrite));
}

std::unique_ptr<Pass> MakeGraphPass(std::string_view name, std::string_view description,
                                    GraphFunction run) {
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
  return MakePass(name, description, on_all);
}

}  // namespace pagefuse
