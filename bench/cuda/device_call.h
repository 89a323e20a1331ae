// SPDX-License-Identifier: Apache-2.0
// One call of an op's kernel on the GPU, on tensors of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda_bench {

// An input: random, or known to the host too, as starts, lengths and tables are. Neither: omitted.
struct CallInput {
  DataType dtype = DataType::kUndefined;
  std::vector<int64_t> dims = {};
  Fill fill = Fill::kBytes;
  Tensor known = {};
};
inline CallInput Random(DataType dtype, std::vector<int64_t> dims, Fill fill) {
  return {.dtype = dtype, .dims = std::move(dims), .fill = fill};
}
inline CallInput Known(const Tensor& tensor) {
  return {.dtype = tensor.dtype(), .dims = tensor.dims(), .known = tensor};
}
inline CallInput Int32s(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  return Known(Tensor::Of<int32_t>(std::move(dims), values));
}

struct CallSpec {
  std::string op;  // of the domain pagefuse
  std::vector<std::pair<std::string, AttributeValue>> attributes = {};
  std::vector<CallInput> inputs = {};
  int num_outputs = 1;
};

// The kernel that a session would choose. Ends the program where there is none, and on any error.
class DeviceCall {
 public:
  // `seed` makes other contents of random inputs.
  DeviceCall(const Gpu& gpu, const CallSpec& spec, uint32_t seed);
  // Queues the call; may be captured after it has run once.
  void Launch();

 private:
  void AddInputs(const Gpu& gpu, const CallSpec& spec, uint32_t seed);
  void AddOutputs(const Gpu& gpu, const CallSpec& spec);

  Graph graph_;
  Node* node_ = nullptr;
  std::vector<Tensor> known_;
  std::vector<Memory> memory_;
  const Kernel* kernel_ = nullptr;
  std::unique_ptr<KernelState> state_;
  std::unique_ptr<Scratch> scratch_;
  KernelArgs args_;
};

// Calls of the spec that take turns, on contents of their own, so many that they do not fit into the cache
// if each touches `bytes`.
Timing TimeCalls(const Gpu& gpu, const CallSpec& spec, size_t bytes);

}  // namespace pagefuse::cuda_bench
