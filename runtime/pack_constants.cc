// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/pack_constants.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/schema/packing.h"

namespace pagefuse {
namespace {

class Packer {
 public:
  explicit Packer(Allocator& allocator) : allocator_(allocator) {}

  void Visit(ExecutionPlan& plan) {
    for (PlannedStep& step : plan.steps) {
      if (auto* state = dynamic_cast<PackedConstants*>(step.state.get()))
        AddReaders(*step.node, *state);
      for (PlannedBody& body : step.bodies) Visit(*body.plan);
    }
  }

  absl::Status Run() {
    ProgressStage progress("packing weights", static_cast<int64_t>(order_.size()));
    int64_t packed = 0;
    for (const Memory& memory : order_) {
      progress.Reach(packed++);
      const Constant& constant = constants_[memory];
      std::vector<Order> done;
      for (const Reader& reader : constant.readers) {
        if (reader.port.reads_rows || std::ranges::count(done, reader.order) > 0) continue;
        PF_RETURN_IF_ERROR(Pack(constant, reader));
        done.push_back(reader.order);
      }
    }
    return absl::OkStatus();
  }

 private:
  // What packed memory is: matrices of other sizes on the same memory are packed otherwise.
  struct Order {
    const Packing* packing = nullptr;
    std::vector<int64_t> sizes;

    bool operator==(const Order&) const = default;
  };
  struct Reader {
    const Node* node = nullptr;
    PackedConstants* state = nullptr;
    PackedPort port;
    Order order;

    const Value* value() const { return node->input(port.port); }
  };
  // One memory, which several values may have in shapes of their own: a table of embeddings and a
  // tied head.
  struct Constant {
    std::vector<Value*> values;
    std::vector<Reader> readers;

    int64_t NumUses() const {
      int64_t uses = 0;
      for (const Value* value : values) uses += static_cast<int64_t>(value->uses().size());
      return uses;
    }
    bool IsOutput() const {
      return std::ranges::any_of(values, [](const Value* value) { return value->is_output(); });
    }
  };
  using Memory = std::pair<const void*, int64_t>;

  void AddReaders(const Node& node, PackedConstants& state) {
    for (const PackedPort& port : state.ports()) {
      Value* value = node.input(port.port);
      const Tensor& tensor = *value->initializer();
      Memory memory(tensor.data(), tensor.byte_size());
      if (tensor.byte_size() == 0) memory.first = value;  // nothing is shared
      Constant& constant = constants_[memory];
      if (constant.readers.empty()) order_.push_back(memory);
      if (std::ranges::count(constant.values, value) == 0) constant.values.push_back(value);
      Order order{port.packing, tensor.dims()};
      if (port.matrices.rows > 0) order.sizes = {port.matrices.count, port.matrices.rows};
      constant.readers.push_back({&node, &state, port, std::move(order)});
    }
  }

  // Packs the constant for all that take it as the first one does.
  absl::Status Pack(const Constant& constant, const Reader& first) {
    std::vector<const Reader*> takers;
    for (const Reader& reader : constant.readers) {
      if (reader.order == first.order) takers.push_back(&reader);
    }
    Tensor rows = *first.value()->initializer();
    const bool is_copy =
        static_cast<int64_t>(takers.size()) < constant.NumUses() || constant.IsOutput();
    if (!is_copy) {
      for (Value* value : constant.values) {
        PF_ASSIGN_OR_RETURN(Tensor absent, AbsentTensor(value->initializer()->dtype(),
                                                        value->initializer()->dims()));
        value->graph()->SetInitializer(value, std::move(absent));
      }
    }
    absl::StatusOr<Tensor> packed =
        first.port.packing->pack(std::move(rows), first.port.matrices, allocator_);
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          StrCat(first.node->Description(), ": weight \"", first.value()->name(),
                                 "\": ", StdView(packed.status().message())));
    }
    for (const Reader* taker : takers) {
      taker->state->Give(taker->port.port, *packed, is_copy);
    }
    return absl::OkStatus();
  }

  Allocator& allocator_;
  std::vector<Memory> order_;  // of the steps
  absl::flat_hash_map<Memory, Constant> constants_;
};

}  // namespace

absl::Status PackConstants(ExecutionPlan& plan) {
  Packer packer(*plan.allocator);
  packer.Visit(plan);
  return packer.Run();
}

}  // namespace pagefuse
