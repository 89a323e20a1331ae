// SPDX-License-Identifier: Apache-2.0
// Where the outputs of an executor's steps lie.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/executor.h"

namespace pagefuse {

absl::StatusOr<Tensor> Executor::OutputMemory(int value, const TensorArg& output) {
  constexpr int64_t kKeptBytes = int64_t{1} << 20;
  std::shared_ptr<Buffer>& kept = last_outputs_[value];
  const int64_t bytes = ByteSize(output.dtype, output.dims).value_or(0);
  if (kept != nullptr && kept.use_count() == 1) {
    // A copy that is made and dropped synchronises with whoever let go of the memory last.
    std::shared_ptr<Buffer>(kept).reset();
    const auto size = static_cast<int64_t>(kept->size());
    if (size >= bytes && size / 2 <= bytes) return Tensor::View(output.dtype, output.dims, kept);
  }
  kept.reset();  // the old memory goes before the new comes
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(output.dtype, output.dims, *plan_.allocator));
  if (bytes >= kKeptBytes) kept = tensor.buffer();
  return tensor;
}

// The output's memory: into the argument, and for the steps that read the value.
absl::Status Executor::PlaceOutput(const PlannedStep& step, int out, TensorArg& output,
                                   int64_t bytes) {
  const int index = step.outputs[out];
  const int in = step.shares_input[out];
  if (in < 0) {
    PF_RETURN_IF_ERROR(PlaceNewOutput(step, out, output, bytes));
  } else {
    const int input = step.inputs[in];
    output.data = values_[input].data;
    output.block_stride = values_[input].block_stride;
    values_.SetStride(index, output.block_stride);
    // Of the arena nobody else may have a part.
    if (plan_.values[index].placement != Placement::kArena) owners_[index] = owners_[input];
    if (step.must_alias[out] && plan_.values[index].placement == Placement::kExternal &&
        bytes > 0 && owners_[index].mutable_data() == nullptr) {
      return absl::InvalidArgumentError(
          StrCat(step.node->Description(), ": input ", in,
                 " is updated in place, but its memory is read-only"));
    }
  }
  values_.SetData(index, output.data);
  return absl::OkStatus();
}

absl::Status Executor::PlaceNewOutput(const PlannedStep& step, int out, TensorArg& output,
                                      int64_t bytes) {
  PF_RETURN_IF_ERROR(CheckTensorBytes(*step.node, out, bytes, limits_));
  const int index = step.outputs[out];
  const PlannedValue& value = plan_.values[index];
  if (value.placement == Placement::kOutput) {
    // An output that is listed twice is bound by its name, so that the first place tells all.
    Tensor tensor = (*bound_)[output_positions_[index]];
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
    owners_[index] = std::move(tensor);
  } else {
    PF_ASSIGN_OR_RETURN(output.data, StorageMemory(value.storage, bytes));
  }
  if (step.must_alias[out] && bytes > 0) {
    for (const auto& [aliased, in] : step.op->aliases()) {
      if (aliased == out) std::memcpy(output.data, values_[step.inputs[in]].data, bytes);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> Executor::StorageMemory(int index, int64_t bytes) {
  if (bytes <= memory_.sizes[index] && arena_) return arena_->data() + memory_.offsets[index];
  PF_ASSIGN_OR_RETURN(spill_[index], Buffer::Allocate(bytes, *plan_.allocator));
  Storage& storage = plan_.storages[index];
  grew_ = grew_ || bytes > storage.bytes;
  storage.bytes = std::max(storage.bytes, bytes);
  return spill_[index]->data();
}

absl::Status Executor::KeepProduced(const PlannedStep& step, int out, Tensor tensor) {
  const int index = step.outputs[out];
  const int position = output_positions_[index];
  if (position >= 0 && (*bound_)[position].defined()) {
    Tensor bound = (*bound_)[position];
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
  values_.Set(index, tensor);
  owners_[index] = std::move(tensor);
  return absl::OkStatus();
}

void Executor::LearnSizes() {
  if (!grew_) return;
  grew_ = false;
  memory_ = PlanMemory(plan_.storages);
  arena_.reset();  // the old one goes before the new one comes
  auto arena = Buffer::Allocate(static_cast<size_t>(memory_.arena_bytes), *plan_.allocator);
  if (arena.ok()) arena_ = *std::move(arena);
}

}  // namespace pagefuse
