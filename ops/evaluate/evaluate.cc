// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/evaluate/evaluate.h"

#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ops/registry/function_expansion.h"
#include "pagefuse/ops/schema/function_body.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

using Values = std::unordered_map<const Value*, Tensor>;

// What the nodes of a graph see: its own values, then those of the graphs around it.
struct Scope {
  Values values;
  const Scope* around;

  const Tensor* Find(const Value* value) const {
    const auto it = values.find(value);
    if (it != values.end()) return &it->second;
    return around == nullptr ? nullptr : around->Find(value);
  }
};

// Evaluates graphs node by node. `model` may be null: then there are no functions to call.
class Evaluator {
 public:
  Evaluator(const Model* model, const EvaluateOptions& options)
      : model_(model), options_(options) {}

  // Runs a graph whose inputs are `inputs`, undefined ones being omitted.
  absl::StatusOr<std::vector<Tensor>> Run(const Graph& graph,
                                          const std::map<std::string, int64_t>& versions,
                                          const std::vector<Tensor>& inputs,
                                          const Scope* around = nullptr) {
    if (inputs.size() > graph.inputs().size()) {
      return absl::InvalidArgumentError(absl::StrCat("graph \"", graph.name, "\": expected ",
                                                     graph.inputs().size(), " inputs, got ",
                                                     inputs.size()));
    }
    Scope scope{{}, around};
    Values& values = scope.values;
    for (const Value* value : graph.initializers()) values[value] = *value->initializer();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined()) values[graph.inputs()[i]] = inputs[i];
    }
    std::unordered_map<const Value*, size_t> reads;
    for (const auto& node : graph.nodes()) {
      PF_RETURN_IF_ERROR(RunNode(*node, versions, scope));
      for (const Value* input : node->inputs()) {
        // Frees what nothing reads any more; a node that reads a value twice has two uses of it.
        if (input == nullptr || input->is_output()) continue;
        if (++reads[input] == input->uses().size()) values.erase(input);
      }
    }
    std::vector<Tensor> outputs;
    for (const Value* output : graph.outputs()) {
      // An output may be an omitted input of a function.
      const Tensor* tensor = scope.Find(output);
      outputs.push_back(tensor == nullptr ? Tensor() : *tensor);
    }
    return outputs;
  }

  absl::StatusOr<std::vector<Tensor>> Call(const Function& function, const Node& caller,
                                           const std::vector<Tensor>& inputs) {
    if (depth_ >= kMaxCallDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat(caller.Description(), ": functions are nested too deeply"));
    }
    ++depth_;
    const std::unique_ptr<Graph> body = InstantiateBody(function, caller);
    absl::StatusOr<std::vector<Tensor>> outputs = Run(*body, function.opset_imports, inputs);
    --depth_;
    return outputs;
  }

  // Runs a node whose attributes are graphs; they see `around`.
  absl::StatusOr<std::vector<Tensor>> RunBodies(const Node& node, const BodyOp& op,
                                                const std::map<std::string, int64_t>& versions,
                                                const std::vector<Tensor>& inputs,
                                                const Scope* around) {
    using Results = absl::StatusOr<std::vector<Tensor>>;
    const auto run = [&](const Graph& body, std::vector<Tensor> body_inputs) -> Results {
      PF_RETURN_IF_ERROR(CountBodyRun(node, options_.limits, body_runs_));
      return Run(body, versions, body_inputs, around);
    };
    return op.run(node, inputs, run);
  }

 private:
  int64_t Version(const std::map<std::string, int64_t>& versions, const std::string& domain) const {
    const auto it = versions.find(domain);
    if (it != versions.end()) return it->second;
    const int64_t version = model_ == nullptr ? 0 : model_->OpsetVersion(domain);
    return version == 0 ? kNewestOpset : version;
  }

  absl::Status RunNode(const Node& node, const std::map<std::string, int64_t>& versions,
                       Scope& scope) {
    std::vector<Tensor> inputs(node.num_inputs());
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (const Tensor* tensor = scope.Find(node.input(i))) inputs[i] = *tensor;
    }
    PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, RunOp(node, versions, inputs, scope));
    for (int i = 0; i < node.num_outputs(); ++i) {
      const Value* output = node.output(i);
      if (output == nullptr || (output->uses().empty() && !output->is_output())) continue;
      if (outputs[i].defined()) scope.values[output] = std::move(outputs[i]);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckPortCounts(const Function& function, const Node& node) {
    const auto inputs = function.body->inputs().size(), outputs = function.body->outputs().size();
    if (node.inputs().size() <= inputs && node.outputs().size() <= outputs) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(node.Description(), ": function \"",
                                                   function.name, "\" has ", inputs, " inputs and ",
                                                   outputs, " outputs"));
  }

  absl::StatusOr<std::vector<Tensor>> RunOp(const Node& node,
                                            const std::map<std::string, int64_t>& versions,
                                            const std::vector<Tensor>& inputs, const Scope& scope) {
    const int64_t opset = Version(versions, node.domain());
    const OpDef* op = OpRegistry::Global().Find(node.domain(), node.op_type(), opset);
    if (const BodyOp* bodies = op == nullptr ? nullptr : op->bodies()) {
      ShapeContext context(node, opset, KnownOf(inputs));
      PF_RETURN_IF_ERROR(op->Infer(context));
      return RunBodies(node, *bodies, versions, inputs, &scope);
    }
    const Function* function =
        op != nullptr || model_ == nullptr
            ? nullptr
            : model_->FindFunction(node.domain(), node.op_type(), node.overload);
    if (function != nullptr) {
      PF_RETURN_IF_ERROR(CheckPortCounts(*function, node));
      return Call(*function, node, inputs);
    }
    return EvaluateNode(node, opset, inputs, options_);
  }

  const Model* model_;
  EvaluateOptions options_;
  int depth_ = 0;
  int64_t body_runs_ = 0;
};

absl::Status CheckFeed(const Value& input, const Tensor& tensor) {
  const auto error = [&](const std::string& expected, const std::string& got) {
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", input.name(), "\": expected ", expected, ", got ", got));
  };
  if (input.dtype() != DataType::kUndefined && input.dtype() != tensor.dtype()) {
    return error(std::string(DataTypeName(input.dtype())),
                 std::string(DataTypeName(tensor.dtype())));
  }
  if (!input.shape()) return absl::OkStatus();
  bool fits = input.shape()->rank() == tensor.rank();
  for (int i = 0; fits && i < tensor.rank(); ++i) {
    const Dim& dim = (*input.shape())[i];
    fits = !dim.is_constant() || *dim.constant() == tensor.dims()[i];
  }
  return fits ? absl::OkStatus()
              : error("shape " + input.shape()->ToString(), DimsToString(tensor.dims()));
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> EvaluateModel(const Model& model,
                                                  const std::map<std::string, Tensor>& feeds,
                                                  const EvaluateOptions& options) {
  PF_RETURN_IF_ERROR(CheckDataPresent(model));
  std::vector<Tensor> inputs;
  size_t used = 0;
  for (const Value* input : model.graph->inputs()) {
    const auto feed = feeds.find(input->name());
    if (feed == feeds.end() && input->initializer() == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("input \"", input->name(), "\" is not fed"));
    }
    inputs.push_back(feed == feeds.end() ? Tensor() : feed->second);
    if (feed == feeds.end()) continue;
    ++used;
    PF_RETURN_IF_ERROR(CheckFeed(*input, feed->second));
  }
  if (used != feeds.size()) {
    for (const auto& [name, tensor] : feeds) {
      const Value* value = model.graph->FindValue(name);
      if (value != nullptr && value->is_input()) continue;
      return absl::InvalidArgumentError(absl::StrCat("feed \"", name, "\" is not an input"));
    }
  }
  return Evaluator(&model, options).Run(*model.graph, model.opset_imports, inputs);
}

absl::StatusOr<std::vector<Tensor>> EvaluateBodies(const Node& node, const BodyOp& op,
                                                   int64_t opset, const std::vector<Tensor>& inputs,
                                                   const EvaluateOptions& options) {
  const std::map<std::string, int64_t> versions = {{node.domain(), opset}};
  return Evaluator(nullptr, options).RunBodies(node, op, versions, inputs, nullptr);
}

absl::StatusOr<std::vector<Tensor>> EvaluateFunction(const Function& function, const Node& caller,
                                                     const std::vector<Tensor>& inputs,
                                                     const EvaluateOptions& options) {
  return Evaluator(nullptr, options).Call(function, caller, inputs);
}

}  // namespace pagefuse
