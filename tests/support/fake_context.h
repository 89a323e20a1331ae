// SPDX-License-Identifier: Apache-2.0
// A device that is none: memory of the host without access rights, and the CPU's kernels, which may touch it while they run.
// Whoever else reads or writes it ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {

// A piece of addresses of which pieces are given out. Thread-safe.
class VeiledMemory final : public Allocator {
 public:
  explicit VeiledMemory(size_t bytes);
  ~VeiledMemory() override;
  bool is_host() const override { return false; }
  std::optional<MemoryRoom> Room() const override;
  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* data, size_t bytes) override;

  bool Holds(const void* data, size_t bytes) const;
  size_t used() const;
  // While one lives, all of it may be read and written.
  class Open {
   public:
    explicit Open(VeiledMemory& memory);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    VeiledMemory& memory_;
  };

 private:
  size_t size_;
  std::byte* base_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> taken_;  // by offset: bytes
  size_t used_ = 0;
  int opened_ = 0;
};

class FakeContext final : public DeviceContext {
 public:
  explicit FakeContext(size_t bytes = size_t{1} << 30) : memory_(bytes) {}

  std::string name() const override { return "fake"; }
  VeiledMemory& memory() override { return memory_; }
  Allocator& shared_memory() override { return HostAllocator(); }
  // This, also of contexts around it: what kernels run on.
  void* queue() override { return this; }
  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyRowsOnDevice(void* to, size_t to_stride, const void* from, size_t from_stride,
                                size_t bytes, int64_t rows) override;
  absl::Status Wait() override { return absl::OkStatus(); }
  // What is captured is run by Replay: the fake kernels and copies on the device.
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  absl::Status Replay(DeviceGraph& graph) override;
  void RewindMoments() override { moments_ = 0; }
  absl::StatusOr<int> MarkMoment() override { return moments_++; }
  absl::StatusOr<double> MicrosecondsBetween(int first, int second) override {
    if (first >= moments_ || second >= moments_)
      return absl::InvalidArgumentError("no such moment");
    return second - first;
  }

  // Does it, or keeps it where work is captured.
  using Work = std::function<absl::Status()>;
  absl::Status Do(Work work);

 private:
  VeiledMemory memory_;
  int moments_ = 0;
  std::unique_ptr<std::vector<Work>> captured_;  // null where nothing is being captured
};

// The ops of the process, each with a kernel "fake" for a device, which is the one that the CPU would take, or the
// decomposition, on a FakeContext. Ops with graphs, and those whose kernels tell shapes while they run, have none.
OpRegistry WithFakeKernels();

}  // namespace pagefuse
