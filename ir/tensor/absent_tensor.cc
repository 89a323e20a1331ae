// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/absent_tensor.h"

#include <memory>
#include <utility>

#include <sys/mman.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// Read-only zero pages that are only there when somebody reads them.
class AbsentBuffer : public Buffer {
 public:
  AbsentBuffer(std::byte* data, size_t size) : Buffer(data, size, /*writable=*/false) {}
  ~AbsentBuffer() override {
    if (size() > 0) munmap(data(), size());
  }
};

}  // namespace

absl::StatusOr<Tensor> AbsentTensor(DataType type, std::vector<int64_t> dims) {
  if (type == DataType::kString) return absl::InvalidArgumentError("strings cannot be left out");
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  void* data = nullptr;
  if (bytes > 0) {
    data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(StrCat("no address space for ", bytes, " bytes"));
    }
  }
  auto buffer =
      std::make_shared<AbsentBuffer>(static_cast<std::byte*>(data), static_cast<size_t>(bytes));
  return Tensor::View(type, std::move(dims), std::move(buffer));
}

bool IsAbsent(const Tensor& tensor) {
  return dynamic_cast<const AbsentBuffer*>(tensor.buffer().get()) != nullptr;
}

}  // namespace pagefuse
