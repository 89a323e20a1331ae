// SPDX-License-Identifier: Apache-2.0
#include "op_call.h"

#include <cstring>
#include <numeric>
#include <optional>

#include "peaks.h"

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/packing.h"

namespace pagefuse {
namespace {

const OpDef& FindOp(std::string_view domain, std::string_view op, int64_t opset) {
  const OpDef* found = OpRegistry::Global().Find(domain, op, opset);
  PF_CHECK(found != nullptr);
  return *found;
}

// The port of input or output `i`: the last one repeats where it is variadic.
const Port& PortOf(const std::vector<Port>& ports, size_t i) {
  return ports[std::min(i, ports.size() - 1)];
}

}  // namespace

OpCall::OpCall(const OpDef& op, int64_t opset) : op_(op), opset_(opset) {}
OpCall::OpCall(std::string_view op) : OpCall(FindOp("pagefuse", op, 1), 1) {}
OpCall::OpCall(std::string_view domain, std::string_view op, int64_t opset)
    : OpCall(FindOp(domain, op, opset), opset) {}

void* OpCall::AddInput(DataType type, const std::vector<int64_t>& dims) {
  PF_CHECK(node_ == nullptr);
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(type, dims);
  PF_CHECK(tensor.ok());
  inputs_.push_back(*std::move(tensor));
  args_.inputs.push_back({type, dims, inputs_.back().mutable_data()});
  return args_.inputs.back().data;
}

void OpCall::Omit() {
  inputs_.emplace_back();
  args_.inputs.emplace_back();
}

void OpCall::Normal(DataType type, const std::vector<int64_t>& dims, float deviation) {
  // A few thousand different numbers, repeated: how long it takes does not depend on them.
  constexpr int64_t kDistinct = 1 << 14;
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(kDistinct);
  for (float& value : values) value = normal(random_);
  auto* data = Input<uint8_t>(type, dims);
  const int64_t size = args_.inputs.back().size();
  const int64_t element_bytes = BitWidth(type) / 8;
  for (int64_t i = 0; i < size; i += kDistinct) {
    const int64_t count = std::min(kDistinct, size - i);
    PF_CHECK(EncodeFromFloat(type, values.data(), count, data + i * element_bytes).ok());
  }
}

void OpCall::Uniform(DataType type, const std::vector<int64_t>& dims, int64_t low, int64_t high) {
  std::uniform_int_distribution<int64_t> uniform(low, high - 1);
  PF_CHECK(DispatchType(type, [&]<typename T>() {
             T* data = Input<T>(type, dims);
             if constexpr (std::is_integral_v<T>) {
               const int64_t size = args_.inputs.back().size();
               for (int64_t i = 0; i < size; ++i) data[i] = static_cast<T>(uniform(random_));
             }
           }).ok());
}

void OpCall::Bytes(const std::vector<int64_t>& dims, uint8_t value) {
  auto* data = Input<uint8_t>(DataType::kUint8, dims);
  std::fill_n(data, args_.inputs.back().size(), value);
}

std::vector<int32_t> OpCall::ShuffledBlocks(int64_t blocks) {
  std::vector<int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void OpCall::BlockTable(int64_t sequences, int64_t columns) {
  Ints({sequences, columns}, ShuffledBlocks(sequences * columns));
}

void OpCall::Slots(int64_t tokens, int64_t block_size) {
  const std::vector<int32_t> blocks = ShuffledBlocks((tokens + block_size - 1) / block_size);
  std::vector<int64_t> slots(tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    slots[t] = blocks[t / block_size] * block_size + t % block_size;
  }
  Longs(slots);
}

void OpCall::Range(int64_t count) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  Longs(values);
}

void OpCall::Attribute(std::string_view name, decltype(pagefuse::Attribute::value) value) {
  attributes_.emplace_back(name, pagefuse::Attribute{std::move(value), "", ""});
}

void OpCall::MakeNode() {
  std::vector<Value*> inputs, outputs;
  for (size_t i = 0; i < args_.inputs.size(); ++i) {
    const TensorArg& arg = args_.inputs[i];
    const std::string name = graph_.UniqueName(PortOf(op_.inputs(), i).name);
    if (!arg.present()) {
      inputs.push_back(nullptr);
    } else if (IsConstant(static_cast<int>(i))) {
      inputs.push_back(graph_.AddInitializer(name, inputs_[i]));
    } else {
      inputs.push_back(graph_.AddValue(name, arg.dtype, Shape::FromInts(arg.dims)));
    }
  }
  const auto wanted = [&](size_t count) {
    if (num_outputs_ >= 0) return count < static_cast<size_t>(num_outputs_);
    if (count >= op_.outputs().size()) return false;
    return op_.outputs()[count].kind != PortKind::kOptional;
  };
  for (size_t i = 0; wanted(i); ++i) {
    outputs.push_back(graph_.AddValue(graph_.UniqueName(PortOf(op_.outputs(), i).name)));
  }
  node_ = graph_.AddNode(op_.domain(), op_.name(), inputs, outputs);
  for (const auto& [name, attribute] : attributes_) node_->SetAttribute(name, attribute);
  args_.node = node_;
  args_.opset = opset_;
  if (args_.scratch == nullptr) args_.scratch = &scratch_;
  MakeOutputs();
  PF_CHECK(op_.CheckValues(args_).ok());
}

void OpCall::MakeOutputs() {
  std::vector<ShapeContext::Known> known(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].defined()) continue;
    known[i] = {inputs_[i].dtype(), Shape::FromInts(inputs_[i].dims()), std::nullopt, &inputs_[i]};
  }
  ShapeContext context(*node_, opset_, std::move(known));
  PF_CHECK(op_.Infer(context).ok());
  for (int i = 0; i < node_->num_outputs(); ++i) {
    const ShapeContext::Known& output = context.outputs()[i];
    PF_CHECK(output.shape && output.shape->constant());
    const std::vector<int64_t> dims = *output.shape->constant();
    node_->output(i)->set_dtype(output.dtype);
    node_->output(i)->set_shape(output.shape);
    const TensorArg* alias = nullptr;
    for (const auto& [to, from] : op_.aliases()) {
      if (to == i && from < node_->num_inputs() && args_.inputs[from].present()) {
        alias = &args_.inputs[from];
      }
    }
    if (alias != nullptr) {
      args_.outputs.push_back(*alias);
      continue;
    }
    absl::StatusOr<Tensor> tensor = Tensor::Allocate(output.dtype, dims);
    PF_CHECK(tensor.ok());
    outputs_.push_back(*std::move(tensor));
    args_.outputs.push_back({output.dtype, dims, outputs_.back().mutable_data()});
  }
}

const Kernel* OpCall::Find(std::string_view kernel) const {
  for (const Kernel& candidate : op_.kernels()) {
    if (candidate.name == kernel) return &candidate;
  }
  return nullptr;
}

const KernelArgs& OpCall::args() {
  if (node_ == nullptr) MakeNode();
  return args_;
}

bool OpCall::Has(std::string_view kernel) {
  const Kernel* found = Find(kernel);
  if (found == nullptr) return false;
  return !found->supports || found->supports({.node = args().node, .opset = opset_}).ok();
}

std::string OpCall::BestKernel() {
  const absl::StatusOr<KernelChoice> choice = ChooseKernel({.node = args().node, .opset = opset_});
  PF_CHECK(choice.ok() && choice->kernel != nullptr);
  return choice->kernel->name;
}

void OpCall::Run(std::string_view kernel) {
  if (node_ == nullptr) MakeNode();
  const Kernel* found = Find(kernel);
  PF_CHECK(found != nullptr);
  if (found != prepared_) Prepare(*found);
  PF_CHECK(found->run(args_).ok());
}

void OpCall::Prepare(const Kernel& kernel) {
  prepared_ = &kernel;
  const KernelQuery query{.node = node_, .opset = opset_};
  absl::StatusOr<std::unique_ptr<KernelState>> state = PrepareKernel(query, kernel);
  PF_CHECK(state.ok());
  state_ = *std::move(state);
  args_.state = state_.get();
}

int64_t OpCall::output_bytes(int output) {
  const TensorArg& arg = args().outputs[output];
  return arg.size() * BitWidth(arg.dtype) / 8;
}

int64_t OpCall::TensorBytes() {
  int64_t bytes = 0;
  for (const TensorArg& input : args().inputs) bytes += input.size() * BitWidth(input.dtype) / 8;
  for (int i = 0; i < node_->num_outputs(); ++i) bytes += output_bytes(i);
  return bytes;
}

std::unique_ptr<OpCall> CallOf(std::string_view op, const std::vector<Part>& parts) {
  auto call = std::make_unique<OpCall>(op);
  for (const Part& part : parts) part(*call);
  return call;
}

CallSeries::CallSeries(OpCalls calls, std::string kernel)
    : calls_(std::move(calls)), kernel_(std::move(kernel)) {
  for (const auto& call : calls_) call->UseScratch(&scratch_);
  for (const auto& call : calls_) call->Run(kernel_);
}

double CallSeries::RunOnce() {
  next_ = (next_ + 1) % calls_.size();
  const double start = Now();
  calls_[next_]->Run(kernel_);
  const double seconds = Now() - start;
  best_ = std::min(best_, seconds);
  return seconds;
}

}  // namespace pagefuse
