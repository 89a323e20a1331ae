// SPDX-License-Identifier: Apache-2.0
// Steps that run on a device, and the copies between it and the host.
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/device_placement.h"
#include "pagefuse/runtime/executor.h"

namespace pagefuse {
namespace {

// Scales, which are fetched to be checked; larger tensors are data.
constexpr int64_t kFewElements = 1;

// Of fields in what is uploaded: vectors of 16 bytes are read there, and more.
constexpr size_t kUploadAlignment = 256;

size_t RoundUp(size_t bytes) {
  return (bytes + kUploadAlignment - 1) / kUploadAlignment * kUploadAlignment;
}

size_t ArgBytes(const TensorArg& arg) {
  return static_cast<size_t>(ByteSize(arg.dtype, arg.dims).value_or(0));
}

// The bytes of a tensor, dense. Blocks need not be.
void AppendBytes(const TensorArg& arg, size_t at, std::vector<std::byte>& to) {
  const size_t bytes = ArgBytes(arg);
  if (bytes == 0) return;
  if (arg.block_stride == 0) {
    std::memcpy(to.data() + at, arg.data, bytes);
    return;
  }
  const size_t block = bytes / static_cast<size_t>(arg.dims[0]);
  for (int64_t i = 0; i < arg.dims[0]; ++i) {
    std::memcpy(to.data() + at + static_cast<size_t>(i) * block,
                arg.as<const std::byte>() + i * arg.block_stride, block);
  }
}

absl::Status AtNode(const Node& node, const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), "node \"")) return status;
  return absl::Status(status.code(), StrCat(node.Description(), ": ", StdView(status.message())));
}

}  // namespace

Allocator& Executor::MemoryOf(const PlannedValue& value) const {
  return value.on_device ? plan_.device->memory() : *plan_.allocator;
}

int64_t Executor::BytesOf(int value) const {
  return shape_ == nullptr ? 0 : static_cast<int64_t>(ArgBytes(shape_->values[value]));
}

// One copy for all that the host knows by now and the device reads.
absl::Status Executor::UploadInputs() {
  size_t bytes = 0;
  for (const int upload : uploads_) {
    const TensorArg& from = values()[plan_.values[upload].uploaded_from];
    values().SetShape(upload, from.dtype, from.dims);
    const size_t begin = bytes;
    bytes += RoundUp(ArgBytes(from));
    if (upload_.size() < bytes) upload_.resize(bytes);
    AppendBytes(from, begin, upload_);
  }
  if (bytes == 0) return absl::OkStatus();
  if (uploaded_ == nullptr || uploaded_->size() < bytes) {
    uploaded_.reset();
    ++allocations_;
    ++memory_changes_;
    PF_ASSIGN_OR_RETURN(uploaded_, Buffer::Allocate(bytes, plan_.device->memory()));
  }
  size_t offset = 0;
  for (const int upload : uploads_) {
    values().SetData(upload, uploaded_->data() + offset);
    offset += RoundUp(ArgBytes(values()[upload]));
  }
  ++device_copies_;
  return plan_.device->CopyToDevice(uploaded_->data(), upload_.data(), bytes);
}

absl::Status Executor::RunCopy(int index) {
  const PlannedStep& step = plan_.steps[index];
  const int from = step.inputs[0], to = step.outputs[0];
  const TensorArg& source = values()[from];
  values().SetShape(to, source.dtype, source.dims);
  const size_t bytes = ArgBytes(source);
  PF_ASSIGN_OR_RETURN(void* memory,
                      StorageMemory(plan_.values[to].storage, static_cast<int64_t>(bytes)));
  values().SetData(to, memory);
  if (bytes == 0) return absl::OkStatus();
  PF_RETURN_IF_ERROR(CheckNotCapturing(*step.node));
  ++device_copies_;
  if (step.copy == StepCopy::kToDevice) {
    if (source.block_stride == 0) {
      return AtNode(*step.node, plan_.device->CopyToDevice(memory, source.data, bytes));
    }
    std::vector<std::byte> dense(bytes);
    AppendBytes(source, 0, dense);
    return AtNode(*step.node, plan_.device->CopyToDevice(memory, dense.data(), bytes));
  }
  const size_t block = source.block_stride == 0 ? bytes : bytes / source.dims[0];
  for (size_t at = 0, i = 0; at < bytes; at += block, ++i) {
    PF_RETURN_IF_ERROR(AtNode(
        *step.node,
        plan_.device->CopyToHost(static_cast<std::byte*>(memory) + at,
                                 source.as<const std::byte>() + i * source.block_stride, block)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Executor::DownloadContents(const PlannedStep& step, const StepCall& call,
                                                const ContentsRead& read,
                                                std::vector<Tensor>& contents) {
  bool more = false;
  for (size_t i = 0; step.on_device && i < contents.size(); ++i) {
    if (step.inputs[i] < 0 || contents[i].defined() || !read.contains(i)) continue;
    const TensorArg& input = call.args.inputs[i];
    PF_ASSIGN_OR_RETURN(contents[i], Tensor::Allocate(input.dtype, input.dims));
    const auto bytes = static_cast<size_t>(contents[i].byte_size());
    if (bytes > 0) {
      PF_RETURN_IF_ERROR(CheckNotCapturing(*step.node));
      PF_RETURN_IF_ERROR(plan_.device->CopyToHost(contents[i].mutable_data(), input.data, bytes));
      ++device_copies_;
    }
    more = true;
  }
  return more;
}

// A kernel of the device, or a view whose memory is not its input's.
absl::Status Executor::RunDeviceStep(const PlannedStep& step, KernelArgs& args) {
  if (step.op->views().empty()) return AtNode(*step.node, step.kernel->run(args));
  for (size_t out = 0; out < step.outputs.size(); ++out) {
    if (step.outputs[out] < 0 || step.shares_input[out] >= 0) continue;
    for (const auto& [output, input] : step.op->views()) {
      if (output != static_cast<int>(out) || args.outputs[out].size() == 0) continue;
      PF_RETURN_IF_ERROR(AtNode(
          *step.node, plan_.device->CopyOnDevice(args.outputs[out].data, args.inputs[input].data,
                                                 ArgBytes(args.outputs[out]))));
    }
  }
  return absl::OkStatus();
}

// Of a step on the device: indices and single numbers that only the device has are fetched, unless the kernel
// looks at them itself.
absl::Status Executor::CheckStepValues(const PlannedStep& step, const KernelArgs& args) {
  if (!step.on_device) return step.op->CheckValues(args);
  if (!step.op->checks_values()) return absl::OkStatus();
  KernelArgs known;
  known.node = args.node;
  known.opset = args.opset;
  known.inputs = args.on_host;
  known.outputs = args.outputs;
  std::vector<Tensor> fetched(known.inputs.size());
  for (size_t i = 0; i < known.inputs.size(); ++i) {
    TensorArg& input = known.inputs[i];
    if (!input.present() || input.data != nullptr || input.size() == 0) continue;
    if (!IsIndexType(input.dtype) && input.size() > kFewElements) continue;
    if (step.kernel != nullptr && step.kernel->checks_indices) return absl::OkStatus();
    PF_RETURN_IF_ERROR(CheckNotCapturing(*step.node));
    PF_ASSIGN_OR_RETURN(fetched[i], Tensor::Allocate(input.dtype, input.dims));
    input.data = fetched[i].mutable_data();
    ++device_copies_;
    PF_RETURN_IF_ERROR(plan_.device->CopyToHost(input.data, args.inputs[i].data, ArgBytes(input)));
  }
  return step.op->CheckValues(known);
}

}  // namespace pagefuse
