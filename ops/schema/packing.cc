// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/packing.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

PackedConstants::PrepareFn PackedConstants::Prepare(std::vector<PackedPort> ports) {
  return [ports = std::move(ports)](
             const PrepareArgs& args) -> absl::StatusOr<std::unique_ptr<KernelState>> {
    std::vector<PackedPort> constant = ports;
    std::erase_if(constant, [&](const PackedPort& port) {
      return port.port >= static_cast<int>(args.constants.size()) ||
             args.constants[port.port] == nullptr;
    });
    return std::make_unique<PackedConstants>(std::move(constant));
  };
}

void PackedConstants::Give(int port, Tensor packed, bool is_copy) {
  if (is_copy) copied_bytes_ += packed.byte_size();
  packed_.insert_or_assign(port, std::move(packed));
}

const Tensor* PackedConstants::Find(int port) const {
  const auto it = packed_.find(port);
  return it == packed_.end() ? nullptr : &it->second;
}

absl::Status PackedCopies::GiveTo(KernelState* state, const Node& node) {
  auto* packed = dynamic_cast<PackedConstants*>(state);
  if (packed == nullptr) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const PackedPort& port : packed->ports()) {
    if (port.reads_rows) continue;
    Tensor& copy = copies_[{port.port, port.packing}];
    if (!copy.defined()) {
      PF_ASSIGN_OR_RETURN(copy, port.packing->pack(*node.input(port.port)->initializer(),
                                                   port.matrices, HostAllocator()));
    }
    packed->Give(port.port, copy, /*is_copy=*/true);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareState(const KernelQuery& query,
                                                          const Kernel& kernel,
                                                          Allocator* allocator,
                                                          DeviceContext* device) {
  if (!kernel.prepare) return nullptr;
  PrepareArgs args{.query = query, .constants = {}, .allocator = allocator, .device = device};
  for (const Value* input : query.node->inputs()) {
    const bool constant = input != nullptr && input->IsConstant();
    args.constants.push_back(constant ? input->initializer() : nullptr);
  }
  return kernel.prepare(args);
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareKernel(const KernelQuery& query,
                                                           const Kernel& kernel) {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<KernelState> state, PrepareState(query, kernel));
  PackedCopies copies;
  PF_RETURN_IF_ERROR(copies.GiveTo(state.get(), *query.node));
  return state;
}

}  // namespace pagefuse
