#include "pagefuse/ir/absent_data.h"

#include <memory>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"

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

class AbsentData {
 public:
  void Visit(const Graph& graph) {
    for (const Value* value : graph.initializers()) {
      if (IsAbsent(*value->initializer())) Add(StrCat("initializer \"", value->name(), "\""));
    }
    for (const auto& node : graph.nodes()) {
      for (const auto& [name, attribute] : node->attributes()) Visit(*node, name, attribute);
      for (const Graph* subgraph : node->Subgraphs()) Visit(*subgraph);
    }
  }

  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(StrCat(
        first_, count_ == 1 ? "" : StrCat(" and ", count_ - 1, " others"),
        ": the data was left out of the text that the model was read from, or its file is not "
        "there"));
  }

 private:
  void Visit(const Node& node, std::string_view name, const Attribute& attribute) {
    const auto add = [&] { Add(StrCat(node.Description(), ": attribute \"", name, "\"")); };
    if (const auto* tensor = std::get_if<Tensor>(&attribute.value)) {
      if (IsAbsent(*tensor)) add();
    } else if (const auto* tensors = std::get_if<std::vector<Tensor>>(&attribute.value)) {
      for (const Tensor& item : *tensors) {
        if (IsAbsent(item)) add();
      }
    }
  }

  void Add(std::string place) {
    if (count_++ == 0) first_ = std::move(place);
  }

  int64_t count_ = 0;
  std::string first_;
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

absl::Status CheckDataPresent(const Model& model) {
  AbsentData absent;
  absent.Visit(*model.graph);
  for (const Function& function : model.functions) absent.Visit(*function.body);
  return absent.ToStatus();
}

}  // namespace pagefuse
