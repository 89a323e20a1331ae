// SPDX-License-Identifier: Apache-2.0
// An accelerator: memory that the host cannot read, and a queue of work on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/allocator.h"
#include "pagefuse/base/device_index_error.h"

namespace pagefuse {

// Kernels and copies on the device that were captured, to be asked for at once.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Copies and kernels run one after the other in the order in which they were asked for, while the host
// goes on. Not thread-safe, but for the memory's allocator. Outlives all memory that it gave.
class DeviceContext {
 public:
  virtual ~DeviceContext() = default;

  // As options name it, and what it is: "cuda:0 (NVIDIA H200)".
  virtual std::string name() const = 0;
  // Its memory, zero-filled and aligned to 256 bytes at least.
  virtual Allocator& memory() = 0;
  // The host's, zero-filled, which kernels read and write too: for a few words that both look at.
  virtual Allocator& shared_memory() = 0;
  // What kernels are given to run on: a cudaStream_t.
  virtual void* queue() = 0;

  // `from` is the host's, and may be changed once the call has returned.
  virtual absl::Status CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  // Waits for all that was asked for before: `to`, the host's, has the bytes when the call returns.
  virtual absl::Status CopyToHost(void* to, const void* from, size_t bytes) = 0;
  // Both on the device; they do not overlap.
  virtual absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  // `rows` pieces of `bytes`, that many bytes apart in both.
  virtual absl::Status CopyRowsOnDevice(void* to, size_t to_stride, const void* from,
                                        size_t from_stride, size_t bytes, int64_t rows) = 0;
  // Until all that was asked for is done. The error of what failed: after one that the device does not
  // recover from, every further call gives it again.
  virtual absl::Status Wait() = 0;

  // Between both, kernels and copies on the device are not done but kept, with the arguments that they
  // have. Nothing else is asked for in between, and no memory taken. EndCapture's error is that of what
  // cannot be captured; nothing is being captured afterwards either way.
  virtual absl::Status BeginCapture() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // Asks for all of a graph that this context captured, which it outlives.
  virtual absl::Status Replay(DeviceGraph& graph) = 0;

  // Moments in the queue, for profiles: a number of its own for each, from 0 after Rewind; and the
  // microseconds between two of them, once Wait has returned.
  virtual void RewindMoments() = 0;
  virtual absl::StatusOr<int> MarkMoment() = 0;
  virtual absl::StatusOr<double> MicrosecondsBetween(int first, int second) = 0;
};

}  // namespace pagefuse
