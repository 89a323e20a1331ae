// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/canonical_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

// Copies a graph node by node, in the order in which its outputs need them.
class Canonicalizer {
 public:
  explicit Canonicalizer(const Graph& from) : from_(from), to_(std::make_shared<Graph>()) {}
  // A subgraph of `parent`; `outer` has what the graphs around it became.
  Canonicalizer(const Graph& from, Graph* parent, Graph::ValueMap outer)
      : from_(from), to_(std::make_shared<Graph>(parent)), map_(std::move(outer)) {}

  std::shared_ptr<Graph> Run() {
    to_->name = std::string(1, 'g');
    for (const Value* input : from_.inputs()) {
      map_[input] = to_->AddInput(input->name(), input->dtype(), input->shape());
      if (input->initializer() != nullptr) to_->SetInitializer(map_[input], *input->initializer());
    }
    for (const Value* output : from_.outputs()) Visit(output);
    for (const auto& node : from_.nodes()) Copy(*node);  // what is dead comes last
    for (const Value* output : from_.outputs()) to_->AddOutput(map_[output]);
    return std::move(to_);
  }

 private:
  void Visit(const Value* value) {
    if (map_.contains(value)) return;
    if (value->producer() != nullptr) {
      Copy(*value->producer());
    } else if (value->initializer() != nullptr) {
      map_[value] = to_->AddInitializer(Name(*value, "c"), *value->initializer());
    }
  }

  void Copy(const Node& node) {
    if (!done_.insert(&node).second) return;
    for (const Value* value : ValuesRead(node)) {
      if (value->graph() == &from_) Visit(value);
    }
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node.inputs()) inputs.push_back(input ? map_.at(input) : nullptr);
    for (const Value* output : node.outputs()) {
      outputs.push_back(output == nullptr ? nullptr : to_->AddValue(Name(*output, "v")));
      if (output == nullptr) continue;
      map_[output] = outputs.back();
      if (output->is_output()) {
        outputs.back()->set_dtype(output->dtype());
        outputs.back()->set_shape(output->shape());
      }
    }
    Node* copy = to_->AddNode(node.domain(), node.op_type(), inputs, outputs);
    copy->overload = node.overload;
    auto attributes = node.attributes();
    std::ranges::sort(attributes, [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [name, attribute] : attributes) {
      copy->SetAttribute(name, CopyAttribute(attribute));
    }
  }

  Attribute CopyAttribute(const Attribute& attribute) {
    const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
    if (graph == nullptr) return Graph::CloneAttribute(attribute, to_.get(), map_);
    return MakeAttribute(Canonicalizer(**graph, to_.get(), map_).Run());
  }

  // Inputs and outputs of the graph keep their names.
  std::string Name(const Value& value, std::string_view kind) {
    if (value.is_output()) return value.name();
    std::string name;
    do {
      name = StrCat("%", kind, next_++);
    } while (to_->FindValueInScope(name) != nullptr);
    return name;
  }

  const Graph& from_;
  std::shared_ptr<Graph> to_;
  Graph::ValueMap map_;
  absl::flat_hash_set<const Node*> done_;
  int next_ = 0;
};

}  // namespace

std::string CanonicalText(const Model& model) {
  Model canonical;
  canonical.ir_version = model.ir_version;
  canonical.opset_imports = model.opset_imports;
  canonical.graph = Canonicalizer(*model.graph).Run();
  canonical.functions = model.functions;
  std::ranges::sort(canonical.functions,
                    [](const Function& a, const Function& b) { return a.name < b.name; });
  return PrintModel(canonical, {.max_elements = -1, .value_infos = false});
}

std::string TextDiff(const std::string& expected, const std::string& got) {
  const std::vector<std::string> a = absl::StrSplit(expected, '\n');
  const std::vector<std::string> b = absl::StrSplit(got, '\n');
  std::string text = "expected:\n";
  for (const std::string& line : a) {
    StrAppend(&text, std::ranges::find(b, line) == b.end() ? "- " : "  ", line, "\n");
  }
  text += "got:\n";
  for (const std::string& line : b) {
    StrAppend(&text, std::ranges::find(a, line) == a.end() ? "+ " : "  ", line, "\n");
  }
  return text;
}

}  // namespace pagefuse
