#include "pagefuse/runtime/executor.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/evaluate.h"
#include "pagefuse/ops/output_bytes.h"

namespace pagefuse {
namespace {

TensorArg ArgOf(const Tensor& tensor) {
  // Kernels do not write inputs; aliased outputs are checked to be writable before.
  return {.dtype = tensor.dtype(), .dims = tensor.dims(), .data = const_cast<void*>(tensor.data())};
}

// Of an argument whose size was found to fit.
int64_t ByteSizeOf(const TensorArg& arg) { return ByteSize(arg.dtype, arg.dims).value_or(0); }

// Says at which node memory ran out, if nobody nearer did.
absl::Status WhereMemoryRanOut(const Node& node, const absl::Status& status) {
  const bool placed = absl::StartsWith(status.message(), "node \"");
  if (status.code() != absl::StatusCode::kResourceExhausted || placed) return status;
  return absl::ResourceExhaustedError(StrCat(node.Description(), ": ", StdView(status.message())));
}

absl::StatusOr<Tensor> BorrowedTensor(const TensorArg& arg) {
  return Tensor::View(arg.dtype, arg.dims,
                      Buffer::BorrowConst(arg.data, static_cast<size_t>(ByteSizeOf(arg))));
}

}  // namespace

// Memory of one run, by value.
struct Executor::RunState {
  std::vector<TensorArg> args;
  std::vector<Tensor> owners;  // feeds and outputs: what keeps external memory alive
  std::vector<std::shared_ptr<Buffer>> spill;  // storages that the arena has no room for yet
  const std::vector<Tensor>* bound = nullptr;
};

Executor::Executor(ExecutionPlan plan, const RunLimits& limits)
    : plan_(std::move(plan)), limits_(limits) {
  constants_.resize(plan_.values.size());
  last_outputs_.resize(plan_.values.size());
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    if (const Tensor* tensor = plan_.values[i].value->initializer()) constants_[i] = ArgOf(*tensor);
  }
  output_positions_.assign(plan_.values.size(), -1);
  for (int i = static_cast<int>(plan_.outputs.size()) - 1; i >= 0; --i) {
    output_positions_[plan_.outputs[i]] = i;
  }
  bodies_.resize(plan_.steps.size());
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    for (PlannedBody& body : plan_.steps[i].bodies) {
      bodies_[i].push_back(std::make_unique<Executor>(std::move(*body.plan), limits));
    }
  }
  memory_ = PlanMemory(plan_.storages);
  dying_.resize(plan_.steps.size() + 1);
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    dying_[plan_.storages[i].last_step].push_back(static_cast<int>(i));
  }
}

int64_t Executor::packed_bytes() const {
  int64_t bytes = 0;
  for (const PlannedStep& step : plan_.steps) {
    if (step.state) bytes += step.state->packed_bytes();
  }
  for (const auto& bodies : bodies_) {
    for (const auto& body : bodies) bytes += body->packed_bytes();
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> Executor::Run(const std::vector<Tensor>& feeds,
                                                  const std::vector<Tensor>& bound) {
  own_body_runs_ = 0;
  output_bytes_ = 0;
  RunState run;
  run.args = constants_;
  run.owners.resize(plan_.values.size());
  run.spill.resize(plan_.storages.size());
  run.bound = &bound;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!feeds[i].defined()) continue;
    run.args[plan_.inputs[i]] = ArgOf(feeds[i]);
    run.owners[plan_.inputs[i]] = feeds[i];
  }
  timings_.clear();
  const auto start = std::chrono::steady_clock::now();
  auto micros = [&] {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  };
  for (int step = 0; step < static_cast<int>(plan_.steps.size()); ++step) {
    const double begin = profile_ ? micros() : 0;
    PF_RETURN_IF_ERROR(WhereMemoryRanOut(*plan_.steps[step].node, RunStep(step, run)));
    if (profile_) timings_.push_back({step, begin, micros() - begin});
    for (int storage : dying_[step]) run.spill[storage].reset();
  }
  auto outputs = CollectOutputs(run);
  LearnSizes();
  return outputs;
}

// Memory for the outputs of a step, as its kernel asks for it.
class Executor::StepPlacer final : public OutputPlacer {
 public:
  StepPlacer(Executor& executor, const PlannedStep& step, RunState& run, KernelArgs& args)
      : executor_(executor), step_(step), run_(run), args_(args) {}

  absl::Status Place(int output, const std::vector<int64_t>& dims) override {
    TensorArg& arg = args_.outputs[output];
    PF_RETURN_IF_ERROR(OutputBytes(*step_.node, output, arg.dtype, dims).status());
    arg.dims = dims;
    PF_RETURN_IF_ERROR(executor_.PlaceOutput(step_, output, run_, arg));
    run_.args[step_.outputs[output]] = arg;
    return absl::OkStatus();
  }

 private:
  Executor& executor_;
  const PlannedStep& step_;
  RunState& run_;
  KernelArgs& args_;
};

absl::Status Executor::RunStep(int index, RunState& run) {
  PlannedStep& step = plan_.steps[index];
  if (step.body_op != nullptr) return RunBodies(index, run);
  KernelArgs args;
  args.node = step.node;
  args.opset = step.opset;
  args.state = step.state.get();
  args.scratch = &scratch_;
  args.inputs.reserve(step.inputs.size());
  for (int input : step.inputs) args.inputs.push_back(input < 0 ? TensorArg() : run.args[input]);
  PF_RETURN_IF_ERROR(InferOutputs(index, run, args.outputs));
  // Values are checked before an output that is a caller's cache is touched.
  PF_RETURN_IF_ERROR(step.op->CheckValues(args));
  if (step.placing != nullptr) {
    StepPlacer placer(*this, step, run, args);
    return step.placing->Run(args, placer);
  }
  bool all_views = !step.outputs.empty();
  for (int out = 0; out < static_cast<int>(step.outputs.size()); ++out) {
    if (step.outputs[out] < 0) continue;
    PF_RETURN_IF_ERROR(PlaceOutput(step, out, run, args.outputs[out]));
    run.args[step.outputs[out]] = args.outputs[out];
    all_views = all_views && !step.op->views().empty() && step.shares_input[out] >= 0;
  }
  if (all_views) return absl::OkStatus();
  if (!step.kernel) return RunDecomposition(step, args);
  return step.kernel->run(args);
}

absl::Status Executor::InferOutputs(int index, RunState& run, std::vector<TensorArg>& outputs) {
  PlannedStep& step = plan_.steps[index];
  std::vector<Tensor> contents(step.inputs.size());
  std::vector<ShapeContext::Known> known(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] < 0) continue;
    const TensorArg& arg = run.args[step.inputs[i]];
    PF_ASSIGN_OR_RETURN(contents[i], BorrowedTensor(arg));
    known[i] = {.dtype = arg.dtype,
                .shape = Shape::FromInts(arg.dims),
                .value = std::nullopt,
                .tensor = &contents[i]};
  }
  ShapeContext context(*step.node, step.opset, std::move(known));
  PF_RETURN_IF_ERROR(step.op->Infer(context));
  outputs.resize(step.outputs.size());
  for (size_t out = 0; out < step.outputs.size(); ++out) {
    if (step.outputs[out] < 0) continue;
    const ShapeContext::Known& inferred = context.outputs()[out];
    auto dims = inferred.shape ? inferred.shape->constant() : std::nullopt;
    if (step.placing != nullptr) {
      PF_RETURN_IF_ERROR(CheckTypeIsKnown(*step.node, static_cast<int>(out), inferred.dtype));
      outputs[out] = {.dtype = inferred.dtype,
                      .dims = std::move(dims).value_or(std::vector<int64_t>()),
                      .data = nullptr};
      continue;
    }
    if (!dims) {
      return absl::InvalidArgumentError(
          StrCat(step.node->Description(), ": output ", out,
                 ": the inputs do not tell its shape, or it has a size that is no 64-bit number"));
    }
    PF_RETURN_IF_ERROR(
        OutputBytes(*step.node, static_cast<int>(out), inferred.dtype, *dims).status());
    outputs[out] = {.dtype = inferred.dtype, .dims = *std::move(dims), .data = nullptr};
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Executor::OutputMemory(int value, const TensorArg& output) {
  constexpr int64_t kKeptBytes = int64_t{1} << 20;
  std::shared_ptr<Buffer>& kept = last_outputs_[value];
  const int64_t bytes = ByteSizeOf(output);
  if (kept != nullptr && kept.use_count() == 1) {
    // A copy that is made and dropped synchronises with whoever let go of the memory last.
    std::shared_ptr<Buffer>(kept).reset();
    const auto size = static_cast<int64_t>(kept->size());
    if (size >= bytes && size / 2 <= bytes) return Tensor::View(output.dtype, output.dims, kept);
  }
  kept.reset();  // the old memory goes before the new comes
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(output.dtype, output.dims));
  if (bytes >= kKeptBytes) kept = tensor.buffer();
  return tensor;
}

absl::Status Executor::PlaceOutput(const PlannedStep& step, int out, RunState& run,
                                   TensorArg& output) {
  const int index = step.outputs[out];
  const PlannedValue& value = plan_.values[index];
  const int64_t bytes = ByteSizeOf(output);
  if (const int in = step.shares_input[out]; in >= 0) {
    output.data = run.args[step.inputs[in]].data;
    if (bytes > ByteSizeOf(run.args[step.inputs[in]])) {
      return absl::InvalidArgumentError(
          StrCat(step.node->Description(), ": output ", out, " is ", DimsToString(output.dims),
                 ", but was declared with the shape of input ", in, ", which is ",
                 DimsToString(run.args[step.inputs[in]].dims)));
    }
    run.owners[index] = run.owners[step.inputs[in]];
    if (step.must_alias[out] && value.placement == Placement::kExternal && bytes > 0 &&
        run.owners[index].mutable_data() == nullptr) {
      return absl::InvalidArgumentError(
          StrCat(step.node->Description(), ": input ", in,
                 " is updated in place, but its memory is read-only"));
    }
    return absl::OkStatus();
  }
  PF_RETURN_IF_ERROR(CheckTensorBytes(*step.node, out, bytes, limits_));
  if (value.placement == Placement::kOutput) {
    // An output that is listed twice is bound by its name, so that the first place tells all.
    Tensor tensor = (*run.bound)[output_positions_[index]];
    if (tensor.defined() && (tensor.dtype() != output.dtype || tensor.dims() != output.dims)) {
      return absl::InvalidArgumentError(
          StrCat("output \"", value.value->name(), "\": bound memory is ",
                 DataTypeName(tensor.dtype()), DimsToString(tensor.dims()), ", expected ",
                 DataTypeName(output.dtype), DimsToString(output.dims)));
    }
    if (!tensor.defined()) {
      PF_ASSIGN_OR_RETURN(tensor, OutputMemory(index, output));
      output_bytes_ += bytes;
    }
    output.data = tensor.mutable_data();
    run.owners[index] = std::move(tensor);
  } else {
    Storage& storage = plan_.storages[value.storage];
    if (bytes <= memory_.sizes[value.storage] && arena_) {
      output.data = arena_->data() + memory_.offsets[value.storage];
    } else {
      PF_ASSIGN_OR_RETURN(run.spill[value.storage], Buffer::Allocate(bytes));
      output.data = run.spill[value.storage]->data();
    }
    if (bytes > storage.bytes) {
      storage.bytes = bytes;
      grew_ = true;
    }
  }
  if (step.must_alias[out] && bytes > 0) {
    for (const auto& [aliased, in] : step.op->aliases()) {
      if (aliased == out) std::memcpy(output.data, run.args[step.inputs[in]].data, bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::RunDecomposition(const PlannedStep& step, KernelArgs& args) {
  std::vector<Tensor> inputs(args.inputs.size());
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (!args.inputs[i].present()) continue;
    PF_ASSIGN_OR_RETURN(inputs[i], BorrowedTensor(args.inputs[i]));
  }
  EvaluateOptions options;
  options.decompose = true;
  options.limits = limits_;
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                      EvaluateNode(*step.node, step.opset, inputs, options));
  for (size_t i = 0; i < args.outputs.size(); ++i) {
    if (step.outputs[i] < 0) continue;
    PF_RETURN_IF_ERROR(CheckResult(*step.node, static_cast<int>(i), args.outputs[i].dtype,
                                   args.outputs[i].dims, results[i]));
    if (results[i].byte_size() == 0) continue;
    std::memcpy(args.outputs[i].data, results[i].data(), results[i].byte_size());
  }
  return absl::OkStatus();
}

absl::Status Executor::RunBodies(int index, RunState& run) {
  const PlannedStep& step = plan_.steps[index];
  std::vector<Tensor> inputs(step.inputs.size());
  std::vector<ShapeContext::Known> known(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] < 0) continue;
    PF_ASSIGN_OR_RETURN(inputs[i], BorrowedTensor(run.args[step.inputs[i]]));
    known[i] = {inputs[i].dtype(), Shape::FromInts(inputs[i].dims()), std::nullopt, &inputs[i]};
  }
  ShapeContext context(*step.node, step.opset, std::move(known));
  PF_RETURN_IF_ERROR(step.op->Infer(context));
  std::vector<Tensor> captures;
  for (int capture : step.captures) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, BorrowedTensor(run.args[capture]));
    captures.push_back(std::move(tensor));
  }
  const auto run_body = [&](const Graph& graph,
                            std::vector<Tensor> feeds) -> absl::StatusOr<std::vector<Tensor>> {
    size_t body = 0;
    while (step.bodies[body].graph != &graph) ++body;
    if (feeds.size() != graph.inputs().size()) {
      return absl::InvalidArgumentError(StrCat(step.node->Description(), ": its graph has ",
                                               graph.inputs().size(), " inputs, expected ",
                                               feeds.size()));
    }
    feeds.insert(feeds.end(), captures.begin(), captures.end());
    PF_RETURN_IF_ERROR(CountBodyRun(*step.node, limits_, *body_runs_));
    bodies_[index][body]->body_runs_ = body_runs_;
    return bodies_[index][body]->Run(feeds, std::vector<Tensor>(graph.outputs().size()));
  };
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, step.body_op->run(*step.node, inputs, run_body));
  for (size_t out = 0; out < step.outputs.size(); ++out) {
    if (step.outputs[out] < 0) continue;
    PF_RETURN_IF_ERROR(KeepProduced(step, static_cast<int>(out), std::move(results[out]), run));
  }
  return absl::OkStatus();
}

absl::Status Executor::KeepProduced(const PlannedStep& step, int out, Tensor tensor,
                                    RunState& run) {
  const int index = step.outputs[out];
  const int position = output_positions_[index];
  if (position >= 0 && (*run.bound)[position].defined()) {
    Tensor bound = (*run.bound)[position];
    if (bound.dtype() != tensor.dtype() || bound.dims() != tensor.dims()) {
      return absl::InvalidArgumentError(
          StrCat("output \"", plan_.values[index].value->name(), "\": bound memory is ",
                 DataTypeName(bound.dtype()), DimsToString(bound.dims()), ", expected ",
                 DataTypeName(tensor.dtype()), DimsToString(tensor.dims())));
    }
    if (bound.byte_size() > 0) {
      std::memcpy(bound.mutable_data(), tensor.data(), tensor.byte_size());
    }
    tensor = std::move(bound);
  }
  // A body that hands on what it was given gives memory of this run's arena.
  if (tensor.byte_size() > 0 && tensor.mutable_data() == nullptr) {
    PF_ASSIGN_OR_RETURN(tensor, tensor.Clone());
  }
  run.args[index] = ArgOf(tensor);
  run.owners[index] = std::move(tensor);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Executor::CollectOutputs(RunState& run) {
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const int index = plan_.outputs[i];
    const PlannedValue& value = plan_.values[index];
    // A constant or a graph input that is an output as well, or an updated cache, has an owner or
    // is the model's.
    Tensor tensor = run.owners[index];
    if (!tensor.defined() && value.value->initializer()) tensor = *value.value->initializer();
    const TensorArg& arg = run.args[index];
    if (tensor.defined() && tensor.dims() != arg.dims) {
      PF_ASSIGN_OR_RETURN(tensor, tensor.Reshaped(arg.dims));
    }
    if (!tensor.defined()) {
      return absl::InternalError(StrCat("output \"", value.value->name(), "\" has no memory"));
    }
    outputs.push_back(std::move(tensor));
  }
  return outputs;
}

void Executor::LearnSizes() {
  if (!grew_) return;
  grew_ = false;
  memory_ = PlanMemory(plan_.storages);
  arena_.reset();  // the old one goes before the new one comes
  auto arena = Buffer::Allocate(static_cast<size_t>(memory_.arena_bytes));
  if (arena.ok()) arena_ = *std::move(arena);
}

}  // namespace pagefuse
