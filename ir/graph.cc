#include "pagefuse/ir/graph.h"

#include <algorithm>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {

Graph::Graph(Graph* parent) : parent_(parent) {
  if (parent_ != nullptr) parent_->children_.push_back(this);
}

Graph::~Graph() {
  // Last node first, because RemoveUse searches from the end.
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    Node& node = **it;
    node.attributes_.clear();  // its subgraphs unlink from the values of this graph
    for (int i = node.num_inputs() - 1; i >= 0; --i) {
      Value* value = node.inputs_[i];
      if (value != nullptr && value->graph_ != this) RemoveUse(value, &node, i);
    }
  }
  for (const Value* value : value_order_) {
    for (const Use& use : value->uses_) {
      if (use.node->graph_ != this) use.node->inputs_[use.index] = nullptr;
    }
  }
  for (Graph* child : children_) child->parent_ = nullptr;
  if (parent_ != nullptr) {
    auto& siblings = parent_->children_;
    siblings.erase(std::next(std::find(siblings.rbegin(), siblings.rend(), this)).base());
  }
}

void Graph::AddUse(Value* value, Node* node, int index) { value->uses_.push_back({node, index}); }

void Graph::RemoveUse(Value* value, Node* node, int index) {
  auto& uses = value->uses_;
  const auto found = std::find(uses.rbegin(), uses.rend(), Use{node, index});
  PF_CHECK(found != uses.rend());
  uses.erase(std::next(found).base());
}

Value* Graph::AddValue(std::string name, DataType dtype, std::optional<Shape> shape) {
  PF_CHECK(!name.empty());
  PF_CHECK(!values_.contains(name));
  std::unique_ptr<Value> value(new Value());
  value->name_ = std::move(name);
  value->graph_ = this;
  value->dtype_ = dtype;
  value->shape_ = std::move(shape);
  Value* result = value.get();
  value_order_.push_back(result);
  values_.emplace(result->name_, std::move(value));
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
  if (!value->initializer_) initializer_order_.push_back(value);
  value->initializer_ = std::move(tensor);
  value->sparse_proto.clear();
}

void Graph::ClearInitializer(Value* value) {
  PF_CHECK(value->graph_ == this);
  if (value->initializer_) std::erase(initializer_order_, value);
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

bool Graph::NameIsTaken(std::string_view name) const {
  // A name below would hide the new value from readers there.
  for (const Graph* child : children_) {
    if (child->NameIsTaken(name)) return true;
  }
  return values_.contains(AbslView(name));
}

std::string Graph::UniqueName(std::string_view base) const {
  if (base.empty()) base = "value";
  auto free = [this](const std::string& name) {
    return FindValueInScope(name) == nullptr && !NameIsTaken(name);
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
  PF_CHECK(!values_.contains(name));
  auto entry = values_.find(value->name_);
  std::unique_ptr<Value> owned = std::move(entry->second);
  values_.erase(entry);
  value->name_ = std::move(name);
  values_.emplace(value->name_, std::move(owned));
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
  const auto found = values_.find(AbslView(name));
  return found == values_.end() ? nullptr : found->second.get();
}

Value* Graph::FindValueInScope(std::string_view name) const {
  for (const Graph* graph = this; graph != nullptr; graph = graph->parent_) {
    if (Value* value = graph->FindValue(name)) return value;
  }
  return nullptr;
}

std::vector<Value*> Graph::initializers() const { return initializer_order_; }

std::vector<Value*> Graph::values() const { return value_order_; }

}  // namespace pagefuse
