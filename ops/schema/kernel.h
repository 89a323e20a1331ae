// SPDX-License-Identifier: Apache-2.0
// Kernels: how an op is computed on a device, and what a kernel sees when it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/allocator.h"
#include "pagefuse/base/device.h"
#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse {

enum class Device { kCpu, kCuda };

// "cpu", "cuda"
std::string_view DeviceName(Device device);

// A tensor at run time: dense, row-major, memory owned by the executor or the caller; but for inputs
// that the op takes in blocks (PortSpec::InBlocks), and outputs in their memory. Data is null for an
// omitted tensor, and may be null for one without elements.
struct TensorArg {
  DataType dtype = DataType::kUndefined;
  std::vector<int64_t> dims;
  void* data = nullptr;
  int64_t block_stride = 0;  // bytes from an element of the first dim to the next; 0: dense

  bool present() const { return dtype != DataType::kUndefined; }
  int64_t size() const;
  // The stride, or the bytes of an element of the first dim.
  int64_t block_bytes() const;
  int64_t dim(int axis) const {
    return dims[axis < 0 ? axis + static_cast<int>(dims.size()) : axis];
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// What a kernel prepared once for its node: packed weights, tables, a oneDNN primitive. Used by one
// run at a time.
class KernelState {
 public:
  virtual ~KernelState() = default;
  // Bytes of copies it made of constants.
  virtual int64_t packed_bytes() const { return 0; }
};

// Which tokens of an engine's step are read and which written (docs/engine.md): runs of rows one behind
// the other, read where their sequence has more than one new token. A kernel may compute these and
// those by different arithmetic, as long as each has its own whatever else is in the step.
struct TokenRows {
  struct Run {
    int64_t begin = 0, end = 0;
    bool read = false;
  };
  std::vector<Run> runs;

  int64_t count() const { return runs.empty() ? 0 : runs.back().end; }
  // From where sequences begin among the tokens, [B + 1]. None if these do not ascend from 0: what reads
  // the input says so.
  static TokenRows Of(const int32_t* query_start_loc, int64_t sequences);
};

// Arguments of one kernel call. Outputs have the inferred shapes and are allocated; contents
// unspecified. An output that aliases an input (KV caches) has the same data pointer; an in-place
// output may have.
struct KernelArgs {
  const Node* node = nullptr;
  int64_t opset = 0;
  std::vector<TensorArg> inputs;
  std::vector<TensorArg> outputs;
  KernelState* state = nullptr;
  Scratch* scratch = nullptr;
  const TokenRows* tokens = nullptr;  // of the step; null where there is none
  // Of a kernel for a device: where it runs. Its inputs and outputs are the device's memory then.
  DeviceContext* device = nullptr;
  // Of such a kernel: inputs as the host has them, with null data for those that it does not know. It
  // knows what Kernel::host_inputs lists, constants of a few elements, and what a step was given.
  std::vector<TensorArg> on_host;
  // Where it says which index is out of range (Kernel::checks_indices), and as which step of the plan,
  // from 1.
  DeviceIndexError* index_error = nullptr;
  int step = 0;

  // An absent tensor for indices past the end.
  const TensorArg& input(int i) const;
  // As the host has it: the same as input(i) where no device is.
  const TensorArg& host_input(int i) const;
  const TensorArg& output(int i) const;
};

// What is known of a node before any run.
struct KernelQuery {
  const Node* node = nullptr;
  int64_t opset = 0;
  // Session option, for kernels that choose others: op name -> kernel name. May be null.
  const std::map<std::string, std::string>* force_kernel = nullptr;
  // That the kernel is to run on.
  Device device = Device::kCpu;
};

// Everything that `prepare` may read: constants among the inputs (null where an input is not
// constant).
struct PrepareArgs {
  KernelQuery query;
  std::vector<const Tensor*> constants;
  // Of the device: for what is kept of the constants.
  Allocator* allocator = &HostAllocator();
  DeviceContext* device = nullptr;  // where the kernel is for one
};

struct Kernel {
  std::string name;  // "reference", "hwy", "dnnl"
  Device device = Device::kCpu;
  // Types of the op's first type variable that it computes; empty: all that the schema allows.
  std::vector<DataType> dtypes = {};
  // Among the kernels that support a node the highest priority wins; "reference" has 0.
  int priority = 0;
  // Of a kernel for a device: inputs that it reads on the host, such as axes.
  std::vector<int> host_inputs = {};
  // Of such a kernel: it looks itself at indices that the host does not know. What is out of range it
  // neither reads nor writes with, and tells KernelArgs::index_error; the run that reads its results says
  // what the op's check would. Otherwise these are fetched and checked before it runs.
  bool checks_indices = false;
  // OK, or the reason why not ("head_dim 72 is not a multiple of 16"). Null: always OK.
  std::function<absl::Status(const KernelQuery&)> supports = {};
  // Called once a session, before the first run. May be null.
  std::function<absl::StatusOr<std::unique_ptr<KernelState>>(const PrepareArgs&)> prepare = {};
  // Computes the outputs. Shapes, types and values were checked (OpDef::InferShapes,
  // OpDef::Validate) before.
  std::function<absl::Status(KernelArgs&)> run = {};

  // Its name, and its device where that is not the CPU and not in the name: "hwy", "decode on cuda".
  std::string Description() const;
};

}  // namespace pagefuse
