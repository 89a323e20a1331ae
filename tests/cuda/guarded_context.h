// SPDX-License-Identifier: Apache-2.0
// A device whose memory comes with guard bytes on both sides, and filled with a pattern if one likes:
// writes outside of a tensor and reads of what nobody wrote are seen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/device.h"

namespace pagefuse {

// Passes everything on to another device. Memory is looked at when it is given back, and in Broken.
class GuardedContext final : public DeviceContext {
 public:
  explicit GuardedContext(std::shared_ptr<DeviceContext> device);
  ~GuardedContext() override;

  // Whether memory that is asked for from now on begins as a pattern in place of zeros, which only
  // what reads it before it wrote it could tell.
  void set_poisons(bool on) { poisons_ = on; }
  // What was written outside of memory since the last call, a line each; all that is out is looked at.
  std::vector<std::string> Broken();

  std::string name() const override { return device_->name(); }
  Allocator& memory() override { return memory_; }
  Allocator& shared_memory() override { return device_->shared_memory(); }
  void* queue() override { return device_->queue(); }
  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyRowsOnDevice(void* to, size_t to_stride, const void* from, size_t from_stride,
                                size_t bytes, int64_t rows) override;
  absl::Status Wait() override { return device_->Wait(); }
  absl::Status BeginCapture() override { return device_->BeginCapture(); }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    return device_->EndCapture();
  }
  absl::Status Replay(DeviceGraph& graph) override { return device_->Replay(graph); }
  void RewindMoments() override { device_->RewindMoments(); }
  absl::StatusOr<int> MarkMoment() override { return device_->MarkMoment(); }
  absl::StatusOr<double> MicrosecondsBetween(int first, int second) override;

 private:
  class GuardedMemory final : public Allocator {
   public:
    explicit GuardedMemory(GuardedContext& context) : context_(context) {}
    bool is_host() const override { return false; }
    std::optional<MemoryRoom> Room() const override { return context_.device_->memory().Room(); }
    std::byte* Allocate(size_t bytes) override;
    void Free(std::byte* data, size_t bytes) override;

   private:
    GuardedContext& context_;
  };

  void Look(std::byte* data, size_t bytes);
  void LookAtGuard(const std::byte* guard, const char* side, size_t bytes);

  std::shared_ptr<DeviceContext> device_;
  GuardedMemory memory_{*this};
  bool poisons_ = false;
  std::mutex mutex_;
  std::map<std::byte*, size_t> out_;  // memory that was given, and its bytes
  std::vector<std::string> broken_;
};

}  // namespace pagefuse
