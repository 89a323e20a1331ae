// SPDX-License-Identifier: Apache-2.0
#include "model_mutator.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "value_mutator.h"
#include "wrap_node.h"

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::fuzz {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// The graph, the graphs in its nodes, and so on.
void CollectGraphs(onnx::GraphProto& graph, std::vector<onnx::GraphProto*>& graphs) {
  graphs.push_back(&graph);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) CollectGraphs(*attribute.mutable_g(), graphs);
      for (auto& inner : *attribute.mutable_graphs()) CollectGraphs(inner, graphs);
    }
  }
}

// What is declared of inner values contradicts nearly every other shape.
void ForgetTypes(onnx::GraphProto& graph) {
  graph.clear_value_info();
  for (auto& output : *graph.mutable_output()) {
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  }
}

class Mutator {
 public:
  Mutator(const SeedModels& seeds, Random& random, onnx::ModelProto& model)
      : seeds_(seeds), random_(random), model_(model) {}

  void Mutate() {
    std::vector<onnx::GraphProto*> graphs;
    CollectGraphs(*model_.mutable_graph(), graphs);
    // Inner graphs are few and rarely right.
    graph_ = random_.OneIn(2) ? graphs[0] : random_.Pick(graphs);
    nodes_ = graph_->mutable_node();
    if (model_.functions_size() > 0 && random_.OneIn(4)) {
      nodes_ = random_.Pick(*model_.mutable_functions()).mutable_node();
    }
    using Mutation = void (Mutator::*)();
    static constexpr Mutation kMutations[] = {&Mutator::Rewire,
                                              &Mutator::Resize,
                                              &Mutator::Resize,
                                              &Mutator::Resize,
                                              &Mutator::Rewire,
                                              &Mutator::ResizePorts,
                                              &Mutator::RenameOp,
                                              &Mutator::ChangeAttribute,
                                              &Mutator::ChangeAttribute,
                                              &Mutator::ChangeAttribute,
                                              &Mutator::AddAttribute,
                                              &Mutator::ChangeType,
                                              &Mutator::ChangeType,
                                              &Mutator::ChangeInitializer,
                                              &Mutator::ChangeInitializer,
                                              &Mutator::ChangeInitializer,
                                              &Mutator::AddInitializer,
                                              &Mutator::MoveNode,
                                              &Mutator::AddNode,
                                              &Mutator::AddNode,
                                              &Mutator::WrapInGraph,
                                              &Mutator::ChangeOpset,
                                              &Mutator::ChangePorts};
    (this->*kMutations[random_.Below(std::size(kMutations))])();
  }

 private:
  // What a node at `end` may read; now and then what comes after it, too.
  void CollectNames(int end) {
    if (random_.OneIn(20)) end = nodes_->size();
    names_.clear();
    for (const auto& value : graph_->input()) names_.push_back(value.name());
    for (const auto& tensor : graph_->initializer()) names_.push_back(tensor.name());
    for (int i = 0; i < end; ++i) {
      const auto& outputs = (*nodes_)[i].output();
      names_.insert(names_.end(), outputs.begin(), outputs.end());
    }
  }

  // Another name of the same element type, if types are known.
  std::string Alike(const std::string& name) {
    std::map<std::string, int> types;
    for (const auto* list : {&graph_->input(), &graph_->output(), &graph_->value_info()}) {
      for (const auto& value : *list) types[value.name()] = value.type().tensor_type().elem_type();
    }
    for (const auto& tensor : graph_->initializer()) types[tensor.name()] = tensor.data_type();
    const auto type = types.find(name);
    std::vector<std::string> same;
    for (const std::string& other : names_) {
      const auto found = types.find(other);
      const bool known = type != types.end() && found != types.end();
      if (!known || found->second == type->second) same.push_back(other);
    }
    return same.empty() ? OddName(random_, names_) : random_.Pick(same);
  }

  onnx::NodeProto* PickNode() {
    const int at = static_cast<int>(random_.Below(nodes_->size()));
    CollectNames(at);
    return nodes_->empty() ? nullptr : &(*nodes_)[at];
  }

  std::string NewName() { return "fresh" + std::to_string(fresh_++); }

  void Rewire() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr || node->input().empty()) return;
    std::string& input = random_.Pick(*node->mutable_input());
    input = random_.OneIn(4) ? OddName(random_, names_) : Alike(input);
  }

  void ResizePorts() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr) return;
    auto& inputs = *node->mutable_input();
    auto& outputs = *node->mutable_output();
    switch (random_.Below(5)) {
      case 0:
        node->add_input(OddName(random_, names_));
        break;
      case 1:
        if (!inputs.empty()) inputs.RemoveLast();
        break;
      case 2:
        node->add_output(random_.OneIn(2) ? NewName() : OddName(random_, names_));
        break;
      case 3:
        if (!outputs.empty()) outputs.RemoveLast();
        break;
      default:
        if (inputs.size() > 1)
          inputs.SwapElements(0, static_cast<int>(random_.Below(inputs.size())));
    }
  }

  // One size becomes another wherever it occurs, so that much still fits together.
  void Resize() {
    std::vector<int64_t> sizes;
    for (const auto& input : graph_->input()) {
      for (const auto& dim : input.type().tensor_type().shape().dim()) {
        if (dim.has_dim_value()) sizes.push_back(dim.dim_value());
      }
    }
    for (const auto& tensor : graph_->initializer()) {
      sizes.insert(sizes.end(), tensor.dims().begin(), tensor.dims().end());
    }
    if (sizes.empty()) return;
    const int64_t from = random_.Pick(sizes);
    const int64_t to = random_.OneIn(8) ? OddInt(random_) : static_cast<int64_t>(random_.Below(20));
    for (auto& input : *graph_->mutable_input()) {
      if (!input.type().tensor_type().has_shape()) continue;
      for (auto& dim :
           *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        if (dim.has_dim_value() && dim.dim_value() == from) dim.set_dim_value(to);
      }
    }
    for (auto& tensor : *graph_->mutable_initializer()) {
      const auto dims = tensor.mutable_dims();
      if (std::find(dims->begin(), dims->end(), from) == dims->end()) continue;
      std::replace(dims->begin(), dims->end(), from, to);
      FitData(tensor);
    }
    ForgetTypes(*graph_);
  }

  void RenameOp() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr) return;
    static const std::vector<const OpDef*> ops = OpRegistry::Global().ops();
    const OpDef& op = *ops[random_.Below(ops.size())];
    node->set_op_type(op.name());
    node->set_domain(op.domain());
    ImportDomain(op.domain());
  }

  void ImportDomain(const std::string& domain) {
    for (const auto& import : model_.opset_import()) {
      if (import.domain() == domain) return;
    }
    auto* import = model_.add_opset_import();
    import->set_domain(domain);
    import->set_version(domain.empty() ? 23 : 1);
  }

  void ChangeAttribute() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr || node->attribute().empty()) return;
    auto& attributes = *node->mutable_attribute();
    if (random_.OneIn(6)) {
      attributes.SwapElements(static_cast<int>(random_.Below(attributes.size())),
                              attributes.size() - 1);
      attributes.RemoveLast();
      return;
    }
    MutateAttribute(random_, random_.Pick(attributes));
  }

  // One that the op knows, or one of another node.
  void AddAttribute() {
    onnx::NodeProto* node = PickNode();
    const onnx::NodeProto* other = seeds_.PickNode(random_);
    if (node == nullptr) return;
    const OpDef* op = OpRegistry::Global().Find(node->domain(), node->op_type(), kNewest);
    if (op != nullptr && !op->attributes().empty() && !random_.OneIn(4)) {
      auto& attribute = *node->add_attribute();
      attribute.set_name(op->attributes()[random_.Below(op->attributes().size())].name);
      static constexpr onnx::AttributeProto::AttributeType kTypes[] = {
          onnx::AttributeProto::INT, onnx::AttributeProto::INT, onnx::AttributeProto::FLOAT,
          onnx::AttributeProto::INTS, onnx::AttributeProto::STRING};
      attribute.set_type(kTypes[random_.Below(std::size(kTypes))]);
      MutateAttribute(random_, attribute);
      RemoveEarlier(*node);
    } else if (other != nullptr && !other->attribute().empty()) {
      *node->add_attribute() = random_.Pick(other->attribute());
    }
  }

  // An attribute given twice is refused at import, which says little.
  static void RemoveEarlier(onnx::NodeProto& node) {
    auto& attributes = *node.mutable_attribute();
    for (int i = 0; i + 1 < attributes.size(); ++i) {
      if (attributes[i].name() != attributes[attributes.size() - 1].name()) continue;
      attributes.SwapElements(i, attributes.size() - 1);
      attributes.RemoveLast();
      return;
    }
  }

  void ChangeType() {
    auto* list = graph_->mutable_input();
    if (random_.OneIn(3)) list = graph_->mutable_output();
    if (random_.OneIn(5)) list = graph_->mutable_value_info();
    if (!list->empty()) MutateType(random_, *random_.Pick(*list).mutable_type());
  }

  void ChangeInitializer() {
    if (graph_->initializer().empty()) return AddInitializer();
    onnx::TensorProto& tensor = random_.Pick(*graph_->mutable_initializer());
    MutateTensor(random_, tensor);
  }

  // A small tensor of odd integers in place of an input, as shapes, axes and indices are.
  void AddInitializer() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr || node->input().empty()) return;
    auto& tensor = *graph_->add_initializer();
    tensor.set_name(NewName());
    tensor.set_data_type(random_.OneIn(4) ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
    const size_t count = random_.Below(5);
    if (count != 1 || random_.OneIn(2)) tensor.add_dims(static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      if (tensor.data_type() == onnx::TensorProto::FLOAT) {
        tensor.add_float_data(OddFloat(random_));
      } else {
        tensor.add_int64_data(OddInt(random_));
      }
    }
    random_.Pick(*node->mutable_input()) = tensor.name();
  }

  void MoveNode() {
    if (nodes_->empty()) return;
    const int at = static_cast<int>(random_.Below(nodes_->size()));
    if (random_.OneIn(2)) {
      nodes_->SwapElements(at, std::min(at + 1, nodes_->size() - 1));
    } else {
      Bypass(at);
    }
  }

  // Takes a node out; what read it reads one of its inputs.
  void Bypass(int at) {
    const onnx::NodeProto gone = (*nodes_)[at];
    nodes_->erase(nodes_->begin() + at);
    if (gone.input().empty() || gone.output().empty()) return;
    const std::string& instead = random_.Pick(gone.input());
    for (auto& node : *nodes_) {
      std::replace(node.mutable_input()->begin(), node.mutable_input()->end(), gone.output(0),
                   instead);
    }
    for (auto& output : *graph_->mutable_output()) {
      if (output.name() == gone.output(0)) output.set_name(instead);
    }
  }

  // A node of any model, reading from this one; its first output may take the place of a reader's
  // input.
  void AddNode() {
    const onnx::NodeProto* other = seeds_.PickNode(random_);
    if (other == nullptr) return;
    const int readers = nodes_->size();
    const int at = static_cast<int>(random_.Below(readers + 1));
    CollectNames(at);
    onnx::NodeProto& node = *nodes_->Add();
    node = *other;
    ImportDomain(node.domain());
    for (auto& input : *node.mutable_input()) {
      if (!input.empty()) input = random_.OneIn(4) ? OddName(random_, names_) : Alike(input);
    }
    for (auto& output : *node.mutable_output()) {
      if (!output.empty()) output = NewName();
    }
    if (at < readers) {
      auto& reader = (*nodes_)[at];
      if (!reader.input().empty() && !node.output().empty()) {
        random_.Pick(*reader.mutable_input()) = node.output(0);
      }
    } else if (!node.output().empty()) {
      graph_->add_output()->set_name(node.output(0));
    }
    for (int i = nodes_->size() - 1; i > at; --i) nodes_->SwapElements(i, i - 1);
  }

  void WrapInGraph() {
    onnx::NodeProto* node = PickNode();
    if (node == nullptr || node->output().empty()) return;
    WrapNode(random_, *graph_, *node, names_, NewName());
  }

  void ChangeOpset() {
    if (random_.OneIn(8)) model_.set_ir_version(OddInt(random_));
    if (model_.opset_import().empty()) return ImportDomain("");
    auto& import = random_.Pick(*model_.mutable_opset_import());
    import.set_version(random_.OneIn(6) ? OddInt(random_)
                                        : static_cast<int64_t>(random_.Below(29)));
  }

  void ChangePorts() {
    switch (random_.Below(5)) {
      case 0:
        CollectNames(nodes_->size());
        graph_->add_output()->set_name(OddName(random_, names_));
        break;
      case 1:
        if (!graph_->output().empty()) graph_->mutable_output()->RemoveLast();
        break;
      case 2:
        if (!graph_->input().empty()) graph_->mutable_input()->RemoveLast();
        break;
      case 3: {  // an input with a default
        if (graph_->initializer().empty()) break;
        const auto& tensor = random_.Pick(graph_->initializer());
        auto& input = *graph_->add_input();
        input.set_name(tensor.name());
        input.mutable_type()->mutable_tensor_type()->set_elem_type(tensor.data_type());
        break;
      }
      default: {
        CollectNames(nodes_->size());
        auto& value = *graph_->add_value_info();
        value.set_name(OddName(random_, names_));
        MutateType(random_, *value.mutable_type());
      }
    }
  }

  static constexpr int64_t kNewest = 28;

  const SeedModels& seeds_;
  Random& random_;
  onnx::ModelProto& model_;
  onnx::GraphProto* graph_ = nullptr;
  Nodes* nodes_ = nullptr;
  std::vector<std::string> names_;
  int fresh_ = 0;
};

}  // namespace

std::string MakeCase(const SeedModels& seeds, uint64_t seed) {
  Random random(seed);
  onnx::ModelProto model = seeds.Pick(random);
  if (!random.OneIn(4)) ForgetTypes(*model.mutable_graph());
  Mutator mutator(seeds, random, model);
  // Mostly one or two: much of the model still makes sense then.
  do {
    mutator.Mutate();
  } while (!random.OneIn(2));
  std::string bytes = model.SerializeAsString();
  if (random.OneIn(12)) {
    do {
      MutateBytes(random, bytes);
    } while (random.OneIn(2));
  }
  return bytes;
}

}  // namespace pagefuse::fuzz
