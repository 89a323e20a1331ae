// SPDX-License-Identifier: Apache-2.0
#include "fake_context.h"

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/schema/packing.h"
#include "pagefuse/ops/schema/placing_kernel.h"

namespace pagefuse {
namespace {

constexpr size_t kAlignment = 256;

std::byte* Reserve(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PF_CHECK(data != MAP_FAILED);
  return static_cast<std::byte*>(data);
}

}  // namespace

VeiledMemory::VeiledMemory(size_t bytes) : size_(bytes), base_(Reserve(bytes)) {}

VeiledMemory::~VeiledMemory() { munmap(base_, size_); }

std::optional<MemoryRoom> VeiledMemory::Room() const {
  return MemoryRoom{.free = size_ - used(), .total = size_};
}

std::byte* VeiledMemory::Allocate(size_t bytes) {
  std::byte* data = nullptr;
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  {
    const std::lock_guard lock(mutex_);
    size_t offset = 0;
    for (const auto& [begin, taken] : taken_) {
      if (begin - offset >= rounded) break;
      offset = begin + taken;
    }
    if (rounded > size_ || offset > size_ - rounded) return nullptr;
    taken_[offset] = rounded;
    used_ += rounded;
    data = base_ + offset;
  }
  const Open open(*this);
  std::memset(data, 0, bytes);
  return data;
}

void VeiledMemory::Free(std::byte* data, size_t) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(static_cast<size_t>(data - base_));
  PF_CHECK(taken != taken_.end());
  used_ -= taken->second;
  taken_.erase(taken);
}

bool VeiledMemory::Holds(const void* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* byte = static_cast<const std::byte*>(data);
  if (byte < base_ || byte >= base_ + size_) return false;
  const auto offset = static_cast<size_t>(byte - base_);
  const auto after = taken_.upper_bound(offset);
  if (after == taken_.begin()) return false;
  const auto& [begin, taken] = *std::prev(after);
  return offset + bytes <= begin + taken;
}

size_t VeiledMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

VeiledMemory::Open::Open(VeiledMemory& memory) : memory_(memory) {
  const std::lock_guard lock(memory_.mutex_);
  if (memory_.opened_++ > 0) return;
  PF_CHECK(mprotect(memory_.base_, memory_.size_, PROT_READ | PROT_WRITE) == 0);
}

VeiledMemory::Open::~Open() {
  const std::lock_guard lock(memory_.mutex_);
  if (--memory_.opened_ > 0) return;
  PF_CHECK(mprotect(memory_.base_, memory_.size_, PROT_NONE) == 0);
}

absl::Status FakeContext::CopyToDevice(void* to, const void* from, size_t bytes) {
  PF_CHECK(captured_ == nullptr);
  PF_CHECK(memory_.Holds(to, bytes));
  PF_CHECK(!memory_.Holds(from, 1));
  const VeiledMemory::Open open(memory_);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status FakeContext::CopyToHost(void* to, const void* from, size_t bytes) {
  PF_CHECK(captured_ == nullptr);
  PF_CHECK(memory_.Holds(from, bytes));
  PF_CHECK(!memory_.Holds(to, 1));
  const VeiledMemory::Open open(memory_);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status FakeContext::CopyOnDevice(void* to, const void* from, size_t bytes) {
  return CopyRowsOnDevice(to, bytes, from, bytes, bytes, 1);
}

absl::Status FakeContext::CopyRowsOnDevice(void* to, size_t to_stride, const void* from,
                                           size_t from_stride, size_t bytes, int64_t rows) {
  return Do([=, this] {
    const VeiledMemory::Open open(memory_);
    for (int64_t i = 0; i < rows; ++i) {
      auto* out = static_cast<std::byte*>(to) + static_cast<size_t>(i) * to_stride;
      const auto* in = static_cast<const std::byte*>(from) + static_cast<size_t>(i) * from_stride;
      PF_CHECK(memory_.Holds(out, bytes) && memory_.Holds(in, bytes));
      std::memmove(out, in, bytes);
    }
    return absl::OkStatus();
  });
}

namespace {

struct FakeGraph final : DeviceGraph {
  std::vector<FakeContext::Work> works;
};

}  // namespace

absl::Status FakeContext::Do(Work work) {
  if (captured_ == nullptr) return work();
  captured_->push_back(std::move(work));
  return absl::OkStatus();
}

absl::Status FakeContext::BeginCapture() {
  PF_CHECK(captured_ == nullptr);
  captured_ = std::make_unique<std::vector<Work>>();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> FakeContext::EndCapture() {
  PF_CHECK(captured_ != nullptr);
  auto graph = std::make_unique<FakeGraph>();
  graph->works = *std::exchange(captured_, nullptr);
  return graph;
}

absl::Status FakeContext::Replay(DeviceGraph& graph) {
  PF_CHECK(captured_ == nullptr);
  for (const Work& work : static_cast<FakeGraph&>(graph).works) PF_RETURN_IF_ERROR(work());
  return absl::OkStatus();
}

namespace {

KernelQuery OnTheCpu(KernelQuery query) {
  query.device = Device::kCpu;
  return query;
}

absl::Status RunDecomposition(KernelArgs& args) {
  std::vector<Tensor> inputs;
  for (const TensorArg& arg : args.inputs) {
    inputs.emplace_back();
    if (!arg.present()) continue;
    const auto bytes = static_cast<size_t>(arg.size() * BitWidth(arg.dtype) / 8);
    PF_ASSIGN_OR_RETURN(inputs.back(),
                        Tensor::View(arg.dtype, arg.dims, Buffer::BorrowConst(arg.data, bytes)));
  }
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                      EvaluateNode(*args.node, args.opset, inputs, {}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!args.outputs[i].present() || outputs[i].byte_size() == 0) continue;
    PF_CHECK(outputs[i].size() == args.outputs[i].size());
    std::memcpy(args.outputs[i].data, outputs[i].data(),
                static_cast<size_t>(outputs[i].byte_size()));
  }
  return absl::OkStatus();
}

// What the CPU's kernel prepared, with the kernel; null: the decomposition.
class FakeState final : public KernelState {
 public:
  FakeState(const Kernel* kernel, std::unique_ptr<KernelState> state)
      : kernel_(kernel), state_(std::move(state)) {}

  absl::Status Run(const KernelArgs& args) {
    auto& device = *static_cast<FakeContext*>(args.device->queue());
    KernelArgs call = args;
    call.state = state_.get();
    return device.Do([this, &device, call] {
      KernelArgs again = call;
      return RunNow(device.memory(), again);
    });
  }

 private:
  absl::Status RunNow(VeiledMemory& memory, KernelArgs& call) {
    const VeiledMemory::Open open(memory);
    for (const auto* list : {&call.inputs, &call.outputs}) {
      for (const TensorArg& arg : *list) {
        if (arg.data != nullptr && arg.size() > 0) PF_CHECK(memory.Holds(arg.data, 1));
      }
    }
    return kernel_ == nullptr ? RunDecomposition(call) : kernel_->run(call);
  }

  const Kernel* kernel_;
  std::unique_ptr<KernelState> state_;
};

Kernel FakeKernel(const OpRegistry& registry) {
  const auto choose = [&registry](const KernelQuery& query) {
    return ChooseKernel(OnTheCpu(query), "", registry);
  };
  Kernel kernel{.name = "fake", .device = Device::kCuda, .priority = 1000};
  kernel.supports = [choose](const KernelQuery& query) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const KernelChoice choice, choose(query));
    if (choice.kernel == nullptr && choice.op->bodies() != nullptr) {
      return absl::UnimplementedError("it runs graphs");
    }
    if (choice.kernel == nullptr) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(const auto state, PrepareState(OnTheCpu(query), *choice.kernel));
    if (dynamic_cast<PlacingKernel*>(state.get()) == nullptr) return absl::OkStatus();
    return absl::UnimplementedError("it tells shapes while it runs");
  };
  kernel.prepare =
      [choose](const PrepareArgs& args) -> absl::StatusOr<std::unique_ptr<KernelState>> {
    PF_ASSIGN_OR_RETURN(const KernelChoice choice, choose(args.query));
    if (choice.kernel == nullptr) return std::make_unique<FakeState>(nullptr, nullptr);
    // The CPU's kernels have copies of constants of their own: nothing here is measured.
    PF_ASSIGN_OR_RETURN(auto state, PrepareKernel(OnTheCpu(args.query), *choice.kernel));
    return std::make_unique<FakeState>(choice.kernel, std::move(state));
  };
  kernel.run = [](KernelArgs& args) { return static_cast<FakeState*>(args.state)->Run(args); };
  return kernel;
}

}  // namespace

OpRegistry WithFakeKernels() {
  const OpRegistry& global = OpRegistry::Global();  // is never freed
  OpRegistry registry = global;
  std::string last;
  for (const OpDef* op : global.ops()) {
    const std::string name = StrCat(op->domain(), ".", op->name());
    if (name == last || (op->kernels().empty() && op->bodies() != nullptr)) continue;
    last = name;
    const absl::Status added = registry.AddKernel(op->domain(), op->name(), FakeKernel(global));
    PF_CHECK(added.ok());
  }
  return registry;
}

}  // namespace pagefuse
