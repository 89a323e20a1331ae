// SPDX-License-Identifier: Apache-2.0
// Runs whose work on the device is captured, and asked for at once where inputs have the same shapes again.
#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/runtime/device_placement.h"
#include "pagefuse/runtime/executor.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

// Shapes whose captured work did not fit this often, as prompts of the same length in other batches, are
// captured no more.
constexpr int kMostMisses = 3;

bool HasSameForm(const std::vector<TensorArg>& a, const std::vector<TensorArg>& b) {
  return std::ranges::equal(a, b, [](const TensorArg& x, const TensorArg& y) {
    return x.dtype == y.dtype && x.dims == y.dims && x.block_stride == y.block_stride;
  });
}

// Layers look at the same tables, slots and lengths.
bool ChecksTheSame(const PlannedStep& a, const StepCall& of_a, const PlannedStep& b,
                   const StepCall& of_b) {
  return a.op == b.op && a.host_inputs == b.host_inputs &&
         HasSameForm(of_a.args.inputs, of_b.args.inputs) &&
         HasSameForm(of_a.args.outputs, of_b.args.outputs) && HaveSameAttributes(*a.node, *b.node);
}

// Of a paged graph, as block tables have them; or one row more, as what says where sequences begin.
bool HasRowsOfSequences(const Value& value, int axis) {
  const Dim sequences = Dim::Symbol("num_sequences");
  if (!value.shape() || axis >= value.shape()->rank()) return false;
  const Dim& rows = (*value.shape())[axis];
  return ProvablyEqual(rows, sequences) || ProvablyEqual(rows, sequences + Dim(1));
}

}  // namespace

void Executor::LookAtDevicePart() {
  if (plan_.device == nullptr) return;
  bool checks_indices = false;
  for (int i = plan_.device_begin; i < static_cast<int>(plan_.steps.size()); ++i) {
    const PlannedStep& step = plan_.steps[i];
    const bool is_free = step.on_device || step.follows_from_shapes || step.only_views;
    if (!is_free && step.copy != StepCopy::kToDevice && breaker_ < 0) breaker_ = i;
    if (!step.on_device || step.kernel == nullptr) continue;
    checks_indices = checks_indices || step.kernel->checks_indices;
    const auto varies = [&](int value) {
      return value >= 0 && !plan_.values[value].value->IsConstant();
    };
    if (std::ranges::any_of(step.host_inputs, varies)) watched_.push_back(i);
  }
  if (!checks_indices) return;
  // Without it indices are not looked at, which kernels bear.
  auto memory = Buffer::Allocate(sizeof(DeviceIndexError), plan_.device->shared_memory());
  if (memory.ok()) index_error_ = *std::move(memory);
}

const Node* Executor::capture_breaker() const {
  return breaker_ < 0 ? nullptr : plan_.steps[breaker_].node;
}

// Counts what makes addresses of before worthless.
int64_t Executor::MemoryChanges() const { return memory_changes_ + device_scratch_.growths(); }

absl::Status Executor::CheckNotCapturing(const Node& node) const {
  if (!captures_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(node.Description(), ": needs a copy between host and device while work is captured"));
}

// What is captured runs on other contents: the kernel sees those alone that it says it looks at, which have to be
// the same then.
void Executor::ForgetContents(const PlannedStep& step, KernelArgs& args) const {
  if (!step.on_device || step.kernel == nullptr) return;
  for (size_t i = 0; i < args.on_host.size(); ++i) {
    const int value = step.host_inputs[i];
    if (value < 0 || plan_.values[value].value->IsConstant() || LooksAt(step, i)) continue;
    args.on_host[i].data = nullptr;
  }
}

absl::Status Executor::TimeDevicePart() {
  last_moment_ = -1;
  PF_ASSIGN_OR_RETURN(first_moment_, plan_.device->MarkMoment());
  PF_RETURN_IF_ERROR(RunDevicePart());
  PF_ASSIGN_OR_RETURN(last_moment_, plan_.device->MarkMoment());
  return absl::OkStatus();
}

absl::Status Executor::TakeDeviceTime() {
  const int last = std::exchange(last_moment_, -1);
  if (last < 0) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const double microseconds,
                      plan_.device->MicrosecondsBetween(first_moment_, last));
  device_seconds_ += microseconds * 1e-6;
  return absl::OkStatus();
}

absl::Status Executor::RunDevicePart() {
  const bool may_capture = device_graphs_ && breaker_ < 0 && !profile_;
  if (!may_capture) return RunAndSettle();
  if (shape_->captured != nullptr) {
    PF_ASSIGN_OR_RETURN(const bool fits, FitsCapture(*shape_->captured));
    if (fits) {
      ++replays_;
      prepared_runs_ += prepared_ ? 1 : 0;
      return plan_.device->Replay(*shape_->captured->graph);
    }
    // Memory only grows, which comes to an end.
    if (shape_->captured->memory == MemoryChanges()) ++shape_->misses;
    shape_->captured.reset();
  }
  if (!shape_->is_settled || shape_->misses >= kMostMisses) return RunAndSettle();
  PF_ASSIGN_OR_RETURN(const bool captured, Capture());
  if (captured) return absl::OkStatus();
  // An error of the run itself, as of a value that is refused, is none of capturing.
  PF_RETURN_IF_ERROR(RunAndSettle());
  ++shape_->misses;
  return absl::OkStatus();
}

absl::Status Executor::RunAndSettle() {
  const int64_t before = MemoryChanges() + allocations_;
  PF_RETURN_IF_ERROR(RunRange(plan_.device_begin, static_cast<int>(plan_.steps.size())));
  shape_->is_settled = MemoryChanges() + allocations_ == before;
  return absl::OkStatus();
}

// Captures the run and asks for it; false if it cannot be captured.
absl::StatusOr<bool> Executor::Capture() {
  auto captured = std::make_unique<CapturedRun>();
  const int64_t before = MemoryChanges() + allocations_;
  PF_RETURN_IF_ERROR(plan_.device->BeginCapture());
  captures_ = true;
  const absl::Status run = RunRange(plan_.device_begin, static_cast<int>(plan_.steps.size()));
  captures_ = false;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = plan_.device->EndCapture();
  if (!run.ok() || !graph.ok()) {
    capture_miss_ = std::string((run.ok() ? graph.status() : run).message());
    return false;
  }
  if (MemoryChanges() + allocations_ != before) {
    capture_miss_ = "memory was taken";
    return false;
  }
  captured->graph = *std::move(graph);
  KeepBindings(*captured);
  PF_RETURN_IF_ERROR(plan_.device->Replay(*captured->graph));
  ++replays_;
  shape_->captured = std::move(captured);
  return true;
}

// visit(bytes) for what kernels look at of the host's memory, constants apart; until it gives false.
template <class Visit>
bool Executor::VisitHostData(const Visit& visit) const {
  for (const int index : watched_) {
    const PlannedStep& step = plan_.steps[index];
    for (size_t i = 0; i < step.host_inputs.size(); ++i) {
      const int value = step.host_inputs[i];
      if (value < 0 || plan_.values[value].value->IsConstant() || !LooksAt(step, i)) continue;
      const TensorArg& arg = shape_->values[value];
      const auto bytes = static_cast<size_t>(ByteSize(arg.dtype, arg.dims).value_or(0));
      if (!visit(std::span(arg.as<const std::byte>(), bytes))) return false;
    }
  }
  return true;
}

void Executor::KeepBindings(CapturedRun& captured) const {
  const RunValues& values = shape_->values;
  captured.memory = MemoryChanges();
  for (const int input : plan_.inputs) {
    captured.feeds.push_back(plan_.values[input].on_device ? values[input].data : nullptr);
  }
  for (const int output : plan_.outputs) {
    captured.outputs.push_back(
        plan_.values[output].placement == Placement::kOutput ? values[output].data : nullptr);
    // Caches of several groups may begin at the same page.
    const auto feed = std::ranges::find_if(plan_.inputs, [&](int input) {
      const TensorArg &in = values[input], &out = values[output];
      return plan_.values[input].on_device && in.data == out.data && in.dtype == out.dtype &&
             in.dims == out.dims && in.block_stride == out.block_stride;
    });
    const bool is_feed =
        plan_.values[output].placement == Placement::kExternal && feed != plan_.inputs.end();
    captured.output_feeds.push_back(is_feed ? *feed : -1);
  }
  for (const int index : watched_) {
    const bool is_known = std::ranges::any_of(captured.checked, [&](int other) {
      return ChecksTheSame(plan_.steps[index], shape_->calls[index], plan_.steps[other],
                           shape_->calls[other]);
    });
    if (!is_known) captured.checked.push_back(index);
  }
  VisitHostData([&](std::span<const std::byte> data) {
    captured.host_data.emplace_back(data.begin(), data.end());
    return true;
  });
}

// Takes the run's values and checks them as its steps would; false if what was captured is not this run.
absl::StatusOr<bool> Executor::FitsCapture(const CapturedRun& captured) {
  if (!FitsMemory(captured)) return false;
  if (!prepared_) {
    PF_ASSIGN_OR_RETURN(const bool fits, FitsValues(captured));
    if (!fits) return false;
  } else {
    for (const int index : prepared_->checked) {
      PF_RETURN_IF_ERROR(CheckStepValues(plan_.steps[index], shape_->calls[index].args));
    }
  }
  PF_ASSIGN_OR_RETURN(const bool fits, FitsOutputs(captured));
  if (fits) capture_miss_.clear();
  return fits;
}

bool Executor::FitsMemory(const CapturedRun& captured) {
  capture_miss_ = "other memory than before";
  if (captured.memory != MemoryChanges()) return false;
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    const void* data = captured.feeds[i];
    if (plan_.values[plan_.inputs[i]].on_device && values()[plan_.inputs[i]].data != data) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<bool> Executor::FitsValues(const CapturedRun& captured) {
  for (const int index : watched_) {
    StepCall& call = shape_->calls[index];
    if (!call.TakeInputs(plan_.steps[index], values())) {
      capture_miss_ = StrCat(plan_.steps[index].node->Description(), " has other sizes");
      return false;
    }
  }
  for (const int index : captured.checked) {
    PF_RETURN_IF_ERROR(CheckStepValues(plan_.steps[index], shape_->calls[index].args));
  }
  auto kept = captured.host_data.begin();
  const bool same = VisitHostData(
      [&](std::span<const std::byte> data) { return std::ranges::equal(data, *kept++); });
  if (!same) capture_miss_ = "other values that kernels look at on the host";
  return same;
}

absl::StatusOr<bool> Executor::FitsOutputs(const CapturedRun& captured) {
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const int output = plan_.outputs[i];
    if (captured.output_feeds[i] >= 0) owners_[output] = owners_[captured.output_feeds[i]];
    if (captured.outputs[i] == nullptr || owners_[output].defined()) continue;
    PF_ASSIGN_OR_RETURN(Tensor memory, OutputMemory(output, values()[output]));
    if (memory.data() != captured.outputs[i]) return false;
    output_bytes_ += memory.byte_size();
    owners_[output] = std::move(memory);
  }
  return true;
}

absl::Status Executor::CheckIndexErrors() {
  if (index_error_ == nullptr) return absl::OkStatus();
  auto& kept = *reinterpret_cast<DeviceIndexError*>(index_error_->data());
  const DeviceIndexError error = std::exchange(kept, DeviceIndexError{});
  if (error.step == 0) return absl::OkStatus();
  const absl::Status status = IndexErrorAt(error);
  const std::optional<int64_t> token = TokenOfElement(error);
  return token ? AtToken(status, *token) : status;
}

// Of an input with a row for each token, [T, ...] or [1, T, ...], or for each of those whose logits are wanted; which is guessed by how many rows it
// has, unless the graph says that they are of sequences, of which there may be as many.
std::optional<int64_t> Executor::TokenOfElement(const DeviceIndexError& error) const {
  const RunValues& values = shape_->values;
  const TensorArg& input = shape_->calls[error.step - 1].args.inputs[error.input];
  const size_t axis = input.dims.size() > 1 && input.dims[0] == 1 ? 1 : 0;
  if (input.dims.empty() || input.dims[axis] == 0) return std::nullopt;
  const Value* value = plan_.steps[error.step - 1].node->input(error.input);
  if (HasRowsOfSequences(*value, static_cast<int>(axis))) return std::nullopt;
  const int64_t rows = input.dims[axis], row = error.element / (input.size() / rows);
  if (tokens_ && tokens_->count() == rows) return row;
  // A single number is no row.
  if (logit_rows_ < 0 || rows == 1) return std::nullopt;
  const TensorArg& wanted = values[plan_.inputs[logit_rows_]];
  if (wanted.size() != rows || wanted.dtype != DataType::kInt64) return std::nullopt;
  return wanted.as<const int64_t>()[row];
}

// The op's own words, of a call that has this value alone; or ours where the op has none.
absl::Status Executor::IndexErrorAt(const DeviceIndexError& error) const {
  const PlannedStep& step = plan_.steps[error.step - 1];
  KernelArgs call;
  call.node = step.node;
  call.opset = step.opset;
  call.inputs = shape_->calls[error.step - 1].args.inputs;
  call.outputs = shape_->calls[error.step - 1].args.outputs;
  std::vector<Tensor> zeros(call.inputs.size());
  for (size_t i = 0; i < zeros.size(); ++i) {
    TensorArg& input = call.inputs[i];
    input.data = nullptr;
    if (!input.present() || !IsIndexType(input.dtype)) continue;
    PF_ASSIGN_OR_RETURN(zeros[i], Tensor::Allocate(input.dtype, input.dims));
    input.data = zeros[i].mutable_data();
    if (static_cast<int>(i) != error.input || error.element >= input.size()) continue;
    if (input.dtype == DataType::kInt64) input.as<int64_t>()[error.element] = error.value;
    if (input.dtype == DataType::kInt32) {
      input.as<int32_t>()[error.element] = static_cast<int32_t>(error.value);
    }
  }
  const absl::Status said = step.op->CheckValues(call);
  if (!said.ok() && absl::StrContains(said.message(), StrCat(error.value))) return said;
  return absl::OutOfRangeError(StrCat(step.node->Description(), ": input ", error.input,
                                      ": element ", error.element, " is ", error.value,
                                      ", which is out of range"));
}

}  // namespace pagefuse
