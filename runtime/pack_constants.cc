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
    ProgressStage progress("packing weights", static_cast<int64_t>(constants_.size()));
    int64_t packed = 0;
    for (Value* constant : constants_) {
      progress.Reach(packed++);
      std::vector<const Packing*> done;
      for (const auto& [node, state, port] : readers_[constant]) {
        if (port.reads_rows || std::ranges::count(done, port.packing) > 0) continue;
        PF_RETURN_IF_ERROR(Pack(constant, *port.packing, *node));
        done.push_back(port.packing);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Reader {
    const Node* node = nullptr;
    PackedConstants* state = nullptr;
    PackedPort port;
  };

  void AddReaders(const Node& node, PackedConstants& state) {
    for (const PackedPort& port : state.ports()) {
      Value* constant = node.input(port.port);
      std::vector<Reader>& readers = readers_[constant];
      if (readers.empty()) constants_.push_back(constant);
      readers.push_back({&node, &state, port});
    }
  }

  // Packs the constant for all that take it so; `node` is the first.
  absl::Status Pack(Value* constant, const Packing& packing, const Node& node) {
    std::vector<const Reader*> takers;
    for (const Reader& reader : readers_[constant]) {
      if (reader.port.packing == &packing) takers.push_back(&reader);
    }
    Tensor rows = *constant->initializer();
    const bool is_copy = takers.size() < constant->uses().size() || constant->is_output();
    if (!is_copy) {
      PF_ASSIGN_OR_RETURN(Tensor absent, AbsentTensor(rows.dtype(), rows.dims()));
      constant->graph()->SetInitializer(constant, std::move(absent));
    }
    absl::StatusOr<Tensor> packed = packing.pack(std::move(rows), allocator_);
    if (!packed.ok()) {
      return absl::Status(packed.status().code(),
                          StrCat(node.Description(), ": weight \"", constant->name(),
                                 "\": ", StdView(packed.status().message())));
    }
    for (const Reader* taker : takers) {
      taker->state->Give(taker->port.port, *packed, is_copy);
    }
    return absl::OkStatus();
  }

  Allocator& allocator_;
  std::vector<Value*> constants_;  // in the order of the steps
  absl::flat_hash_map<const Value*, std::vector<Reader>> readers_;
};

}  // namespace

absl::Status PackConstants(ExecutionPlan& plan) {
  Packer packer(*plan.allocator);
  packer.Visit(plan);
  return packer.Run();
}

}  // namespace pagefuse
