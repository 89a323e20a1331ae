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
  std::shared_ptr<Buffer>& kept = last_outputs_[value];
  const bool on_device = plan_.values[value].on_device;
  const int64_t bytes = ByteSize(output.dtype, output.dims).value_or(0);
  if (kept != nullptr && kept.use_count() == 1) {
    // A copy that is made and dropped synchronises with whoever let go of the memory last.
    std::shared_ptr<Buffer>(kept).reset();
    const auto size = static_cast<int64_t>(kept->size());
    // What was captured finds the device's where it was, whatever sizes came between.
    if (size >= bytes && (on_device || size / 2 <= bytes)) {
      return Tensor::View(output.dtype, output.dims, kept);
    }
  }
  memory_changes_ += on_device ? 1 : 0;
  kept.reset();  // the old memory goes before the new comes
  ++allocations_;
  PF_ASSIGN_OR_RETURN(Tensor tensor,
                      Tensor::Allocate(output.dtype, output.dims, MemoryOf(plan_.values[value])));
  kept = tensor.buffer();
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
    output.data = values()[input].data;
    output.block_stride = values()[input].block_stride;
    values().SetStride(index, output.block_stride);
    // Of the arena nobody else may have a part.
    if (plan_.values[index].placement != Placement::kArena) owners_[index] = owners_[input];
    if (step.must_alias[out] && plan_.values[index].placement == Placement::kExternal &&
        bytes > 0 && owners_[index].mutable_data() == nullptr) {
      return absl::InvalidArgumentError(
          StrCat(step.node->Description(), ": input ", in,
                 " is updated in place, but its memory is read-only"));
    }
  }
  values().SetData(index, output.data);
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
  if (!step.must_alias[out] || bytes == 0) return absl::OkStatus();
  for (const auto& [aliased, in] : step.op->aliases()) {
    if (aliased != out) continue;
    const void* from = values()[step.inputs[in]].data;
    if (step.on_device) return plan_.device->CopyOnDevice(output.data, from, bytes);
    std::memcpy(output.data, from, bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> Executor::StorageMemory(int index, int64_t bytes) {
  Storage& storage = plan_.storages[index];
  const Arena& arena = storage.on_device ? device_ : host_;
  if (bytes <= arena.plan.sizes[index] && arena.memory) {
    return arena.memory->data() + arena.plan.offsets[index];
  }
  ++allocations_;
  Allocator& allocator = storage.on_device ? plan_.device->memory() : *plan_.allocator;
  PF_ASSIGN_OR_RETURN(spill_[index], Buffer::Allocate(bytes, allocator));
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
  values().Set(index, tensor);
  owners_[index] = std::move(tensor);
  return absl::OkStatus();
}

void Executor::LearnSizes() {
  if (!grew_) return;
  grew_ = false;
  LearnSizesOf(host_, *plan_.allocator, /*on_device=*/false);
  if (plan_.device != nullptr) LearnSizesOf(device_, plan_.device->memory(), /*on_device=*/true);
}

void Executor::LearnSizesOf(Arena& arena, Allocator& allocator, bool on_device) {
  MemoryPlan plan = PlanMemory(plan_.storages, on_device);
  if (plan.sizes == arena.plan.sizes && arena.memory != nullptr) return;
  ++memory_changes_;
  arena.plan = std::move(plan);
  arena.memory.reset();  // the old one goes before the new one comes
  ++allocations_;
  auto memory = Buffer::Allocate(static_cast<size_t>(arena.plan.arena_bytes), allocator);
  if (memory.ok()) arena.memory = *std::move(memory);
}

}  // namespace pagefuse
