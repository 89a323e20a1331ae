// SPDX-License-Identifier: Apache-2.0
#include "scale_graphs.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr int64_t kWidth = 8;

Attribute Ints(std::vector<int64_t> values) { return {.value = std::move(values)}; }
Attribute Int(int64_t value) { return {.value = value}; }

// Adds nodes whose values are named in turn.
class Builder {
 public:
  explicit Builder(Graph* graph) : graph_(graph) {}

  Value* Call(std::string_view op, std::vector<Value*> inputs,
              std::vector<std::pair<std::string, Attribute>> attributes = {},
              std::string_view domain = "") {
    Value* output = graph_->AddValue(Name("v"));
    Node* node = graph_->AddNode(domain, op, std::move(inputs), {output});
    for (auto& [name, attribute] : attributes) node->SetAttribute(name, std::move(attribute));
    return output;
  }

  Value* Floats(std::vector<int64_t> dims, float value) {
    const int64_t count = ElementCount(dims).value_or(0);
    return graph_->AddInitializer(Name("c"),
                                  Tensor::Of<float>(dims, std::vector<float>(count, value)));
  }

  Value* Integers(const std::vector<int64_t>& values) {
    return graph_->AddInitializer(
        Name("i"), Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }

  int64_t num_nodes() const { return graph_->num_nodes(); }

 private:
  // Subgraphs must not hide values around them.
  std::string Name(std::string_view prefix) const {
    return graph_->UniqueName(StrCat(graph_->name, ".", prefix, count_++));
  }

  Graph* graph_;
  mutable int64_t count_ = 0;
};

Model EmptyModel() {
  Model model;
  model.opset_imports[""] = 20;
  model.graph = std::make_shared<Graph>();
  model.graph->name = std::string(1, 'g');
  return model;
}

Value* Input(Graph& graph, std::vector<Dim> dims = {Dim::Symbol("n"), Dim(kWidth)}) {
  return graph.AddInput("x", DataType::kFloat, Shape(std::move(dims)));
}

void Output(Graph& graph, Value* value, std::string_view name = "y") {
  Value* output = graph.AddValue(std::string(name), DataType::kFloat);
  graph.AddNode("", "Identity", {value}, {output});
  graph.AddOutput(output);
}

Model Chain(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* half = b.Floats({1}, 0.5f);
  for (int64_t i = 0; i < nodes; i += 2) x = b.Call("Tanh", {b.Call("Mul", {x, half})});
  Output(*model.graph, x);
  return model;
}

Model Products(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* weight = b.Floats({kWidth, kWidth}, 0.125f);
  for (int64_t i = 0; i < nodes; ++i) x = b.Call("MatMul", {x, weight});
  Output(*model.graph, x);
  return model;
}

Model Views(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* wide = b.Integers({-1, kWidth, 1});
  Value* flat = b.Integers({-1, kWidth});
  x = b.Call("Tanh", {x});
  for (int64_t i = 0; i < nodes; i += 2)
    x = b.Call("Reshape", {b.Call("Reshape", {x, wide}), flat});
  Output(*model.graph, b.Call("Tanh", {x}));
  return model;
}

// Reshapes to what only the run tells, which cannot be joined.
Model FedViews(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph, {Dim(1), Dim(1)});
  Value* shape = model.graph->AddInput("shape", DataType::kInt64, Shape{2});
  for (int64_t i = 0; i < nodes; ++i)
    x = b.Call("Reshape", {x, shape}, {{"allowzero", Int(i % 2)}});
  Output(*model.graph, x);
  return model;
}

// As Views, with something between the views that keeps them apart.
Model MixedViews(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* wide = b.Integers({-1, kWidth / 2, 2});
  Value* flat = b.Integers({-1, kWidth});
  for (int64_t i = 0; i < nodes; i += 3) {
    x = b.Call("Transpose", {b.Call("Reshape", {x, wide})}, {{"perm", Ints({0, 2, 1})}});
    x = b.Call("Reshape", {x, flat});
  }
  Output(*model.graph, x);
  return model;
}

Model FanOut(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph, {Dim(1), Dim(kWidth)});
  std::vector<Value*> all;
  for (int64_t i = 0; i < nodes; ++i) {
    all.push_back(b.Call("Add", {x, b.Floats({1}, static_cast<float>(i))}));
  }
  Output(*model.graph, b.Call("Concat", all, {{"axis", Int(0)}}));
  return model;
}

Model Outputs(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  for (int64_t i = 0; i < nodes; i += 2) {
    Output(*model.graph, b.Call("Pow", {x, b.Floats({1}, static_cast<float>(i % 7))}),
           StrCat("y", i));
  }
  return model;
}

Model Twins(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* sum = x;
  for (int64_t i = 0; i < nodes; i += 2) sum = b.Call("Add", {sum, b.Call("Tanh", {x})});
  Output(*model.graph, sum);
  return model;
}

Model Dead(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* dead = x;
  for (int64_t i = 0; i < nodes; ++i)
    dead = b.Call(i % 100 == 0 ? "Tanh" : "Neg", {i % 100 == 0 ? x : dead});
  Output(*model.graph, b.Call("Tanh", {x}));
  return model;
}

Model Constants(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  for (int64_t i = 0; i < nodes; i += 3) {
    Tensor tensor = Tensor::Of<float>({1, 1}, {static_cast<float>(i)});
    Value* constant = b.Call("Constant", {}, {{"value", {.value = std::move(tensor)}}});
    x = b.Call("Max", {x, b.Call("Neg", {constant})});
  }
  Output(*model.graph, x);
  return model;
}

std::shared_ptr<Graph> Branch(Graph* parent, Value* x, std::string_view name, std::string_view op) {
  auto graph = std::make_shared<Graph>(parent);
  graph->name = std::string(name);
  Builder b(graph.get());
  graph->AddOutput(b.Call(op, {b.Call("Neg", {x})}));
  return graph;
}

Model Ifs(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* condition = b.Call("Cast", {b.Call("ReduceMax", {x}, {{"keepdims", Int(0)}})},
                            {{"to", Int(static_cast<int64_t>(DataType::kBool))}});
  for (int64_t i = 0; i < nodes; i += 5) {
    x = b.Call("If", {condition},
               {{"then_branch", {.value = Branch(model.graph.get(), x, StrCat("t", i), "Tanh")}},
                {"else_branch", {.value = Branch(model.graph.get(), x, StrCat("e", i), "Abs")}}});
  }
  Output(*model.graph, x);
  return model;
}

Model Calls(int64_t nodes) {
  Model model = EmptyModel();
  model.opset_imports["local"] = 1;
  Function function;
  function.domain = "local";
  function.name = "Step";
  function.opset_imports[""] = 20;
  function.body = std::make_shared<Graph>();
  Builder inner(function.body.get());
  Value* value = function.body->AddInput("a", DataType::kUndefined, std::nullopt);
  constexpr int64_t kBodyNodes = 10;
  for (int64_t i = 0; i < kBodyNodes; ++i) value = inner.Call(i % 2 == 0 ? "Tanh" : "Neg", {value});
  function.body->AddOutput(value);
  model.functions.push_back(std::move(function));
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  for (int64_t i = 0; i < nodes; i += kBodyNodes) x = b.Call("Step", {x}, {}, "local");
  Output(*model.graph, x);
  return model;
}

// Values that all live to the end, where they are added in turn.
Model Skips(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph);
  Value* weight = b.Floats({kWidth, kWidth}, 0.125f);
  std::vector<Value*> all;
  for (int64_t i = 0; i < nodes; i += 3) all.push_back(x = b.Call("MatMul", {x, weight}));
  for (Value* value : all) x = b.Call("Add", {value, b.Call("MatMul", {x, weight})});
  Output(*model.graph, x);
  return model;
}

Value* RmsNorm(Builder& b, Value* x) {
  Value* square = b.Call("Pow", {x, b.Floats({}, 2)});
  Value* mean = b.Call("ReduceMean", {square, b.Integers({-1})});
  Value* root = b.Call("Sqrt", {b.Call("Add", {mean, b.Floats({}, 1e-6f)})});
  return b.Call("Mul", {b.Call("Div", {x, root}), b.Floats({kWidth}, 1)});
}

Value* Heads(Builder& b, Value* x, Value* shape) {
  Value* product = b.Call("MatMul", {x, b.Floats({kWidth, kWidth}, 0.125f)});
  return b.Call("Transpose", {b.Call("Reshape", {product, shape})}, {{"perm", Ints({0, 2, 1, 3})}});
}

Value* AttentionLayer(Builder& b, Value* x) {
  // Exporters read the sizes anew in every layer.
  Value* sizes = b.Call("Shape", {x});
  Value* batch = b.Call("Slice", {sizes, b.Integers({0}), b.Integers({2})});
  Value* shape = b.Call("Concat", {batch, b.Integers({2, kWidth / 2})}, {{"axis", Int(0)}});
  Value* q = Heads(b, x, shape);
  Value* k = b.Call("Transpose", {Heads(b, x, shape)}, {{"perm", Ints({0, 1, 3, 2})}});
  Value* v = Heads(b, x, shape);
  Value* scores = b.Call("Mul", {b.Call("MatMul", {q, k}), b.Floats({}, 0.5f)});
  Value* attended = b.Call("MatMul", {b.Call("Softmax", {scores}), v});
  Value* joined = b.Call("Transpose", {attended}, {{"perm", Ints({0, 2, 1, 3})}});
  Value* flat = b.Call("Concat", {batch, b.Integers({kWidth})}, {{"axis", Int(0)}});
  return b.Call("MatMul", {b.Call("Reshape", {joined, flat}), b.Floats({kWidth, kWidth}, 0.125f)});
}

Value* GatedMlp(Builder& b, Value* x) {
  Value* gate = b.Call("MatMul", {x, b.Floats({kWidth, kWidth}, 0.25f)});
  Value* up = b.Call("MatMul", {x, b.Floats({kWidth, kWidth}, 0.5f)});
  Value* silu = b.Call("Mul", {gate, b.Call("Sigmoid", {gate})});
  return b.Call("MatMul", {b.Call("Mul", {silu, up}), b.Floats({kWidth, kWidth}, 0.125f)});
}

Model Decoder(int64_t nodes) {
  Model model = EmptyModel();
  Builder b(model.graph.get());
  Value* x = Input(*model.graph, {Dim::Symbol("batch"), Dim::Symbol("length"), Dim(kWidth)});
  while (b.num_nodes() < nodes) {
    x = b.Call("Add", {x, AttentionLayer(b, RmsNorm(b, x))});
    x = b.Call("Add", {x, GatedMlp(b, RmsNorm(b, x))});
  }
  Output(*model.graph, x);
  return model;
}

}  // namespace

const std::vector<ScaleGraph>& ScaleGraphs() {
  static const auto* graphs = new std::vector<ScaleGraph>{
      {"chain", "elementwise ops, one after the other", Chain},
      {"products", "matrix products, one after the other", Products},
      {"views", "reshapes of reshapes", Views},
      {"fed-views", "reshapes to a shape that is fed", FedViews},
      {"mixed-views", "reshapes with a transpose between them", MixedViews},
      {"fan-out", "one value with a reader a node", FanOut},
      {"outputs", "an output for every other node", Outputs},
      {"twins", "the same node again and again", Twins},
      {"dead", "chains that nothing reads", Dead},
      {"constants", "Constant nodes and what is computed of them", Constants},
      {"ifs", "Ifs of two branches, one after the other", Ifs},
      {"calls", "calls of a function of ten nodes", Calls},
      {"skips", "values that all live to the end", Skips},
      {"decoder", "decoder layers as exporters write them", Decoder}};
  return *graphs;
}

std::map<std::string, Tensor> FeedsOfOnes(const Graph& graph) {
  std::map<std::string, Tensor> feeds;
  for (const Value* input : graph.inputs()) {
    std::vector<int64_t> dims;
    for (const Dim& dim : input->shape()->dims()) dims.push_back(dim.constant().value_or(1));
    const int64_t count = ElementCount(dims).value_or(0);
    feeds[input->name()] = input->dtype() == DataType::kInt64
                               ? Tensor::Of<int64_t>(dims, std::vector<int64_t>(count, 1))
                               : Tensor::Of<float>(dims, std::vector<float>(count, 1));
  }
  return feeds;
}

}  // namespace pagefuse
