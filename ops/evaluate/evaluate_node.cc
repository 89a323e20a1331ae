// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/refused_ops.h"
#include "pagefuse/ops/schema/default_attribute.h"
#include "pagefuse/ops/schema/foreign_op.h"
#include "pagefuse/ops/schema/output_bytes.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/ops/schema/placing_kernel.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

// A graph of one node whose values have the types and shapes of actual tensors, for kernels and
// decompositions that read them.
class Call {
 public:
  Call(const Node& node, const std::vector<Tensor>& inputs) {
    std::vector<Value*> values;
    for (int i = 0; i < node.num_inputs(); ++i) values.push_back(AddInput(node, i, inputs));
    std::vector<Value*> outputs;
    for (const Value* output : node.outputs()) {
      outputs.push_back(output == nullptr ? nullptr
                                          : graph_.AddValue(graph_.UniqueName(output->name())));
    }
    node_ = graph_.AddNode(node.domain(), node.op_type(), std::move(values), std::move(outputs));
    node_->name = node.name;
    node_->overload = node.overload;
    for (const auto& [name, attribute] : node.attributes()) node_->SetAttribute(name, attribute);
  }

  Node& node() { return *node_; }

  void SetOutputTypes(const ShapeContext& context) {
    for (int i = 0; i < node_->num_outputs(); ++i) {
      Value* output = node_->output(i);
      if (output == nullptr) continue;
      output->set_dtype(context.outputs()[i].dtype);
      output->set_shape(context.outputs()[i].shape);
    }
  }

 private:
  Value* AddInput(const Node& node, int i, const std::vector<Tensor>& inputs) {
    const Value* value = node.input(i);
    if (value == nullptr || !inputs[i].defined()) return nullptr;
    // The same value may be read twice.
    for (int j = 0; j < i; ++j) {
      if (node.input(j) == value) return added_[j];
    }
    const std::string name = graph_.UniqueName(value->name());
    Value* added = value->IsConstant() ? graph_.AddInitializer(name, inputs[i])
                                       : graph_.AddValue(name, inputs[i].dtype(),
                                                         Shape::FromInts(inputs[i].dims()));
    added_[i] = added;
    return added;
  }

  Graph graph_;
  std::map<int, Value*> added_;
  Node* node_ = nullptr;
};

absl::StatusOr<std::vector<Tensor>> AllocateOutputs(const Node& node, const ShapeContext& context,
                                                    const EvaluateOptions& options) {
  std::vector<Tensor> outputs(node.num_outputs());
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output(i) == nullptr) continue;
    const ShapeContext::Known& known = context.outputs()[i];
    std::optional<std::vector<int64_t>> dims;
    if (known.shape) dims = known.shape->constant();
    if (!dims || known.dtype == DataType::kUndefined) {
      return absl::UnimplementedError(absl::StrCat(node.Description(), ": type or shape of output ",
                                                   i, " is not known from the inputs"));
    }
    PF_ASSIGN_OR_RETURN(const int64_t bytes, OutputBytes(node, i, known.dtype, *dims));
    PF_RETURN_IF_ERROR(CheckTensorBytes(node, i, bytes, options.limits));
    PF_ASSIGN_OR_RETURN(outputs[i], Tensor::Allocate(known.dtype, *dims));
  }
  return outputs;
}

TensorArg ArgOf(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.dtype(), tensor.dims(), const_cast<void*>(tensor.data())};
}

absl::Status RefuseStrings(const Node& node, const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype() != DataType::kString) continue;
    return absl::UnimplementedError(absl::StrCat(node.Description(), ": strings are not computed"));
  }
  return absl::OkStatus();
}

// Zeros in the place of what nobody knows would be a wrong result.
absl::Status RefuseAbsent(const Node& node, const std::vector<Tensor>& inputs) {
  const auto refuse = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat(node.Description(), ": the data of a tensor that it reads was left out"));
  };
  for (const Tensor& input : inputs) {
    if (IsAbsent(input)) return refuse();
  }
  for (const auto& [name, attribute] : node.attributes()) {
    const auto* tensor = std::get_if<Tensor>(&attribute.value);
    if (tensor != nullptr && IsAbsent(*tensor)) return refuse();
  }
  return absl::OkStatus();
}

// Tensors for the outputs of a call, as its kernel asks for them.
class TensorPlacer final : public OutputPlacer {
 public:
  TensorPlacer(KernelArgs& args, const RunLimits& limits)
      : args_(args), limits_(limits), tensors_(args.outputs.size()) {}

  absl::Status Place(int output, const std::vector<int64_t>& dims) override {
    TensorArg& arg = args_.outputs[output];
    PF_ASSIGN_OR_RETURN(const int64_t bytes, OutputBytes(*args_.node, output, arg.dtype, dims));
    PF_RETURN_IF_ERROR(CheckTensorBytes(*args_.node, output, bytes, limits_));
    PF_ASSIGN_OR_RETURN(tensors_[output], Tensor::Allocate(arg.dtype, dims));
    arg = ArgOf(tensors_[output]);
    return absl::OkStatus();
  }

  std::vector<Tensor> Take() { return std::move(tensors_); }

 private:
  KernelArgs& args_;
  const RunLimits& limits_;
  std::vector<Tensor> tensors_;
};

absl::StatusOr<std::vector<Tensor>> RunPlacing(PlacingKernel& kernel, KernelArgs args,
                                               const RunLimits& limits) {
  args.outputs.assign(args.node->num_outputs(), {});
  for (int i = 0; i < args.node->num_outputs(); ++i) {
    const Value* value = args.node->output(i);
    if (value == nullptr) continue;
    PF_RETURN_IF_ERROR(CheckTypeIsKnown(*args.node, i, value->dtype()));
    args.outputs[i].dtype = value->dtype();
  }
  TensorPlacer placer(args, limits);
  PF_RETURN_IF_ERROR(WithinMemory(*args.node, [&] { return kernel.Run(args, placer); }));
  return placer.Take();
}

// `outputs`: allocated where inference told all shapes, else why not.
absl::StatusOr<std::vector<Tensor>> RunKernel(const KernelQuery& query, const KernelChoice& choice,
                                              const std::vector<Tensor>& inputs,
                                              const absl::StatusOr<std::vector<Tensor>>& outputs,
                                              const RunLimits& limits) {
  KernelArgs args;
  args.node = query.node;
  args.opset = query.opset;
  for (const Tensor& input : inputs) args.inputs.push_back(ArgOf(input));
  std::vector<Tensor> results;
  if (outputs.ok()) results = *outputs;
  for (const auto& [output, input] : choice.op->aliases()) {
    if (output >= static_cast<int>(results.size()) || !results[output].defined()) continue;
    if (input >= static_cast<int>(inputs.size()) || !inputs[input].defined()) continue;
    PF_ASSIGN_OR_RETURN(results[output], inputs[input].Clone());
    args.inputs[input].data = results[output].mutable_data();
  }
  for (const Tensor& output : results) args.outputs.push_back(ArgOf(output));
  PF_RETURN_IF_ERROR(choice.op->CheckValues(args));
  PF_ASSIGN_OR_RETURN(const auto state, PrepareKernel(query, *choice.kernel));
  Scratch scratch;
  args.state = state.get();
  args.scratch = &scratch;
  if (auto* placing = dynamic_cast<PlacingKernel*>(state.get())) {
    return RunPlacing(*placing, std::move(args), limits);
  }
  PF_RETURN_IF_ERROR(outputs.status());
  PF_RETURN_IF_ERROR(WithinMemory(*query.node, [&] { return choice.kernel->run(args); }));
  return results;
}

// What a kernel would be checked for where a body runs instead. Outputs have no memory yet.
absl::Status CheckValues(const Node& node, const OpDef& op, const std::vector<Tensor>& inputs) {
  KernelArgs args;
  args.node = &node;
  for (const Tensor& input : inputs) args.inputs.push_back(ArgOf(input));
  for (const Value* output : node.outputs()) {
    const auto dims = output && output->shape() ? output->shape()->constant() : std::nullopt;
    args.outputs.push_back(dims ? TensorArg{output->dtype(), *dims, nullptr} : TensorArg{});
  }
  return op.CheckValues(args);
}

// The body's ports are matched by name: it lists those that it uses.
absl::StatusOr<std::vector<Tensor>> RunDecomposition(Call& call, const OpDef& op,
                                                     const std::vector<Tensor>& inputs,
                                                     const EvaluateOptions& options) {
  Node& node = call.node();
  PF_ASSIGN_OR_RETURN(const std::string text, op.Decompose(node));
  PF_ASSIGN_OR_RETURN(Function function, ParsePlainFunction(text));
  FillDefaults(node, op);  // so that the body can refer to them
  std::vector<Tensor> actual;
  for (const Value* formal : function.body->inputs()) {
    const int port = PlaceOf(op.inputs(), formal->name());
    if (port < 0) {
      return absl::InternalError(absl::StrCat(node.Description(), ": decomposition input \"",
                                              formal->name(), "\" is no port"));
    }
    const bool present = port < static_cast<int>(inputs.size()) && node.input(port) != nullptr;
    actual.push_back(present ? inputs[port] : Tensor());
  }
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                      EvaluateFunction(function, node, actual, options));
  std::vector<Tensor> outputs(node.num_outputs());
  for (size_t i = 0; i < results.size(); ++i) {
    const int port = PlaceOf(op.outputs(), function.body->outputs()[i]->name());
    if (port >= 0 && port < node.num_outputs()) outputs[port] = std::move(results[i]);
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Value* output = node.output(i);
    if (output == nullptr) continue;
    const auto dims = output->shape() ? output->shape()->constant() : std::nullopt;
    if (!dims || output->dtype() == DataType::kUndefined) continue;
    PF_RETURN_IF_ERROR(CheckResult(node, i, output->dtype(), *dims, outputs[i]));
  }
  return outputs;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node, int64_t opset,
                                                 const std::vector<Tensor>& inputs,
                                                 const EvaluateOptions& options) {
  if (static_cast<int>(inputs.size()) != node.num_inputs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        node.Description(), ": expected ", node.num_inputs(), " inputs, got ", inputs.size()));
  }
  PF_RETURN_IF_ERROR(RefuseStrings(node, inputs));
  PF_RETURN_IF_ERROR(RefuseAbsent(node, inputs));
  const OpDef* op = OpRegistry::Global().Find(node.domain(), node.op_type(), opset);
  if (op == nullptr) return UnknownOp(node, opset, OpRegistry::Global());
  Call call(node, inputs);
  ShapeContext context(call.node(), opset, KnownOf(inputs));
  PF_RETURN_IF_ERROR(op->Infer(context));
  if (const BodyOp* bodies = op->bodies()) {
    return EvaluateBodies(call.node(), *bodies, opset, inputs, options);
  }
  call.SetOutputTypes(context);
  const KernelQuery query{&call.node(), opset};
  PF_ASSIGN_OR_RETURN(const KernelChoice choice, ChooseKernel(query, options.force_kernel));
  if (choice.kernel == nullptr) PF_RETURN_IF_ERROR(CheckValues(call.node(), *op, inputs));
  if (choice.kernel == nullptr || (options.decompose && op->has_decomposition())) {
    return RunDecomposition(call, *op, inputs, options);
  }
  const absl::StatusOr<std::vector<Tensor>> outputs =
      AllocateOutputs(call.node(), context, options);
  // A kernel may tell the shapes, of an op of which nothing is known.
  if (!outputs.ok() && !IsForeign(*op)) return outputs.status();
  if (outputs.ok()) PF_RETURN_IF_ERROR(RefuseStrings(node, *outputs));
  return RunKernel(query, choice, inputs, outputs, options.limits);
}

}  // namespace pagefuse
