// SPDX-License-Identifier: Apache-2.0
// The limits on what one run of a model may use before it ends in ResourceExhausted.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

struct RunLimits {
  int64_t max_tensor_bytes = int64_t{16} << 30;  // of one tensor that a node makes
  // Runs of the graphs of If, Loop and Scan, all of them together: a Loop may say that it never
  // ends.
  int64_t max_body_runs = int64_t{1} << 20;
};

// ResourceExhausted naming the node if an output of that size is over the limit.
absl::Status CheckTensorBytes(const Node& node, int output, int64_t bytes, const RunLimits& limits);
// Counts one more run of a graph of `node`; ResourceExhausted naming it if that is too many.
absl::Status CountBodyRun(const Node& node, const RunLimits& limits, int64_t& body_runs);

// ResourceExhausted naming the node, of which a kernel got no memory for what it works with.
absl::Status NoMemoryForKernel(const Node& node);
// What `run` gives, or that. What kernels work with beside their outputs is as large as inputs say.
template <typename Run>
absl::Status WithinMemory(const Node& node, const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return NoMemoryForKernel(node);
  } catch (const std::length_error&) {
    return NoMemoryForKernel(node);
  }
}

}  // namespace pagefuse
