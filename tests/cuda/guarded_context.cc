// SPDX-License-Identifier: Apache-2.0
#include "guarded_context.h"

#include <algorithm>
#include <array>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// A multiple of the alignment of a device's memory.
constexpr size_t kGuard = 1024;
constexpr std::byte kGuardByte{0xA5};
// As a float, a half and an integer it is large: what is computed with it is wrong.
constexpr std::byte kPoison{0xCD};
// What a kernel reads too early is rarely far inside.
constexpr size_t kMostPoisoned = size_t{8} << 20;

}  // namespace

GuardedContext::GuardedContext(std::shared_ptr<DeviceContext> device)
    : device_(std::move(device)) {}

GuardedContext::~GuardedContext() = default;

absl::Status GuardedContext::CopyToDevice(void* to, const void* from, size_t bytes) {
  return device_->CopyToDevice(to, from, bytes);
}

absl::Status GuardedContext::CopyToHost(void* to, const void* from, size_t bytes) {
  return device_->CopyToHost(to, from, bytes);
}

absl::Status GuardedContext::CopyOnDevice(void* to, const void* from, size_t bytes) {
  return device_->CopyOnDevice(to, from, bytes);
}

absl::Status GuardedContext::CopyRowsOnDevice(void* to, size_t to_stride, const void* from,
                                              size_t from_stride, size_t bytes, int64_t rows) {
  return device_->CopyRowsOnDevice(to, to_stride, from, from_stride, bytes, rows);
}

absl::StatusOr<double> GuardedContext::MicrosecondsBetween(int first, int second) {
  return device_->MicrosecondsBetween(first, second);
}

std::vector<std::string> GuardedContext::Broken() {
  const std::lock_guard lock(mutex_);
  for (const auto& [data, bytes] : out_) Look(data, bytes);
  return std::exchange(broken_, {});
}

void GuardedContext::Look(std::byte* data, size_t bytes) {
  LookAtGuard(data - kGuard, "before", bytes);
  LookAtGuard(data + bytes, "behind", bytes);
}

void GuardedContext::LookAtGuard(const std::byte* guard, const char* side, size_t bytes) {
  std::array<std::byte, kGuard> seen;
  const absl::Status status = device_->CopyToHost(seen.data(), guard, kGuard);
  if (!status.ok()) {
    broken_.push_back(StrCat("guard bytes cannot be read: ", status.ToString()));
    return;
  }
  const auto changed = std::ranges::find_if(seen, [](std::byte b) { return b != kGuardByte; });
  if (changed == seen.end()) return;
  const auto place = changed - seen.begin();
  broken_.push_back(StrCat("memory of ", bytes, " bytes: byte ", place, " of the ", kGuard,
                           " bytes ", side, " it was written"));
  device_
      ->CopyToDevice(const_cast<std::byte*>(guard),
                     std::vector<std::byte>(kGuard, kGuardByte).data(), kGuard)
      .IgnoreError();
}

std::byte* GuardedContext::GuardedMemory::Allocate(size_t bytes) {
  std::byte* whole = context_.device_->memory().Allocate(bytes + 2 * kGuard);
  if (whole == nullptr) return nullptr;
  std::byte* data = whole + kGuard;
  const std::vector<std::byte> guard(kGuard, kGuardByte);
  absl::Status status = context_.CopyToDevice(whole, guard.data(), kGuard);
  if (status.ok()) status = context_.CopyToDevice(data + bytes, guard.data(), kGuard);
  if (status.ok() && context_.poisons_ && bytes > 0) {
    const std::vector<std::byte> poison(std::min(bytes, kMostPoisoned), kPoison);
    status = context_.CopyToDevice(data, poison.data(), poison.size());
  }
  const std::lock_guard lock(context_.mutex_);
  if (!status.ok()) {
    context_.broken_.push_back(StrCat("memory cannot be filled: ", status.ToString()));
  }
  context_.out_[data] = bytes;
  return data;
}

void GuardedContext::GuardedMemory::Free(std::byte* data, size_t bytes) {
  if (data == nullptr) return;
  {
    const std::lock_guard lock(context_.mutex_);
    context_.Look(data, bytes);
    context_.out_.erase(data);
  }
  context_.device_->memory().Free(data - kGuard, bytes + 2 * kGuard);
}

}  // namespace pagefuse
