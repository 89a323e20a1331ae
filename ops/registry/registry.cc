// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/registry/registry.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/registry/builtin_ops.h"
#include "pagefuse/ops/registry/function_expansion.h"
#include "pagefuse/ops/registry/refused_ops.h"

namespace pagefuse {
namespace {

using Key = std::tuple<std::string_view, std::string_view, int64_t>;

Key KeyOf(const OpDef& op) { return {op.domain(), op.name(), op.since()}; }

bool KeyLess(const std::shared_ptr<const OpDef>& op, const Key& key) { return KeyOf(*op) < key; }

bool IsBefore(int64_t opset, const OpDef* op) { return opset < op->since(); }

// The type variable of the op's ports that kernels are chosen by, at this node; undefined if
// unknown.
DataType KernelType(const OpDef& op, const Node& node) {
  if (op.types().empty()) return DataType::kUndefined;
  const std::string& variable = op.types().front().first;
  for (size_t i = 0; i < op.inputs().size(); ++i) {
    const Value* value = node.input(static_cast<int>(i));
    if (op.inputs()[i].type == variable && value != nullptr) return value->dtype();
  }
  for (size_t i = 0; i < op.outputs().size(); ++i) {
    const Value* value = node.output(static_cast<int>(i));
    if (op.outputs()[i].type == variable && value != nullptr) return value->dtype();
  }
  return DataType::kUndefined;
}

absl::Status Supports(const Kernel& kernel, const KernelQuery& query, DataType type) {
  const bool has_type = kernel.dtypes.empty() || type == DataType::kUndefined ||
                        std::ranges::find(kernel.dtypes, type) != kernel.dtypes.end();
  if (!has_type) {
    return absl::UnimplementedError(
        absl::StrCat("does not compute ", std::string(DataTypeName(type))));
  }
  return kernel.supports ? kernel.supports(query) : absl::OkStatus();
}

// Unimplemented if the value has a type that the op's port does not take.
absl::Status VerifyType(const OpDef& op, const Port& port, const Value* value) {
  if (value == nullptr || value->dtype() == DataType::kUndefined) return absl::OkStatus();
  for (const auto& [variable, types] : op.types()) {
    if (variable != port.type) continue;
    if (std::find(types.begin(), types.end(), value->dtype()) != types.end()) continue;
    return absl::UnimplementedError(absl::StrCat("\"", port.name, "\": type ",
                                                 std::string(DataTypeName(value->dtype())),
                                                 " is not supported"));
  }
  return absl::OkStatus();
}

absl::Status VerifyNodeTypes(const Node& node, const OpDef& op) {
  const auto place = [&](const char* what, size_t i, const absl::Status& status) {
    if (status.ok()) return status;
    return absl::UnimplementedError(
        absl::StrCat(node.Description(), ": ", what, " ", i, " ", status.message()));
  };
  for (size_t i = 0; i < op.inputs().size(); ++i) {
    const Value* value = node.input(static_cast<int>(i));
    PF_RETURN_IF_ERROR(place("input", i, VerifyType(op, op.inputs()[i], value)));
  }
  for (size_t i = 0; i < op.outputs().size(); ++i) {
    const Value* value = node.output(static_cast<int>(i));
    PF_RETURN_IF_ERROR(place("output", i, VerifyType(op, op.outputs()[i], value)));
  }
  return absl::OkStatus();
}

// A declaration of ours that is wrong ends the program, and says why.
void AddBuiltIn(OpRegistry& ops, OpDef op) {
  const absl::Status status = ops.Add(std::move(op));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  PF_CHECK(status.ok());
}

// What node checks need of the model or function that the node is in.
struct Imports {
  const Model& model;
  const FunctionIndex& functions;
  const std::map<std::string, int64_t>& versions;
  const OpRegistry& registry;

  int64_t Version(const std::string& domain) const {
    const auto it = versions.find(domain);
    if (it != versions.end()) return it->second;
    return model.OpsetVersion(domain);
  }
};

absl::Status VerifyGraph(const Graph& graph, const Imports& imports) {
  for (const Value* input : graph.inputs()) {
    if (input->type_proto.empty()) continue;
    return absl::UnimplementedError(absl::StrCat("input \"", input->name(),
                                                 "\" is no tensor; out of scope: sequences and "
                                                 "optionals"));
  }
  for (const auto& node : graph.nodes()) {
    const int64_t opset = imports.Version(node->domain());
    const OpDef* op = imports.registry.Find(node->domain(), node->op_type(), opset);
    if (op == nullptr && imports.functions.Find(*node) == nullptr) {
      return UnknownOp(*node, opset, imports.registry);
    }
    if (op != nullptr) PF_RETURN_IF_ERROR(VerifyNodeTypes(*node, *op));
    for (const Graph* subgraph : node->Subgraphs()) {
      PF_RETURN_IF_ERROR(VerifyGraph(*subgraph, imports));
    }
  }
  return absl::OkStatus();
}

OpRegistry BuiltInOps() {
  OpRegistry ops;
#define PF_OP(family, op) AddBuiltIn(ops, family##_ops::op##Def());
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP
  AddCudaKernels(ops);
  return ops;
}

// What Global() is, and was.
struct Snapshots {
  std::vector<std::unique_ptr<const OpRegistry>> all;
  std::atomic<const OpRegistry*> current = nullptr;

  void Add(OpRegistry registry) {
    all.push_back(std::make_unique<const OpRegistry>(std::move(registry)));
    current.store(all.back().get(), std::memory_order_release);
  }
};

Snapshots& AllSnapshots() {
  static auto* snapshots = [] {
    auto* made = new Snapshots;
    made->Add(BuiltInOps());
    return made;
  }();
  return *snapshots;
}

thread_local const OpRegistry* tried_registry = nullptr;

}  // namespace

const OpRegistry& OpRegistry::Global() {
  if (tried_registry != nullptr) return *tried_registry;
  return *AllSnapshots().current.load(std::memory_order_acquire);
}

void OpRegistry::Publish(OpRegistry next) { AllSnapshots().Add(std::move(next)); }

absl::Status OpRegistry::Add(OpDef op) {
  const auto it = std::lower_bound(ops_.begin(), ops_.end(), KeyOf(op), KeyLess);
  if (it != ops_.end() && KeyOf(**it) == KeyOf(op)) {
    return absl::InvalidArgumentError(absl::StrCat("op \"", op.name(), "\" of domain \"",
                                                   op.domain(), "\", version ", op.since(),
                                                   ", is already registered"));
  }
  PF_RETURN_IF_ERROR(op.Compile());
  Index(ops_.insert(it, std::make_shared<const OpDef>(std::move(op)))->get());
  return absl::OkStatus();
}

void OpRegistry::Index(const OpDef* op) {
  std::vector<const OpDef*>& versions = versions_[{op->domain(), op->name()}];
  versions.insert(std::upper_bound(versions.begin(), versions.end(), op->since(), IsBefore), op);
}

absl::Status OpRegistry::AddKernel(std::string_view domain, std::string_view name,
                                   const Kernel& kernel) {
  const auto first = std::lower_bound(ops_.begin(), ops_.end(), Key(domain, name, 0), KeyLess);
  auto last = first;
  for (; last != ops_.end() && (*last)->domain() == domain && (*last)->name() == name; ++last) {
    for (const Kernel& known : (*last)->kernels()) {
      if (known.name != kernel.name) continue;
      return absl::InvalidArgumentError(absl::StrCat("op \"", std::string(name), "\" of domain \"",
                                                     std::string(domain), "\" has a kernel \"",
                                                     kernel.name, "\" already"));
    }
  }
  if (first == last) {
    return absl::InvalidArgumentError(absl::StrCat("there is no op \"", std::string(name),
                                                   "\" in domain \"", std::string(domain), "\""));
  }
  // The key lies in a definition that goes.
  versions_.erase(std::pair(domain, name));
  for (auto op = first; op != last; ++op) {
    OpDef extended = **op;
    extended.AddKernel(kernel);
    *op = std::make_shared<const OpDef>(std::move(extended));
    Index(op->get());
  }
  return absl::OkStatus();
}

ScopedOpRegistry::ScopedOpRegistry(const OpRegistry& registry) : before_(tried_registry) {
  tried_registry = &registry;
}

ScopedOpRegistry::~ScopedOpRegistry() { tried_registry = before_; }

const OpDef* OpRegistry::Find(std::string_view domain, std::string_view name, int64_t opset) const {
  if (domain == "ai.onnx") domain = "";
  const auto found = versions_.find(std::pair(domain, name));
  if (found == versions_.end()) return nullptr;
  const std::vector<const OpDef*>& versions = found->second;
  const auto newer = std::upper_bound(versions.begin(), versions.end(), opset, IsBefore);
  return newer == versions.begin() ? nullptr : *std::prev(newer);
}

std::vector<const OpDef*> OpRegistry::ops() const {
  std::vector<const OpDef*> result;
  for (const auto& op : ops_) result.push_back(op.get());
  return result;
}

absl::Status VerifyOps(const Model& model, const OpRegistry& registry) {
  PF_RETURN_IF_ERROR(CheckExpansion(model, registry));
  const FunctionIndex functions(model.functions);
  PF_RETURN_IF_ERROR(VerifyGraph(*model.graph, {model, functions, model.opset_imports, registry}));
  for (const Function& function : model.functions) {
    // A function whose op is known is not run as its body.
    const int64_t opset = model.OpsetVersion(function.domain);
    if (registry.Find(function.domain, function.name, opset) != nullptr) continue;
    PF_RETURN_IF_ERROR(
        VerifyGraph(*function.body, {model, functions, function.opset_imports, registry}));
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelChoice> ChooseKernel(const KernelQuery& query, std::string_view force,
                                          const OpRegistry& registry) {
  const Node& node = *query.node;
  KernelChoice choice;
  choice.op = registry.Find(node.domain(), node.op_type(), query.opset);
  if (choice.op == nullptr) return UnknownOp(node, query.opset, registry);
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : choice.op->kernels()) kernels.push_back(&kernel);
  std::stable_sort(kernels.begin(), kernels.end(), [force](const Kernel* a, const Kernel* b) {
    const bool a_forced = !force.empty() && a->name == force;
    const bool b_forced = !force.empty() && b->name == force;
    return std::tuple(a_forced, a->priority) > std::tuple(b_forced, b->priority);
  });
  const DataType type = KernelType(*choice.op, node);
  for (const Kernel* kernel : kernels) {
    if (kernel->device != query.device) continue;
    const absl::Status supported = Supports(*kernel, query, type);
    if (supported.ok()) {
      choice.kernel = kernel;
      return choice;
    }
    choice.refusals.push_back(absl::StrCat(kernel->Description(), ": ", supported.message()));
  }
  if (choice.op->has_decomposition() || choice.op->bodies()) return choice;
  std::string reasons;
  for (const std::string& refusal : choice.refusals) absl::StrAppend(&reasons, "; ", refusal);
  return absl::UnimplementedError(absl::StrCat(node.Description(), ": no kernel", reasons));
}

}  // namespace pagefuse
