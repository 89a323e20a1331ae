// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/native_kernel.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/loader/host_table.h"
#include "pagefuse/plugin/loader/node_view.h"

namespace pagefuse {
namespace {

// What `prepare` made.
class NativeState : public KernelState {
 public:
  NativeState(void* state, void (*release)(void*, void*), void* user)
      : state_(state), release_(release), user_(user) {}
  ~NativeState() override {
    if (release_ != nullptr) release_(user_, state_);
  }
  NativeState(const NativeState&) = delete;
  NativeState& operator=(const NativeState&) = delete;
  void* state() const { return state_; }

 private:
  void* state_;
  void (*release_)(void*, void*);
  void* user_;
};

bool IsName(const char* name) {
  if (name == nullptr || *name == '\0') return false;
  return std::all_of(name, name + std::string_view(name).size(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

absl::StatusOr<std::vector<DataType>> TypesOf(const pf_kernel& from) {
  std::vector<DataType> types;
  for (size_t i = 0; i < from.num_dtypes; ++i) {
    const std::optional<DataType> type = DataTypeFromCode(from.dtypes[i]);
    if (!type) {
      return absl::InvalidArgumentError(StrCat("kernel \"", std::string_view(from.name),
                                               "\": there is no type ", from.dtypes[i]));
    }
    types.push_back(*type);
  }
  return types;
}

absl::StatusOr<std::unique_ptr<KernelState>> Prepare(const pf_host* host, const pf_kernel& from,
                                                     const PrepareArgs& args) {
  const pf_node node(args.query);
  void* state = nullptr;
  const absl::Status status =
      RunCallback([&] { return from.prepare(from.user, host, &node, &state); });
  PF_RETURN_IF_ERROR(AtPlace(args.query.node->Description(), status));
  return std::make_unique<NativeState>(state, from.release, from.user);
}

absl::Status Supports(const pf_host* host, const pf_kernel& from, const KernelQuery& query) {
  const pf_node node(query);
  return RunCallback([&] { return from.supports(from.user, host, &node); });
}

absl::Status Run(const pf_host* host, const pf_kernel& from, const KernelArgs& args) {
  const pf_node node(args);
  const auto* state = static_cast<const NativeState*>(args.state);
  void* prepared = state == nullptr ? nullptr : state->state();
  return AtPlace(args.node->Description(),
                 RunCallback([&] { return from.run(from.user, host, &node, prepared); }));
}

}  // namespace

absl::StatusOr<Kernel> MakeNativeKernel(const pf_host* host, const pf_kernel& from) {
  if (from.name == nullptr || *from.name == '\0') {
    return absl::InvalidArgumentError("a kernel has no name");
  }
  if (from.run == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("kernel \"", std::string_view(from.name), "\" has no function `run`"));
  }
  Kernel kernel{.name = from.name, .priority = from.priority};
  PF_ASSIGN_OR_RETURN(kernel.dtypes, TypesOf(from));
  if (from.supports != nullptr) {
    kernel.supports = [host, from](const KernelQuery& query) {
      return Supports(host, from, query);
    };
  }
  if (from.prepare != nullptr) {
    kernel.prepare = [host, from](const PrepareArgs& args) { return Prepare(host, from, args); };
  }
  kernel.run = [host, from](KernelArgs& args) { return Run(host, from, args); };
  return kernel;
}

absl::StatusOr<std::shared_ptr<const ConditionFunction>> MakeNativeCondition(
    const pf_host* host, const pf_condition& from) {
  if (!IsName(from.name)) {
    return absl::InvalidArgumentError(
        "the name of a condition has lower-case letters, digits and _ alone");
  }
  const std::string name = from.name;
  if (from.holds == nullptr || from.num_values < 1) {
    return absl::InvalidArgumentError(
        StrCat("condition \"", name, "\" has no function `holds`, or takes no value"));
  }
  const auto run = [host, from](const std::vector<const Value*>& values,
                                int64_t number) -> ConditionValue {
    std::vector<std::vector<int64_t>> dims(values.size());
    std::vector<pf_tensor> tensors;
    for (size_t i = 0; i < values.size(); ++i) tensors.push_back(TensorOf(values[i], dims[i]));
    std::vector<const pf_tensor*> pointers;
    for (const pf_tensor& tensor : tensors) pointers.push_back(&tensor);
    bool holds = false;
    const absl::Status status = RunCallback([&] {
      holds = from.holds(from.user, host, pointers.data(), number) == 1;
      return PF_OK;
    });
    return status.ok() && holds;
  };
  return std::make_shared<const ConditionFunction>(
      ConditionFunction{name, from.num_values, from.takes_number != 0, run});
}

}  // namespace pagefuse
