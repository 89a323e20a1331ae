// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/context.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/cuda/device_memory.h"
#include "pagefuse/ops/kernels/cuda/runtime_status.h"
#include "pagefuse/ops/kernels/cuda/staging.h"

namespace pagefuse::cuda {
namespace {

// Weights go up, logits come down.
constexpr size_t kUploadPiece = size_t{16} << 20;
constexpr size_t kDownloadPiece = size_t{4} << 20;

class Graph final : public DeviceGraph {
 public:
  Graph(int ordinal, cudaGraphExec_t graph) : ordinal_(ordinal), graph_(graph) {}
  ~Graph() override {
    (void)cudaSetDevice(ordinal_);
    (void)cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  const int ordinal_;
  const cudaGraphExec_t graph_;
};

// Page-locked memory of the host. What is freed may still be written by what the stream was asked before:
// it is waited for.
class SharedMemory final : public Allocator {
 public:
  SharedMemory(int ordinal, cudaStream_t& stream) : ordinal_(ordinal), stream_(stream) {}

  std::byte* Allocate(size_t bytes) override {
    void* data = nullptr;
    (void)cudaSetDevice(ordinal_);
    if (cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocMapped) != cudaSuccess) {
      (void)cudaGetLastError();
      return nullptr;
    }
    return static_cast<std::byte*>(std::memset(data, 0, bytes));
  }
  void Free(std::byte* data, size_t) override {
    (void)cudaSetDevice(ordinal_);
    (void)cudaStreamSynchronize(stream_);
    (void)cudaFreeHost(data);
  }

 private:
  const int ordinal_;
  const cudaStream_t& stream_;
};

class Context final : public DeviceContext {
 public:
  explicit Context(int ordinal) : ordinal_(ordinal) {}
  ~Context() override;
  absl::Status Init();

  std::string name() const override { return name_; }
  Allocator& memory() override { return *memory_; }
  Allocator& shared_memory() override { return shared_memory_; }
  void* queue() override {
    (void)cudaSetDevice(ordinal_);
    return stream_;
  }

  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override {
    PF_RETURN_IF_ERROR(Begin());
    return Checked(upload_.CopyToDevice(to, from, bytes, stream_));
  }
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override {
    PF_RETURN_IF_ERROR(Begin());
    if (bytes == 0) return Wait();
    return Checked(download_.CopyToHost(to, from, bytes, stream_));
  }
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override {
    PF_RETURN_IF_ERROR(Begin());
    return Checked(Copy(to, from, bytes));
  }
  absl::Status CopyRowsOnDevice(void* to, size_t to_stride, const void* from, size_t from_stride,
                                size_t bytes, int64_t rows) override {
    PF_RETURN_IF_ERROR(Begin());
    return Checked(CopyRows(to, to_stride, from, from_stride, bytes, rows));
  }
  absl::Status Wait() override {
    PF_RETURN_IF_ERROR(Begin());
    return Checked(RuntimeStatus("cudaStreamSynchronize", cudaStreamSynchronize(stream_)));
  }

  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  absl::Status Replay(DeviceGraph& graph) override;

  void RewindMoments() override { marked_ = 0; }
  absl::StatusOr<int> MarkMoment() override;
  absl::StatusOr<double> MicrosecondsBetween(int first, int second) override;

 private:
  // The error that the GPU did not recover from, if there was one; else makes it the thread's current one.
  absl::Status Begin();
  // Keeps an error if the GPU does not recover from it.
  absl::Status Checked(absl::Status status);
  absl::Status Copy(void* to, const void* from, size_t bytes);
  absl::Status CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride,
                        size_t bytes, int64_t rows);
  absl::Status Mark();

  const int ordinal_;
  std::string name_;
  absl::Status broken_;
  cudaStream_t stream_ = nullptr;
  std::optional<DeviceMemory> memory_;
  SharedMemory shared_memory_{ordinal_, stream_};
  PinnedPieces upload_{kUploadPiece};
  PinnedPieces download_{kDownloadPiece};
  std::vector<cudaEvent_t> moments_;
  size_t marked_ = 0;
};

absl::Status Context::Init() {
  PF_CUDA_CALL(cudaSetDevice, ordinal_);
  cudaDeviceProp properties;
  PF_CUDA_CALL(cudaGetDeviceProperties, &properties, ordinal_);
  name_ = absl::StrCat("cuda:", ordinal_, " (", properties.name, ")");
  // Not the default stream, whose work waits for that of all others.
  PF_CUDA_CALL(cudaStreamCreateWithFlags, &stream_, cudaStreamNonBlocking);
  memory_.emplace(ordinal_, stream_);
  return memory_->Init();
}

Context::~Context() {
  (void)cudaSetDevice(ordinal_);
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  for (const cudaEvent_t moment : moments_) (void)cudaEventDestroy(moment);
  memory_.reset();
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

absl::Status Context::Begin() {
  PF_RETURN_IF_ERROR(broken_);
  return Checked(RuntimeStatus("cudaSetDevice", cudaSetDevice(ordinal_)));
}

absl::Status Context::Checked(absl::Status status) {
  if (status.ok()) return status;
  // Forgets what the GPU recovers from; what it does not, the stream tells again.
  (void)cudaGetLastError();
  const cudaError_t after = cudaStreamQuery(stream_);
  if (after != cudaSuccess && after != cudaErrorNotReady) broken_ = status;
  return status;
}

absl::Status Context::Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  PF_CUDA_CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToDevice, stream_);
  return absl::OkStatus();
}

absl::Status Context::CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride,
                               size_t bytes, int64_t rows) {
  if (bytes == 0 || rows <= 0) return absl::OkStatus();
  const auto count = static_cast<size_t>(rows);
  if (to_stride == bytes && from_stride == bytes) return Copy(to, from, bytes * count);
  // What cudaMemcpy2D takes for a pitch.
  constexpr size_t kMostPitch = 0x7FFFFFFF;
  const auto is_pitch = [&](size_t stride) { return stride >= bytes && stride <= kMostPitch; };
  if (is_pitch(to_stride) && is_pitch(from_stride)) {
    PF_CUDA_CALL(cudaMemcpy2DAsync, to, to_stride, from, from_stride, bytes, count,
                 cudaMemcpyDeviceToDevice, stream_);
    return absl::OkStatus();
  }
  for (size_t row = 0; row < count; ++row) {
    PF_RETURN_IF_ERROR(Copy(static_cast<std::byte*>(to) + row * to_stride,
                            static_cast<const std::byte*>(from) + row * from_stride, bytes));
  }
  return absl::OkStatus();
}

absl::Status Context::BeginCapture() {
  PF_RETURN_IF_ERROR(Begin());
  return Checked(RuntimeStatus("cudaStreamBeginCapture",
                               cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)));
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> Context::EndCapture() {
  cudaGraph_t captured = nullptr;
  PF_RETURN_IF_ERROR(
      Checked(RuntimeStatus("cudaStreamEndCapture", cudaStreamEndCapture(stream_, &captured))));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&graph, captured, 0);
  (void)cudaGraphDestroy(captured);
  PF_RETURN_IF_ERROR(Checked(RuntimeStatus("cudaGraphInstantiate", made)));
  return std::make_unique<Graph>(ordinal_, graph);
}

absl::Status Context::Replay(DeviceGraph& graph) {
  PF_RETURN_IF_ERROR(Begin());
  return Checked(
      RuntimeStatus("cudaGraphLaunch", cudaGraphLaunch(static_cast<Graph&>(graph).get(), stream_)));
}

absl::Status Context::Mark() {
  if (marked_ == moments_.size()) {
    cudaEvent_t moment = nullptr;
    PF_CUDA_CALL(cudaEventCreate, &moment);
    moments_.push_back(moment);
  }
  PF_CUDA_CALL(cudaEventRecord, moments_[marked_], stream_);
  return absl::OkStatus();
}

absl::StatusOr<int> Context::MarkMoment() {
  PF_RETURN_IF_ERROR(Begin());
  PF_RETURN_IF_ERROR(Checked(Mark()));
  return static_cast<int>(marked_++);
}

absl::StatusOr<double> Context::MicrosecondsBetween(int first, int second) {
  PF_RETURN_IF_ERROR(Begin());
  const auto is_marked = [&](int moment) {
    return moment >= 0 && static_cast<size_t>(moment) < marked_;
  };
  if (!is_marked(first) || !is_marked(second)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected moments below ", marked_, ", got ", first, " and ", second));
  }
  float milliseconds = 0;
  PF_RETURN_IF_ERROR(Checked(
      RuntimeStatus("cudaEventElapsedTime",
                    cudaEventElapsedTime(&milliseconds, moments_[first], moments_[second]))));
  return 1000.0 * milliseconds;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceContext>> CreateContext(int ordinal) {
  auto context = std::make_unique<Context>(ordinal);
  PF_RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status LaunchError(Error error) {
  return RuntimeStatus("launch", static_cast<cudaError_t>(error));
}

}  // namespace pagefuse::cuda
