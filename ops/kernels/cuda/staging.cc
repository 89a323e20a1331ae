// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/cuda/staging.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/cuda/runtime_status.h"

namespace pagefuse::cuda {
namespace {

// By several threads where that is worth it: one does not keep up with the bus.
void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kPart = size_t{512} << 10;
  if (bytes <= 2 * kPart) {
    std::memcpy(to, from, bytes);
    return;
  }
  ParallelTasks(static_cast<int64_t>((bytes + kPart - 1) / kPart), [&](int64_t part) {
    const size_t begin = static_cast<size_t>(part) * kPart;
    std::memcpy(to + begin, from + begin, std::min(kPart, bytes - begin));
  });
}

}  // namespace

PinnedPieces::~PinnedPieces() {
  for (Piece& piece : pieces_) {
    if (piece.done != nullptr) (void)cudaEventDestroy(piece.done);
    if (piece.data != nullptr) (void)cudaFreeHost(piece.data);
  }
}

absl::Status PinnedPieces::Pin() {
  for (Piece& piece : pieces_) {
    if (piece.done == nullptr) {
      PF_CUDA_CALL(cudaEventCreateWithFlags, &piece.done, cudaEventDisableTiming);
    }
    if (piece.data != nullptr) continue;
    void* data = nullptr;
    PF_CUDA_CALL(cudaHostAlloc, &data, piece_bytes_, cudaHostAllocDefault);
    piece.data = static_cast<std::byte*>(data);
  }
  return absl::OkStatus();
}

absl::Status PinnedPieces::CopyToDevice(void* to, const void* from, size_t bytes,
                                        cudaStream_t stream) {
  constexpr size_t kAlignment = 64;
  PF_RETURN_IF_ERROR(Pin());
  for (size_t copied = 0; copied < bytes;) {
    Piece* piece = &pieces_[filled_];
    if (piece->used >= piece_bytes_) {
      filled_ = 1 - filled_;
      piece = &pieces_[filled_];
      // Of its last copies; an event that was never recorded is done.
      PF_CUDA_CALL(cudaEventSynchronize, piece->done);
      piece->used = 0;
    }
    const size_t part = std::min(bytes - copied, piece_bytes_ - piece->used);
    std::byte* staged = piece->data + piece->used;
    CopyBytes(staged, static_cast<const std::byte*>(from) + copied, part);
    PF_CUDA_CALL(cudaMemcpyAsync, static_cast<std::byte*>(to) + copied, staged, part,
                 cudaMemcpyHostToDevice, stream);
    piece->used += (part + kAlignment - 1) / kAlignment * kAlignment;
    // Of the last copy from a piece alone: what the stream is asked between small ones need not be waited for twice.
    if (piece->used >= piece_bytes_) PF_CUDA_CALL(cudaEventRecord, piece->done, stream);
    copied += part;
  }
  return absl::OkStatus();
}

absl::Status PinnedPieces::CopyToHost(void* to, const void* from, size_t bytes,
                                      cudaStream_t stream) {
  PF_RETURN_IF_ERROR(Pin());
  const auto piece_at = [&](size_t offset) -> Piece& { return pieces_[offset / piece_bytes_ % 2]; };
  const auto part_at = [&](size_t offset) { return std::min(piece_bytes_, bytes - offset); };
  size_t asked = 0;
  for (size_t copied = 0; copied < bytes; copied += part_at(copied)) {
    while (asked < bytes && asked - copied < 2 * piece_bytes_) {
      const Piece& piece = piece_at(asked);
      PF_CUDA_CALL(cudaMemcpyAsync, piece.data, static_cast<const std::byte*>(from) + asked,
                   part_at(asked), cudaMemcpyDeviceToHost, stream);
      PF_CUDA_CALL(cudaEventRecord, piece.done, stream);
      asked += part_at(asked);
    }
    const Piece& piece = piece_at(copied);
    PF_CUDA_CALL(cudaEventSynchronize, piece.done);
    CopyBytes(static_cast<std::byte*>(to) + copied, piece.data, part_at(copied));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::cuda
