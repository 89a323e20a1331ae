// SPDX-License-Identifier: Apache-2.0
// Copies between pageable memory of the host and a GPU, through pinned memory: the runtime's own such copies take the GPU four to five
// times as long, and wait where ours need not.
#pragma once

#include <array>
#include <cstddef>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace pagefuse::cuda {

// Two pieces of pinned memory that are filled in turn, while the stream works on the other one.
class PinnedPieces {
 public:
  // What is pinned is given back with it: after the stream has done what it was asked.
  explicit PinnedPieces(size_t piece_bytes) : piece_bytes_(piece_bytes) {}
  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  // The call returns when `from` has been read.
  absl::Status CopyToDevice(void* to, const void* from, size_t bytes, cudaStream_t stream);
  // The call returns when `to` has been written.
  absl::Status CopyToHost(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  struct Piece {
    std::byte* data = nullptr;
    cudaEvent_t done = nullptr;  // what the stream was asked about this piece
    size_t used = 0;             // of CopyToDevice
  };

  // Pins both at their first use.
  absl::Status Pin();

  const size_t piece_bytes_;
  std::array<Piece, 2> pieces_;
  size_t filled_ = 0;  // the piece that CopyToDevice fills
};

}  // namespace pagefuse::cuda
