// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/run_on_device.h"

#include <algorithm>
#include <map>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

bool IsOnHost(const Tensor& tensor) {
  return tensor.buffer() == nullptr || tensor.buffer()->on_host();
}

// Dense, as it is fed to a plan that takes blocks too.
absl::StatusOr<Tensor> Uploaded(const Tensor& tensor, DeviceContext& device) {
  Tensor dense = tensor;
  if (tensor.block_stride() > 0) {
    PF_ASSIGN_OR_RETURN(dense, tensor.Clone());
  }
  PF_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(dense.dtype(), dense.dims(), device.memory()));
  if (copy.byte_size() > 0) {
    PF_RETURN_IF_ERROR(device.CopyToDevice(copy.mutable_data(), dense.data(),
                                           static_cast<size_t>(dense.byte_size())));
  }
  return copy;
}

absl::Status Download(const Tensor& from, Tensor& to, DeviceContext& device) {
  if (from.byte_size() == 0) return absl::OkStatus();
  if (to.block_stride() == 0) {
    return device.CopyToHost(to.mutable_data(), from.data(), static_cast<size_t>(from.byte_size()));
  }
  const auto block = static_cast<size_t>(from.byte_size() / from.dims()[0]);
  for (int64_t i = 0; i < from.dims()[0]; ++i) {
    PF_RETURN_IF_ERROR(device.CopyToHost(
        static_cast<std::byte*>(to.mutable_data()) + i * to.block_stride(),
        static_cast<const std::byte*>(from.data()) + static_cast<size_t>(i) * block, block));
  }
  return absl::OkStatus();
}

// Nothing is to be copied before a run or behind it.
bool AreInPlace(const ExecutionPlan& plan, const std::vector<Tensor>& feeds,
                const std::vector<Tensor>& bound) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (plan.values[plan.inputs[i]].on_device && IsOnHost(feeds[i])) return false;
  }
  return std::ranges::none_of(bound, &Tensor::defined);
}

absl::Status CheckForm(const Value& output, const Tensor& bound, const Tensor& result) {
  if (bound.dtype() == result.dtype() && bound.dims() == result.dims()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("output \"", output.name(), "\": bound memory is ",
                                           DataTypeName(bound.dtype()), DimsToString(bound.dims()),
                                           ", expected ", DataTypeName(result.dtype()),
                                           DimsToString(result.dims())));
}

// A result of the device in host memory, that of `bound` where it is defined.
absl::StatusOr<Tensor> OnHost(const Value& output, const Tensor& result, const Tensor& bound,
                              DeviceContext& device) {
  Tensor copy = bound;
  if (bound.defined()) {
    PF_RETURN_IF_ERROR(CheckForm(output, bound, result));
  } else {
    PF_ASSIGN_OR_RETURN(copy, Tensor::Allocate(result.dtype(), result.dims()));
  }
  PF_RETURN_IF_ERROR(Download(result, copy, device));
  return copy;
}

}  // namespace

absl::Status Settle(Executor& executor) {
  absl::Status status = executor.plan().device->Wait();
  status.Update(executor.TakeDeviceTime());
  executor.plan().device->RewindMoments();  // those of draws behind the run were taken before
  status.Update(executor.CheckIndexErrors());
  return status;
}

absl::StatusOr<std::vector<Tensor>> RunOnDevice(
    Executor& executor, const std::vector<bool>& updated, const std::vector<Tensor>& feeds,
    const std::vector<Tensor>& bound, const std::vector<size_t>& wanted, OutputsIn outputs_in) {
  const ExecutionPlan& plan = executor.plan();
  DeviceContext& device = *plan.device;
  if (outputs_in == OutputsIn::kTheirPlace && AreInPlace(plan, feeds, bound)) {
    PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, executor.Run(feeds, bound));
    std::vector<Tensor> outputs(results.size());
    for (const size_t i : wanted) outputs[i] = std::move(results[i]);
    return outputs;
  }
  std::vector<Tensor> given = feeds;
  std::map<const void*, size_t> updates;  // by memory on the device: the feed that is updated there
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!plan.values[plan.inputs[i]].on_device) continue;
    if (IsOnHost(feeds[i])) {
      PF_ASSIGN_OR_RETURN(given[i], Uploaded(feeds[i], device));
    }
    if (updated[i] && given[i].byte_size() > 0) updates.emplace(given[i].data(), i);
  }
  std::vector<Tensor> inside(bound.size());  // what the host computes goes where it is bound
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!plan.values[plan.outputs[i]].on_device) inside[i] = bound[i];
  }
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, executor.Run(given, inside));
  if (outputs_in == OutputsIn::kHost) PF_RETURN_IF_ERROR(Settle(executor));
  for (const auto& [memory, i] : updates) {
    Tensor feed = feeds[i];
    if (!IsOnHost(feed) || feed.mutable_data() == nullptr) continue;
    PF_RETURN_IF_ERROR(Download(given[i], feed, device));
  }
  std::vector<Tensor> outputs(results.size());
  for (const size_t i : wanted) {
    const auto update = updates.find(results[i].data());
    Tensor feed = update == updates.end() ? Tensor() : feeds[update->second];
    if (IsOnHost(results[i]) || outputs_in == OutputsIn::kTheirPlace) {
      outputs[i] = std::move(results[i]);
    } else if (feed.defined() && feed.mutable_data() != nullptr && !bound[i].defined()) {
      outputs[i] = std::move(feed);
    } else {
      PF_ASSIGN_OR_RETURN(
          outputs[i], OnHost(*plan.values[plan.outputs[i]].value, results[i], bound[i], device));
    }
  }
  return outputs;
}

}  // namespace pagefuse
