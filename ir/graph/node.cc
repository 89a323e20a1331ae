// SPDX-License-Identifier: Apache-2.0

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {
namespace {

// What each alternative of Attribute::value is called in messages.
constexpr const char* kKindNames[] = {"a float",
                                      "an int",
                                      "a string",
                                      "a tensor",
                                      "a graph",
                                      "floats",
                                      "ints",
                                      "strings",
                                      "tensors",
                                      "graphs",
                                      "a reference to an attribute",
                                      "of another kind"};
static_assert(std::size(kKindNames) == std::variant_size_v<AnyAttributeValue>);

template <typename T>
absl::StatusOr<T> TypedAttribute(const Node& node, std::string_view name, T default_value,
                                 std::string_view expected) {
  const Attribute* attribute = node.attribute(name);
  if (attribute == nullptr) return default_value;
  if (const T* value = std::get_if<T>(&attribute->value)) return *value;
  return absl::InvalidArgumentError(StrCat(node.Description(), ": attribute \"", name,
                                           "\": expected ", expected, ", got ",
                                           kKindNames[attribute->value.index()]));
}

}  // namespace

std::optional<std::string_view> FindMetadata(const Metadata& metadata, std::string_view key) {
  for (const auto& [name, value] : metadata) {
    if (name == key) return value;
  }
  return std::nullopt;
}

void SetMetadata(Metadata& metadata, std::string_view key, std::string value) {
  for (auto& [name, old_value] : metadata) {
    if (name == key) {
      old_value = std::move(value);
      return;
    }
  }
  metadata.emplace_back(std::string(key), std::move(value));
}

void Node::SetInput(int index, Value* value) {
  PF_CHECK(index >= 0);
  if (index >= num_inputs()) {
    inputs_.resize(index + 1, nullptr);
    use_positions_.resize(index + 1);
  }
  if (inputs_[index] == value) return;
  if (inputs_[index] != nullptr) Graph::RemoveUse(inputs_[index], this, index);
  inputs_[index] = value;
  if (value != nullptr) Graph::AddUse(value, this, index);
}

const Attribute* Node::attribute(std::string_view name) const {
  for (const auto& [key, attribute] : attributes_) {
    if (key == name) return &attribute;
  }
  return nullptr;
}

void Node::SetAttribute(std::string_view name, Attribute attribute) {
  for (auto& [key, old_attribute] : attributes_) {
    if (key == name) {
      old_attribute = std::move(attribute);
      return;
    }
  }
  attributes_.emplace_back(std::string(name), std::move(attribute));
}

void Node::RemoveAttribute(std::string_view name) {
  std::erase_if(attributes_, [name](const auto& entry) { return entry.first == name; });
}

absl::StatusOr<int64_t> Node::IntAttribute(std::string_view name, int64_t default_value) const {
  return TypedAttribute<int64_t>(*this, name, default_value, "an int");
}

absl::StatusOr<float> Node::FloatAttribute(std::string_view name, float default_value) const {
  return TypedAttribute<float>(*this, name, default_value, "a float");
}

absl::StatusOr<std::string> Node::StringAttribute(std::string_view name,
                                                  std::string_view default_value) const {
  return TypedAttribute<std::string>(*this, name, std::string(default_value), "a string");
}

absl::StatusOr<std::vector<int64_t>> Node::IntsAttribute(std::string_view name,
                                                         std::vector<int64_t> default_value) const {
  return TypedAttribute<std::vector<int64_t>>(*this, name, std::move(default_value), "ints");
}

std::vector<Graph*> Node::Subgraphs() const {
  std::vector<Graph*> graphs;
  for (const auto& [name, attribute] : attributes_) {
    if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) {
      graphs.push_back(graph->get());
    } else if (const auto* list = std::get_if<Attribute::Graphs>(&attribute.value)) {
      for (const std::shared_ptr<Graph>& entry : *list) graphs.push_back(entry.get());
    }
  }
  return graphs;
}

std::string Node::Description() const {
  std::string label = name;
  for (auto it = outputs_.begin(); label.empty() && it != outputs_.end(); ++it) {
    if (*it != nullptr) label = (*it)->name();
  }
  const std::string prefix = domain_.empty() ? "" : StrCat(domain_, ".");
  return StrCat("node \"", label, "\" (", prefix, op_type_, ")");
}

}  // namespace pagefuse
