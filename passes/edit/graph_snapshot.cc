// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/graph_snapshot.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

std::string NameOf(const Value* value) { return value == nullptr ? "" : value->name(); }

std::vector<std::string> NamesOf(const std::vector<Value*>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const Value* value : values) names.push_back(NameOf(value));
  return names;
}

bool SameNames(const std::vector<std::string>& names, const std::vector<Value*>& values) {
  return std::ranges::equal(names, values, [](const std::string& name, const Value* value) {
    return value == nullptr ? name.empty() : name == value->name();
  });
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         (a.data() == b.data() || a.IdenticalTo(b));
}

struct SameValue {
  template <typename T, typename U>
  bool operator()(const T&, const U&) const {
    return false;
  }
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    if constexpr (std::is_same_v<T, Tensor>) {
      return SameTensor(a, b);
    } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameTensor);
    } else {
      return a == b;
    }
  }
};

bool SameAttributes(const std::vector<std::pair<std::string, Attribute>>& a,
                    const std::vector<std::pair<std::string, Attribute>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && std::visit(SameValue(), x.second.value, y.second.value);
  });
}

// The place behind the first `end` that stands in no quotes.
size_t Behind(std::string_view text, std::string_view end) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && quoted) {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text.substr(i).starts_with(end)) {
      return i + end.size();
    }
  }
  return text.size();
}

}  // namespace

std::string NodeLine(const Node& node) {
  std::string text = PrintNode(node);
  if (text.starts_with("[")) text = text.substr(Behind(text, "] "));
  return text.substr(0, text.rfind(" <metadata_props: "));
}

std::string OpName(const Node& node) {
  return node.domain().empty() ? node.op_type() : StrCat(node.domain(), ".", node.op_type());
}

std::string TypeText(const Value& value) {
  return StrCat(DataTypeName(value.dtype()), value.shape() ? value.shape()->ToString() : "[...]");
}

GraphSnapshot::Seen GraphSnapshot::Look(const Model& model, const Node& node) {
  const bool has_graphs = !node.Subgraphs().empty();
  Seen seen{.domain = node.domain(),
            .op_type = node.op_type(),
            .inputs = NamesOf(node.inputs()),
            .outputs = NamesOf(node.outputs()),
            .attributes = {},
            .text = NodeLine(node),
            .opaque = has_graphs ||
                      model.FindFunction(node.domain(), node.op_type(), node.overload) != nullptr};
  // A graph that is kept keeps reading what it reads, and would be seen by passes.
  if (!has_graphs) seen.attributes = node.attributes();
  return seen;
}

void GraphSnapshot::Visit(const Model& model, const Node& node, GraphChange& change) {
  const auto it = nodes_.find(&node);
  const bool known = it != nodes_.end() && node.Is(it->second.op_type, it->second.domain) &&
                     SameNames(it->second.outputs, node.outputs());
  const bool same =
      known && SameNames(it->second.inputs, node.inputs()) &&
      (!node.Subgraphs().empty() || SameAttributes(it->second.attributes, node.attributes()));
  if (same) {
    it->second.look = look_;
    it->second.position = position_++;
    if (it->second.opaque || all_changed_) change.nodes.insert(&node);
    return;
  }
  Seen now = Look(model, node);
  now.look = look_;
  now.position = position_++;
  change.nodes.insert(&node);
  if (!known) {
    change.made.push_back(now.text);
  } else {
    const std::vector<std::string>& before = it->second.inputs;
    for (size_t i = 0; i < std::min(before.size(), now.inputs.size()); ++i) {
      if (before[i] != now.inputs[i]) change.replaced.emplace_back(before[i], now.inputs[i]);
    }
  }
  // What stood at this address before, if it is another node, is gone.
  if (it != nodes_.end() && !known) change.taken.push_back(it->second.text);
  nodes_[&node] = std::move(now);
}

// What stands for the rewrite is a value that others still read: one whose name a new node took
// over, else the last that went.
void GraphSnapshot::TakeGone(const Graph& graph, GraphChange& change) {
  std::vector<std::pair<int64_t, const Node*>> gone;
  for (const auto& [node, seen] : nodes_) {
    if (seen.look != look_) gone.emplace_back(seen.position, node);
  }
  std::ranges::sort(gone);
  bool found = false;
  for (const auto& [position, node] : gone) {
    const Seen& seen = nodes_[node];
    change.taken.push_back(seen.text);
    for (const std::string& output : seen.outputs) {
      const bool stays = graph.FindValue(output) != nullptr;
      if (output.empty() || (found && !stays)) continue;
      change.at = output;
      found = found || stays;
    }
    nodes_.erase(node);
  }
}

// An output of the graph that another node computes now.
std::string GraphSnapshot::OutputMoved(const Graph& graph) {
  std::string moved;
  std::map<std::string, const Node*> now;
  for (const Value* output : graph.outputs()) {
    now[output->name()] = output->producer();
    const auto before = outputs_.find(output->name());
    const bool other = before != outputs_.end() && before->second != output->producer();
    if (other && moved.empty()) moved = output->name();
  }
  outputs_ = std::move(now);
  return moved;
}

GraphChange GraphSnapshot::Update(const Model& model) {
  GraphChange change;
  ++look_;
  position_ = 0;
  all_changed_ = look_ > 1 && opsets_ != model.opset_imports;
  opsets_ = model.opset_imports;
  for (const auto& node : model.graph->nodes()) Visit(model, *node, change);
  const std::string output = OutputMoved(*model.graph);
  std::string at = change.replaced.empty() ? output : change.replaced.front().first;
  TakeGone(*model.graph, change);
  if (!at.empty()) change.at = std::move(at);
  return change;
}

}  // namespace pagefuse
