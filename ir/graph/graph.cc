// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/graph.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {

Graph::Graph(Graph* parent) : parent_(parent) {
  if (parent_ != nullptr) parent_->children_.insert(this);
}

Graph::~Graph() {
  for (const auto& node : nodes_) {
    node->attributes_.clear();  // its subgraphs unlink from the values of this graph
    for (int i = 0; i < node->num_inputs(); ++i) {
      Value* value = node->inputs_[i];
      if (value != nullptr && value->graph_ != this) RemoveUse(value, node.get(), i);
    }
  }
  for (const auto& value : values_) {
    for (const Use& use : value->uses_) {
      if (use.node->graph_ != this) use.node->inputs_[use.index] = nullptr;
    }
    TellParents(value->name_, -1);
  }
  for (const auto& [name, count] : names_below_) TellParents(name, -count);
  for (Graph* child : children_) child->parent_ = nullptr;
  if (parent_ != nullptr) parent_->children_.erase(this);
}

void Graph::AddUse(Value* value, Node* node, int index) {
  node->use_positions_[index] = value->uses_.size();
  value->uses_.push_back({node, index});
}

void Graph::RemoveUse(Value* value, Node* node, int index) {
  auto& uses = value->uses_;
  const size_t position = node->use_positions_[index];
  PF_CHECK(position < uses.size() && uses[position] == (Use{node, index}));
  // The last one takes its place: a value may have a reader for every node of the graph.
  const Use last = uses.back();
  last.node->use_positions_[last.index] = position;
  uses[position] = last;
  uses.pop_back();
}

void Graph::TellParents(std::string_view name, int64_t change) const {
  for (Graph* graph = parent_; graph != nullptr; graph = graph->parent_) {
    const auto entry = graph->names_below_.try_emplace(AbslView(name), 0).first;
    entry->second += change;
    if (entry->second == 0) graph->names_below_.erase(entry);
  }
}

Value* Graph::AddValue(std::string name, DataType dtype, std::optional<Shape> shape) {
  PF_CHECK(!name.empty());
  PF_CHECK(!by_name_.contains(name));
  std::unique_ptr<Value> value(new Value());
  value->name_ = std::move(name);
  value->graph_ = this;
  value->dtype_ = dtype;
  value->shape_ = std::move(shape);
  Value* result = value.get();
  result->position_ = values_.insert(values_.end(), std::move(value));
  by_name_.emplace(result->name_, result);
  TellParents(result->name_, 1);
  return result;
}

Value* Graph::AddInput(std::string name, DataType dtype, std::optional<Shape> shape) {
  Value* value = AddValue(std::move(name), dtype, std::move(shape));
  MarkInput(value);
  return value;
}

Value* Graph::AddInitializer(std::string name, Tensor tensor) {
  Value* value = AddValue(std::move(name), tensor.dtype(), Shape::FromInts(tensor.dims()));
  SetInitializer(value, std::move(tensor));
  return value;
}

void Graph::SetInitializer(Value* value, Tensor tensor) {
  PF_CHECK(value->graph_ == this && value->producer_ == nullptr);
  if (!value->initializer_) {
    value->initializer_position_ = initializers_.insert(initializers_.end(), value);
  }
  value->initializer_ = std::move(tensor);
  value->sparse_proto.clear();
}

void Graph::ClearInitializer(Value* value) {
  PF_CHECK(value->graph_ == this);
  if (value->initializer_) initializers_.erase(value->initializer_position_);
  value->initializer_.reset();
}

void Graph::MarkInput(Value* value) {
  PF_CHECK(value->graph_ == this && value->producer_ == nullptr && !value->is_input_);
  value->is_input_ = true;
  inputs_.push_back(value);
}

void Graph::AddOutput(Value* value) {
  PF_CHECK(value->graph_ == this);
  ++value->output_count_;
  outputs_.push_back(value);
}

void Graph::ReplaceOutput(int index, Value* value) {
  PF_CHECK(index >= 0 && index < static_cast<int>(outputs_.size()) && value->graph_ == this);
  --outputs_[index]->output_count_;
  ++value->output_count_;
  outputs_[index] = value;
}

void Graph::RemoveInput(int index) {
  PF_CHECK(index >= 0 && index < static_cast<int>(inputs_.size()));
  inputs_[index]->is_input_ = false;
  inputs_.erase(inputs_.begin() + index);
}

void Graph::RemoveOutput(int index) {
  PF_CHECK(index >= 0 && index < static_cast<int>(outputs_.size()));
  --outputs_[index]->output_count_;
  outputs_.erase(outputs_.begin() + index);
}

std::string Graph::UniqueName(std::string_view base) const {
  if (base.empty()) base = "value";
  auto free = [this](const std::string& name) {
    // A name below would hide the new value from readers there.
    return FindValueInScope(name) == nullptr && !names_below_.contains(name);
  };
  std::string candidate(base);
  if (free(candidate)) return candidate;
  for (int64_t& suffix = next_suffix_[AbslView(base)];;) {
    candidate = StrCat(base, "_", ++suffix);
    if (free(candidate)) return candidate;
  }
}

void Graph::Rename(Value* value, std::string name) {
  PF_CHECK(value->graph_ == this && !name.empty());
  if (value->name_ == name) return;
  PF_CHECK(!by_name_.contains(name));
  by_name_.erase(value->name_);
  TellParents(value->name_, -1);
  value->name_ = std::move(name);
  by_name_.emplace(value->name_, value);
  TellParents(value->name_, 1);
}

Node* Graph::AddNode(std::string_view domain, std::string_view op_type, std::vector<Value*> inputs,
                     std::vector<Value*> outputs, Node* before) {
  PF_CHECK(before == nullptr || before->graph_ == this);
  std::unique_ptr<Node> owned(new Node());
  Node* node = owned.get();
  node->domain_ = domain == "ai.onnx" ? "" : std::string(domain);
  node->op_type_ = std::string(op_type);
  node->graph_ = this;
  node->inputs_ = std::move(inputs);
  node->use_positions_.resize(node->inputs_.size());
  node->outputs_ = std::move(outputs);
  for (int i = 0; i < node->num_inputs(); ++i) {
    if (node->inputs_[i] != nullptr) AddUse(node->inputs_[i], node, i);
  }
  for (int i = 0; i < node->num_outputs(); ++i) {
    Value* value = node->outputs_[i];
    if (value == nullptr) continue;
    PF_CHECK(value->graph_ == this && value->producer_ == nullptr);
    PF_CHECK(!value->is_input_ && !value->initializer_);
    value->producer_ = node;
    value->producer_index_ = i;
  }
  node->position_ =
      nodes_.insert(before == nullptr ? nodes_.end() : before->position_, std::move(owned));
  return node;
}

Value* Graph::FindValue(std::string_view name) const {
  const auto found = by_name_.find(AbslView(name));
  return found == by_name_.end() ? nullptr : found->second;
}

Value* Graph::FindValueInScope(std::string_view name) const {
  for (const Graph* graph = this; graph != nullptr; graph = graph->parent_) {
    if (Value* value = graph->FindValue(name)) return value;
  }
  return nullptr;
}

std::vector<Value*> Graph::initializers() const {
  return {initializers_.begin(), initializers_.end()};
}

std::vector<Value*> Graph::values() const {
  std::vector<Value*> values;
  values.reserve(values_.size());
  for (const auto& value : values_) values.push_back(value.get());
  return values;
}

AttributeValue::AttributeValue() = default;
AttributeValue::AttributeValue(const AttributeValue&) = default;
AttributeValue::AttributeValue(AttributeValue&&) noexcept = default;
AttributeValue& AttributeValue::operator=(const AttributeValue&) = default;
AttributeValue& AttributeValue::operator=(AttributeValue&&) noexcept = default;
AttributeValue::~AttributeValue() = default;

}  // namespace pagefuse
