// SPDX-License-Identifier: Apache-2.0
// Constants in an order of a kernel's own, such as the blocks of a matrix unit. A graph holds rows;
// what prepares a kernel packs them, once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse {

// The matrices of a constant, one behind the other, where an order needs more than its shape tells.
struct PackedMatrices {
  int64_t count = 1, rows = 0;  // rows of each
};

struct Packing {
  std::string_view name;
  // The constant in that order in memory of `allocator`, on the threads of the call. It takes the
  // tensor over: the host's memory that nobody else holds is used again where the order allows it,
  // pages of a mapped file go back as they are read. ResourceExhausted if there is no memory.
  absl::StatusOr<Tensor> (*pack)(Tensor constant, const PackedMatrices& matrices,
                                 Allocator& allocator);
};

// An input whose constant a kernel reads packed.
struct PackedPort {
  int port = 0;
  const Packing* packing = nullptr;
  // It reads rows as well, and takes what another node's kernel needs packed: memory holds one copy.
  bool reads_rows = false;
  PackedMatrices matrices = {};
};

// The state of a kernel with such inputs. `prepare` says which they are; whoever calls it then gives
// them: a session from what the graph held (runtime/pack_constants.h), others by PackedCopies.
class PackedConstants : public KernelState {
 public:
  explicit PackedConstants(std::vector<PackedPort> ports) : ports_(std::move(ports)) {}
  // Kernel::prepare for those of the ports that are constants.
  using PrepareFn = std::function<absl::StatusOr<std::unique_ptr<KernelState>>(const PrepareArgs&)>;
  static PrepareFn Prepare(std::vector<PackedPort> ports);

  const std::vector<PackedPort>& ports() const { return ports_; }
  // `is_copy`: the constant is in memory beside it.
  void Give(int port, Tensor packed, bool is_copy);
  // Null where the kernel is to read rows.
  const Tensor* Find(int port) const;
  int64_t packed_bytes() const override { return copied_bytes_; }

 private:
  std::vector<PackedPort> ports_;
  std::map<int, Tensor> packed_;
  int64_t copied_bytes_ = 0;
};

// Packed copies of one node's constants, made once for all states. Any number of threads may ask.
class PackedCopies {
 public:
  absl::Status GiveTo(KernelState* state, const Node& node);

 private:
  std::mutex mutex_;
  std::map<std::pair<int, const Packing*>, Tensor> copies_;
};

// What the kernel prepares for the node, null if that is nothing; without packed constants yet.
absl::StatusOr<std::unique_ptr<KernelState>> PrepareState(const KernelQuery& query,
                                                          const Kernel& kernel,
                                                          Allocator* allocator = &HostAllocator(),
                                                          DeviceContext* device = nullptr);
// The same with packed copies, for a node that no session plans.
absl::StatusOr<std::unique_ptr<KernelState>> PrepareKernel(const KernelQuery& query,
                                                           const Kernel& kernel);

}  // namespace pagefuse
