// SPDX-License-Identifier: Apache-2.0
// What launchers of device kernels take and give. Headers of this folder that hosts include name no CUDA header.
#pragma once

struct CUstream_st;

namespace pagefuse::cuda {

// A cudaStream_t.
using Stream = CUstream_st*;

// A cudaError_t: 0 is success. That of the launch alone; what fails in a kernel is told by whoever waits for the stream.
using Error = int;

// Of the current device.
int Multiprocessors();

}  // namespace pagefuse::cuda
