// SPDX-License-Identifier: Apache-2.0
// What the host does for a run while the device is at the one before.
#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/executor.h"

namespace pagefuse {

void Executor::Prepare(const std::vector<Tensor>& feeds, const std::vector<size_t>& later) {
  prepared_.reset();
  if (plan_.device == nullptr || profile_ || shape_ == nullptr) return;
  // In other shapes lies what the run before is still asked about (CheckIndexErrors).
  if (shape_->captured == nullptr || &shapes_.Find(plan_, feeds) != shape_) return;
  std::optional<Prepared> prepared = FollowLater(later);
  if (!prepared) return;
  const std::string miss = capture_miss_;
  const int64_t copies = device_copies_, taken = MemoryChanges() + allocations_;
  const absl::StatusOr<bool> fits = PrepareFrom(feeds);
  LetGo();
  capture_miss_ = miss;
  device_copies_ = copies;
  if (!fits.ok() || !*fits || MemoryChanges() + allocations_ != taken) return;
  for (const Tensor& feed : feeds) prepared->feeds.push_back(feed.data());
  prepared_ = std::move(prepared);
}

absl::StatusOr<bool> Executor::PrepareFrom(const std::vector<Tensor>& feeds) {
  PF_RETURN_IF_ERROR(TakeFeeds(feeds));
  PF_RETURN_IF_ERROR(RunRange(0, plan_.device_begin));
  PF_RETURN_IF_ERROR(UploadInputs());
  return FitsValues(*shape_->captured);
}

// Where later inputs go; nullopt where more than copies and checks would have to be done again, or where the host
// has outputs, whose memory a Run brings.
std::optional<Executor::Prepared> Executor::FollowLater(const std::vector<size_t>& later) const {
  std::vector<bool> is_later(plan_.values.size());
  for (const size_t input : later) is_later[plan_.inputs[input]] = true;
  const auto comes_later = [&](int value) { return value >= 0 && is_later[value]; };
  for (int i = 0; i < plan_.device_begin; ++i) {
    const PlannedStep& step = plan_.steps[i];
    const bool reads = std::ranges::any_of(step.inputs, comes_later) ||
                       std::ranges::any_of(step.captures, comes_later);
    if (reads && !step.only_views && !step.follows_from_shapes) return std::nullopt;
    for (const int output : step.outputs) {
      if (output < 0) continue;
      if (plan_.values[output].placement == Placement::kOutput) return std::nullopt;
      is_later[output] = reads && step.only_views;
    }
  }
  Prepared prepared;
  std::ranges::copy_if(uploads_, std::back_inserter(prepared.uploads),
                       [&](int value) { return is_later[plan_.values[value].uploaded_from]; });
  for (const int index : watched_) {
    const PlannedStep& step = plan_.steps[index];
    for (size_t i = 0; i < step.host_inputs.size(); ++i) {
      if (comes_later(step.host_inputs[i]) && LooksAt(step, i)) return std::nullopt;
    }
  }
  std::ranges::copy_if(
      shape_->captured->checked, std::back_inserter(prepared.checked),
      [&](int index) { return std::ranges::any_of(plan_.steps[index].host_inputs, comes_later); });
  return prepared;
}

// Prepare had the same feeds.
bool Executor::IsPrepared(const std::vector<Tensor>& feeds) {
  const auto lies_there = [](const void* memory, const Tensor& feed) {
    return memory == feed.data();
  };
  return prepared_ && shape_->captured != nullptr &&
         std::ranges::equal(prepared_->feeds, feeds, lies_there);
}

absl::Status Executor::UploadLater() {
  ++device_copies_;  // of all others
  for (const int upload : prepared_->uploads) {
    const TensorArg& from = values()[plan_.values[upload].uploaded_from];
    const int64_t bytes = ByteSize(from.dtype, from.dims).value_or(0);
    if (bytes == 0) continue;
    ++device_copies_;
    PF_RETURN_IF_ERROR(
        plan_.device->CopyToDevice(values()[upload].data, from.data, static_cast<size_t>(bytes)));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
