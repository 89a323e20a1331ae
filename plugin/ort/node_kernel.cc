// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/node_kernel.h"

#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/schema/output_bytes.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::ort {
namespace {

int64_t BytesOf(const TensorArg& arg) { return ByteSize(arg.dtype, arg.dims).value_or(0); }

absl::StatusOr<Tensor> Borrowed(const TensorArg& arg) {
  return Tensor::View(arg.dtype, arg.dims,
                      Buffer::BorrowConst(arg.data, static_cast<size_t>(BytesOf(arg))));
}

// Files for other hosts have bytes where an op gives float8.
bool IsWrittenAs(DataType inferred, DataType in_file) {
  return inferred == in_file || (IsFloat8(inferred) && in_file == DataType::kUint8);
}

std::vector<std::optional<Shape>> DeclaredShapes(const NodeSpec& spec) {
  std::vector<std::optional<Shape>> shapes;
  for (const NodeSpec::Port& input : spec.inputs) shapes.push_back(input.shape);
  return shapes;
}

// What one call has for itself.
struct Lease {
  Scratch scratch;
  std::unique_ptr<KernelState> state;
};

}  // namespace

// The node with the shapes that were seen, and the kernel for it.
struct NodeKernel::Choice {
  OneNode graph;
  int64_t opset = 0;
  KernelChoice kernel;
  // Copies of the host's constants, which other choices share.
  std::shared_ptr<PackedCopies> packed;

  KernelQuery query() const { return {.node = &graph.node(), .opset = opset}; }

  absl::StatusOr<std::unique_ptr<Lease>> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!free.empty()) {
        std::unique_ptr<Lease> lease = std::move(free.back());
        free.pop_back();
        return lease;
      }
    }
    auto lease = std::make_unique<Lease>();
    PF_ASSIGN_OR_RETURN(lease->state, PrepareState(query(), *kernel.kernel));
    PF_RETURN_IF_ERROR(packed->GiveTo(lease->state.get(), graph.node()));
    return lease;
  }

  void GiveBack(std::unique_ptr<Lease> lease) {
    const std::lock_guard<std::mutex> lock(mutex);
    free.push_back(std::move(lease));
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Lease>> free;
};

NodeKernel::NodeKernel(const OpDef& op, NodeSpec spec, std::string force_kernel)
    : op_(op),
      spec_(std::move(spec)),
      force_kernel_(std::move(force_kernel)),
      seen_(DeclaredShapes(spec_)) {}
NodeKernel::~NodeKernel() = default;

absl::StatusOr<std::shared_ptr<NodeKernel::Choice>> NodeKernel::Choose() const {
  auto choice = std::make_shared<Choice>();
  const std::vector<Shape> seen = seen_.shapes();
  const std::vector<std::optional<Shape>> shapes(seen.begin(), seen.end());
  PF_RETURN_IF_ERROR(choice->graph.Build(op_, spec_, shapes));
  choice->opset = op_.since();
  PF_ASSIGN_OR_RETURN(choice->kernel, ChooseKernel(choice->query(), force_kernel_));
  return choice;
}

absl::StatusOr<std::shared_ptr<NodeKernel::Choice>> NodeKernel::ChoiceFor(
    const std::vector<TensorArg>& inputs, CallHost& host) {
  std::vector<const std::vector<int64_t>*> dims;
  for (const TensorArg& input : inputs) dims.push_back(&input.dims);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!seen_.Add(dims) && choice_ != nullptr) return choice_;
  PF_ASSIGN_OR_RETURN(std::shared_ptr<Choice> choice, Choose());
  choice->packed = choice_ == nullptr ? std::make_shared<PackedCopies>() : choice_->packed;
  const Kernel* before = choice_ == nullptr ? nullptr : choice_->kernel.kernel;
  if (choice_ == nullptr || choice->kernel.kernel != before) {
    host.KernelChosen(choice->kernel.kernel == nullptr ? "" : choice->kernel.kernel->name);
  }
  choice_ = choice;
  return choice;
}

absl::StatusOr<std::vector<TensorArg>> NodeKernel::InferOutputs(
    const Node& node, const std::vector<TensorArg>& inputs) const {
  std::vector<Tensor> contents(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].present()) continue;
    PF_ASSIGN_OR_RETURN(contents[i], Borrowed(inputs[i]));
  }
  ShapeContext context(node, op_.since(), KnownOf(contents));
  PF_RETURN_IF_ERROR(op_.Infer(context));
  std::vector<TensorArg> outputs(node.num_outputs());
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output(i) == nullptr) continue;
    const ShapeContext::Known& inferred = context.outputs()[i];
    auto dims = inferred.shape ? inferred.shape->constant() : std::nullopt;
    if (!dims) return context.OutputError(i, "the inputs do not tell its shape");
    if (!IsWrittenAs(inferred.dtype, spec_.outputs[i].dtype)) {
      return context.OutputError(i, StrCat("expected ", DataTypeName(inferred.dtype), ", got ",
                                           DataTypeName(spec_.outputs[i].dtype)));
    }
    PF_RETURN_IF_ERROR(OutputBytes(node, i, inferred.dtype, *dims).status());
    outputs[i] = {.dtype = inferred.dtype, .dims = *std::move(dims), .data = nullptr};
  }
  return outputs;
}

absl::Status NodeKernel::PlaceOutputs(KernelArgs& args, CallHost& host) const {
  for (size_t i = 0; i < args.outputs.size(); ++i) {
    TensorArg& output = args.outputs[i];
    if (!output.present()) continue;
    PF_ASSIGN_OR_RETURN(output.data, host.Output(static_cast<int>(i), output.dims));
  }
  for (const auto& [out, in] : op_.aliases()) {
    if (!args.output(out).present() || !args.input(in).present()) continue;
    TensorArg& input = args.inputs[in];
    const TensorArg& output = args.outputs[out];
    const int64_t bytes = BytesOf(output);
    if (output.data == input.data || bytes == 0) continue;
    std::memcpy(output.data, input.data, bytes);
    input.data = output.data;
    host.Copied(in, out, bytes);
  }
  return absl::OkStatus();
}

absl::Status NodeKernel::RunDecomposition(KernelArgs& args) const {
  std::vector<Tensor> inputs(args.inputs.size());
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (!args.inputs[i].present()) continue;
    PF_ASSIGN_OR_RETURN(inputs[i], Borrowed(args.inputs[i]));
  }
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                      EvaluateNode(*args.node, args.opset, inputs));
  for (size_t i = 0; i < args.outputs.size(); ++i) {
    const TensorArg& output = args.outputs[i];
    if (!output.present()) continue;
    PF_RETURN_IF_ERROR(
        CheckResult(*args.node, static_cast<int>(i), output.dtype, output.dims, results[i]));
    if (results[i].byte_size() == 0) continue;
    std::memcpy(output.data, results[i].data(), results[i].byte_size());
  }
  return absl::OkStatus();
}

absl::Status NodeKernel::Run(std::vector<TensorArg> inputs, CallHost& host) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<Choice> choice, ChoiceFor(inputs, host));
  KernelArgs args;
  args.node = &choice->graph.node();
  args.opset = choice->opset;
  args.inputs = std::move(inputs);
  PF_ASSIGN_OR_RETURN(args.outputs, InferOutputs(*args.node, args.inputs));
  PF_RETURN_IF_ERROR(op_.CheckValues(args));
  PF_RETURN_IF_ERROR(PlaceOutputs(args, host));
  if (choice->kernel.kernel == nullptr) return RunDecomposition(args);
  PF_ASSIGN_OR_RETURN(std::unique_ptr<Lease> lease, choice->Take());
  args.state = lease->state.get();
  args.scratch = &lease->scratch;
  const absl::Status status = choice->kernel.kernel->run(args);
  choice->GiveBack(std::move(lease));
  return status;
}

}  // namespace pagefuse::ort
