// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/node_view.h"

#include <optional>

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/default_attribute.h"

namespace pagefuse {
namespace {

constexpr pf_tensor kOmitted = {PF_UNDEFINED, -1, nullptr, nullptr};

pf_tensor TensorOfArg(const TensorArg& arg) {
  if (!arg.present()) return kOmitted;
  return {static_cast<pf_dtype>(arg.dtype), static_cast<int32_t>(arg.dims.size()), arg.dims.data(),
          arg.data};
}

}  // namespace

pf_tensor TensorOf(const Value* value, std::vector<int64_t>& dims) {
  if (value == nullptr) return kOmitted;
  pf_tensor tensor = {static_cast<pf_dtype>(value->dtype()), -1, nullptr, nullptr};
  if (value->shape()) {
    for (const Dim& dim : value->shape()->dims()) dims.push_back(dim.constant().value_or(-1));
    tensor.rank = value->shape()->rank();
    tensor.dims = dims.data();
  }
  if (value->IsConstant() && !IsAbsent(*value->initializer())) {
    tensor.data = const_cast<void*>(value->initializer()->data());
  }
  return tensor;
}

}  // namespace pagefuse

pf_node::pf_node(const pagefuse::KernelQuery& query) : node_(*query.node), opset_(query.opset) {
  dims_.resize(static_cast<size_t>(node_.num_inputs()) + static_cast<size_t>(node_.num_outputs()));
  auto dims = dims_.begin();
  for (const pagefuse::Value* value : node_.inputs()) {
    inputs_.push_back(pagefuse::TensorOf(value, *dims++));
  }
  for (const pagefuse::Value* value : node_.outputs()) {
    outputs_.push_back(pagefuse::TensorOf(value, *dims++));
  }
}

pf_node::pf_node(const pagefuse::KernelArgs& args)
    : node_(*args.node), opset_(args.opset), scratch_(args.scratch) {
  for (const pagefuse::TensorArg& arg : args.inputs) inputs_.push_back(pagefuse::TensorOfArg(arg));
  for (const pagefuse::TensorArg& arg : args.outputs)
    outputs_.push_back(pagefuse::TensorOfArg(arg));
}

const pf_tensor* pf_node::input(int32_t index) const {
  return index >= 0 && index < num_inputs() ? &inputs_[static_cast<size_t>(index)]
                                            : &pagefuse::kOmitted;
}

const pf_tensor* pf_node::output(int32_t index) const {
  return index >= 0 && index < num_outputs() ? &outputs_[static_cast<size_t>(index)]
                                             : &pagefuse::kOmitted;
}

const pf_tensor* pf_node::constant(int32_t index) const {
  const pagefuse::Value* value = index < 0 ? nullptr : node_.input(index);
  const bool is_constant =
      value != nullptr && value->IsConstant() && !pagefuse::IsAbsent(*value->initializer());
  return is_constant ? input(index) : nullptr;
}

const pagefuse::Attribute* pf_node::attribute(const std::string& name) const {
  if (const pagefuse::Attribute* given = node_.attribute(name)) return given;
  for (const auto& [known, value] : defaults_) {
    if (known == name) return &value;
  }
  const pagefuse::OpDef* op =
      pagefuse::OpRegistry::Global().Find(node_.domain(), node_.op_type(), opset_);
  std::optional<pagefuse::Attribute> value;
  if (op != nullptr) value = pagefuse::DefaultAttribute(*op, name);
  if (!value) return nullptr;
  return &defaults_.emplace_back(name, *std::move(value)).second;
}

void* pf_node::Scratch(size_t size) const {
  return scratch_ == nullptr ? nullptr : scratch_->Get(size, scratch_slots_++);
}
