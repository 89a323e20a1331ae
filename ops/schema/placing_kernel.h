// SPDX-License-Identifier: Apache-2.0
// Kernels that tell the shapes of their outputs while they run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse {

// Whoever runs a graph, to a kernel.
class OutputPlacer {
 public:
  virtual ~OutputPlacer() = default;
  // Gives output `output` of the call these dims, and memory: sets both in KernelArgs::outputs. Once
  // for each output.
  virtual absl::Status Place(int output, const std::vector<int64_t>& dims) = 0;
};

// What such a kernel prepared for its node; runs in place of Kernel::run. In the arguments an output
// has its type and no memory, and the shape that inference told, if it told one: what counts is what
// the kernel says.
class PlacingKernel : public KernelState {
 public:
  virtual absl::Status Run(KernelArgs& args, OutputPlacer& placer) = 0;
};

}  // namespace pagefuse
