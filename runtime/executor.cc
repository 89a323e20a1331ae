// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/schema/output_bytes.h"
#include "pagefuse/ops/schema/shape_checks.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

// The input of a paged graph that says where sequences begin (cache_layout.h).
constexpr char kQueryStarts[] = "query_start_loc", kRowsOfLogits[] = "logit_rows";

// Shapes of inputs that are kept apart: numbers of tokens and sequences that a loaded engine goes through.
constexpr size_t kShapes = 32;

// Of an argument whose size was found to fit.
int64_t ByteSizeOf(const TensorArg& arg) { return ByteSize(arg.dtype, arg.dims).value_or(0); }

// Says at which node memory ran out, if nobody nearer did.
absl::Status WhereMemoryRanOut(const Node& node, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  if (absl::StartsWith(status.message(), "node \"")) return status;
  return absl::ResourceExhaustedError(StrCat(node.Description(), ": ", StdView(status.message())));
}

absl::StatusOr<Tensor> BorrowedTensor(const TensorArg& arg) {
  return Tensor::View(arg.dtype, arg.dims,
                      Buffer::BorrowConst(arg.data, static_cast<size_t>(ByteSizeOf(arg))));
}

// That an output that lies in an input's memory has room there.
absl::Status CheckShared(const PlannedStep& step, int out, const KernelArgs& args, int64_t bytes) {
  const int in = step.shares_input[out];
  if (in < 0 || bytes <= ByteSizeOf(args.inputs[in])) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(step.node->Description(), ": output ", out, " is ",
                                           DimsToString(args.outputs[out].dims),
                                           ", but was declared with the shape of input ", in,
                                           ", which is ", DimsToString(args.inputs[in].dims)));
}

}  // namespace

Executor::Executor(ExecutionPlan plan, const RunLimits& limits)
    : plan_(std::move(plan)),
      limits_(limits),
      shapes_(kShapes),
      scratch_(*plan_.allocator),
      device_scratch_(plan_.device == nullptr ? *plan_.allocator : plan_.device->memory()) {
  last_outputs_.resize(plan_.values.size());
  owners_.resize(plan_.values.size());
  spill_.resize(plan_.storages.size());
  for (int i = 0; i < static_cast<int>(plan_.inputs.size()); ++i) {
    const PlannedStep* dense = DenseReader(plan_, i);
    dense_readers_.push_back(dense == nullptr ? nullptr : dense->node);
    const std::string& name = plan_.values[plan_.inputs[i]].value->name();
    if (name == kQueryStarts) query_starts_ = i;
    if (name == kRowsOfLogits) logit_rows_ = i;
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
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    if (plan_.values[i].uploaded_from >= 0) uploads_.push_back(static_cast<int>(i));
  }
  LookAtDevicePart();
  host_.plan = PlanMemory(plan_.storages);
  device_.plan = PlanMemory(plan_.storages, /*on_device=*/true);
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
  PF_RETURN_IF_ERROR(WithoutToken(CheckIndexErrors()));  // of a run that nobody settled
  own_body_runs_ = 0;
  output_bytes_ = 0;
  device_copies_ = 0;
  bound_ = &bound;
  shape_ = &shapes_.Find(plan_, feeds);
  if (!IsPrepared(feeds)) prepared_.reset();
  PF_RETURN_IF_ERROR(TakeFeeds(feeds));
  absl::StatusOr<std::vector<Tensor>> outputs = RunSteps();
  prepared_.reset();
  if (outputs.ok()) LearnSizes();
  LetGo();
  return outputs;
}

absl::Status Executor::TakeFeeds(const std::vector<Tensor>& feeds) {
  values().BeginRun();
  for (size_t i = 0; i < feeds.size(); ++i) {
    const int input = plan_.inputs[i];
    if (feeds[i].block_stride() > 0 && dense_readers_[i] != nullptr) {
      return absl::InvalidArgumentError(StrCat(
          "input \"", plan_.values[input].value->name(), "\": expected a dense tensor, got blocks ",
          feeds[i].block_stride(), " bytes apart, which not all nodes take that read it"));
    }
    if (plan_.values[input].on_device && feeds[i].defined() && feeds[i].buffer() != nullptr &&
        feeds[i].buffer()->on_host()) {
      return absl::InvalidArgumentError(StrCat("input \"", plan_.values[input].value->name(),
                                               "\": expected the memory of ", plan_.device->name(),
                                               ", got the host's"));
    }
    const Tensor* initializer = plan_.values[input].value->initializer();
    values().Set(input, feeds[i].defined() || initializer == nullptr ? feeds[i] : *initializer);
    owners_[input] = feeds[i];
  }
  TakeTokenRows();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Executor::RunSteps() {
  timings_.clear();
  moments_.clear();
  run_began_ = std::chrono::steady_clock::now();
  if (prepared_) {
    PF_RETURN_IF_ERROR(UploadLater());
  } else {
    PF_RETURN_IF_ERROR(RunRange(0, plan_.device_begin));
    PF_RETURN_IF_ERROR(UploadInputs());
  }
  if (plan_.device == nullptr) {
    PF_RETURN_IF_ERROR(RunRange(0, static_cast<int>(plan_.steps.size())));
  } else {
    PF_RETURN_IF_ERROR(TimeDevicePart());
  }
  PF_RETURN_IF_ERROR(TakeTimings());
  return CollectOutputs();
}

absl::Status Executor::RunRange(int begin, int end) {
  auto micros = [&] {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - run_began_)
        .count();
  };
  for (int step = begin; step < end; ++step) {
    const double start = profile_ ? micros() : 0;
    const Node& node = *plan_.steps[step].node;
    std::pair<int, int> moments(-1, -1);
    const bool on_device = profile_ && plan_.steps[step].on_device;
    if (on_device) {
      PF_ASSIGN_OR_RETURN(moments.first, plan_.device->MarkMoment());
    }
    PF_RETURN_IF_ERROR(WhereMemoryRanOut(node, WithinMemory(node, [&] { return RunStep(step); })));
    if (on_device) {
      PF_ASSIGN_OR_RETURN(moments.second, plan_.device->MarkMoment());
    }
    if (profile_) {
      timings_.push_back({step, start, micros() - start});
      moments_.push_back(moments);
    }
    for (int storage : dying_[step]) spill_[storage].reset();
  }
  return absl::OkStatus();
}

// What a step of the device took is known when the device has done it.
absl::Status Executor::TakeTimings() {
  if (!profile_ || plan_.device == nullptr) return absl::OkStatus();
  PF_RETURN_IF_ERROR(plan_.device->Wait());
  for (size_t i = 0; i < timings_.size(); ++i) {
    const auto [first, last] = moments_[i];
    if (first < 0) continue;
    PF_ASSIGN_OR_RETURN(timings_[i].start_us,
                        plan_.device->MicrosecondsBetween(first_moment_, first));
    PF_ASSIGN_OR_RETURN(timings_[i].duration_us, plan_.device->MicrosecondsBetween(first, last));
  }
  return absl::OkStatus();
}

void Executor::TakeTokenRows() {
  if (query_starts_ < 0) return;
  const TensorArg& starts = values()[plan_.inputs[query_starts_]];
  tokens_.reset();
  if (starts.dtype != DataType::kInt32 || starts.data == nullptr || starts.size() == 0) return;
  tokens_ = TokenRows::Of(starts.as<int32_t>(), starts.size() - 1);
}

// Nothing is kept of feeds and outputs.
void Executor::LetGo() {
  for (Tensor& owner : owners_) {
    if (owner.defined()) owner = Tensor();
  }
  for (std::shared_ptr<Buffer>& memory : spill_) memory.reset();
  bound_ = nullptr;
}

// Memory for the outputs of a step, as its kernel asks for it.
class Executor::StepPlacer final : public OutputPlacer {
 public:
  StepPlacer(Executor& executor, const PlannedStep& step, KernelArgs& args)
      : executor_(executor), step_(step), args_(args) {}

  absl::Status Place(int output, const std::vector<int64_t>& dims) override {
    TensorArg& arg = args_.outputs[output];
    PF_ASSIGN_OR_RETURN(const int64_t bytes, OutputBytes(*step_.node, output, arg.dtype, dims));
    arg.dims = dims;
    executor_.values().SetShape(step_.outputs[output], arg.dtype, dims);
    PF_RETURN_IF_ERROR(CheckShared(step_, output, args_, bytes));
    return executor_.PlaceOutput(step_, output, arg, bytes);
  }

 private:
  Executor& executor_;
  const PlannedStep& step_;
  KernelArgs& args_;
};

absl::Status Executor::RunStep(int index) {
  const PlannedStep& step = plan_.steps[index];
  if (step.copy != StepCopy::kNone) return RunCopy(index);
  if (step.body_op != nullptr) return RunBodies(index);
  StepCall& call = shape_->calls[index];
  KernelArgs& args = call.args;
  args.tokens = tokens_ ? &*tokens_ : nullptr;
  args.scratch = step.on_device ? &device_scratch_ : &scratch_;
  args.device = step.on_device ? plan_.device.get() : nullptr;
  args.index_error =
      index_error_ == nullptr ? nullptr : reinterpret_cast<DeviceIndexError*>(index_error_->data());
  args.step = index + 1;
  if (!call.TakeInputs(step, values())) PF_RETURN_IF_ERROR(InferOutputs(step, call));
  // Values are checked before an output that is a caller's cache is touched.
  PF_RETURN_IF_ERROR(CheckStepValues(step, args));
  if (captures_) ForgetContents(step, args);
  if (step.placing != nullptr) {
    StepPlacer placer(*this, step, args);
    return step.placing->Run(args, placer);
  }
  for (int out = 0; out < static_cast<int>(step.outputs.size()); ++out) {
    if (step.outputs[out] < 0) continue;
    PF_RETURN_IF_ERROR(PlaceOutput(step, out, args.outputs[out], call.output_bytes[out]));
  }
  if (step.only_views) return absl::OkStatus();
  if (step.on_device) return RunDeviceStep(step, args);
  if (!step.kernel) return RunDecomposition(step, args);
  return step.kernel->run(args);
}

absl::Status Executor::InferOutputs(const PlannedStep& step, StepCall& call) {
  ++inferences_;
  const std::vector<TensorArg>& inputs = step.on_device ? call.args.on_host : call.args.inputs;
  std::vector<Tensor> contents(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (step.inputs[i] < 0 || (step.on_device && step.host_inputs[i] < 0)) continue;
    PF_ASSIGN_OR_RETURN(contents[i], BorrowedTensor(inputs[i]));
  }
  return InferFrom(step, std::move(contents), call);
}

absl::Status Executor::InferFrom(const PlannedStep& step, std::vector<Tensor> contents,
                                 StepCall& call) {
  const std::vector<TensorArg>& inputs = call.args.inputs;
  std::vector<ShapeContext::Known> known = KnownOf(contents);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (step.inputs[i] < 0 || contents[i].defined()) continue;
    known[i].dtype = inputs[i].dtype;
    known[i].shape = Shape::FromInts(inputs[i].dims);
  }
  ShapeContext context(*step.node, step.opset, std::move(known));
  const ContentsRead read(inputs.size());
  const absl::Status inferred = step.op->Infer(context);
  // What nobody knew before the run that it would ask for.
  PF_ASSIGN_OR_RETURN(const bool more, DownloadContents(step, call, read, contents));
  if (more) return InferFrom(step, std::move(contents), call);
  PF_RETURN_IF_ERROR(inferred);
  for (size_t out = 0; out < step.outputs.size(); ++out) {
    if (step.outputs[out] < 0) continue;
    PF_RETURN_IF_ERROR(TakeInferred(step, static_cast<int>(out), context.outputs()[out], call));
  }
  if (step.placing == nullptr) call.KeepOutputs(step, values(), read);
  return absl::OkStatus();
}

absl::Status Executor::TakeInferred(const PlannedStep& step, int out,
                                    const ShapeContext::Known& inferred, StepCall& call) {
  TensorArg& output = call.args.outputs[out];
  auto dims = inferred.shape ? inferred.shape->constant() : std::nullopt;
  if (step.placing != nullptr) {
    PF_RETURN_IF_ERROR(CheckTypeIsKnown(*step.node, out, inferred.dtype));
    output = {.dtype = inferred.dtype,
              .dims = std::move(dims).value_or(std::vector<int64_t>()),
              .data = nullptr};
    return absl::OkStatus();
  }
  if (!dims) {
    return absl::InvalidArgumentError(
        StrCat(step.node->Description(), ": output ", out,
               ": the inputs do not tell its shape, or it has a size that is no 64-bit number"));
  }
  PF_ASSIGN_OR_RETURN(call.output_bytes[out], OutputBytes(*step.node, out, inferred.dtype, *dims));
  output = {.dtype = inferred.dtype, .dims = *std::move(dims), .data = nullptr};
  values().SetShape(step.outputs[out], output.dtype, output.dims);
  return CheckShared(step, out, call.args, call.output_bytes[out]);
}

absl::Status Executor::RunDecomposition(const PlannedStep& step, KernelArgs& args) {
  std::vector<Tensor> inputs(args.inputs.size());
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (!args.inputs[i].present()) continue;
    PF_ASSIGN_OR_RETURN(inputs[i], BorrowedTensor(args.inputs[i]));
  }
  EvaluateOptions options;
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

absl::Status Executor::RunBodies(int index) {
  const PlannedStep& step = plan_.steps[index];
  std::vector<Tensor> inputs(step.inputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] < 0) continue;
    PF_ASSIGN_OR_RETURN(inputs[i], BorrowedTensor(values()[step.inputs[i]]));
  }
  ShapeContext context(*step.node, step.opset, KnownOf(inputs));
  PF_RETURN_IF_ERROR(step.op->Infer(context));
  std::vector<Tensor> captures;
  for (int capture : step.captures) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, BorrowedTensor(values()[capture]));
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
    PF_RETURN_IF_ERROR(KeepProduced(step, static_cast<int>(out), std::move(results[out])));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Executor::CollectOutputs() {
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const int index = plan_.outputs[i];
    const PlannedValue& value = plan_.values[index];
    // A constant or a graph input that is an output as well, or an updated cache, has an owner or
    // is the model's.
    Tensor tensor = owners_[index];
    if (!tensor.defined() && value.value->initializer()) tensor = *value.value->initializer();
    const std::vector<int64_t>& dims = values()[index].dims;
    if (tensor.defined() && tensor.dims() != dims) {
      PF_ASSIGN_OR_RETURN(tensor, tensor.Reshaped(dims));
    }
    if (!tensor.defined()) {
      return absl::InternalError(StrCat("output \"", value.value->name(), "\" has no memory"));
    }
    outputs.push_back(std::move(tensor));
  }
  return outputs;
}

}  // namespace pagefuse
