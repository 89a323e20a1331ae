// SPDX-License-Identifier: Apache-2.0
#include "interfaces.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {
namespace {

bool IsRow(const Value& value, int rank) {
  const bool number = value.dtype() == DataType::kFloat || value.dtype() == DataType::kFloat16 ||
                      value.dtype() == DataType::kBfloat16;
  return number && value.shape() && value.shape()->rank() == rank && !value.is_output() &&
         !value.initializer() && (*value.shape())[0].symbol();
}

Node* FirstReader(const Graph& graph) {
  return graph.nodes().empty() ? nullptr : graph.nodes().front().get();
}

// A node that computes from the input what the graph has read so far.
void ReadThrough(Graph& graph, Value* input, Shape given, std::string_view op,
                 std::vector<Value*> more, const std::function<void(Node&)>& fill = nullptr) {
  Value* inner = graph.AddValue(graph.UniqueName("inner"), input->dtype(), input->shape());
  graph.ReplaceAllUses(input, inner);
  more.insert(more.begin(), input);
  Node* node = graph.AddNode("", op, std::move(more), {inner}, FirstReader(graph));
  if (fill) fill(*node);
  input->set_shape(std::move(given));
}

Value* Ints(Graph& graph, const std::vector<int64_t>& numbers) {
  const auto size = static_cast<int64_t>(numbers.size());
  return graph.AddInitializer(graph.UniqueName("ints"), Tensor::Of<int64_t>({size}, numbers));
}

void Reshape(std::vector<Feeds>& feeds, const std::string& name,
             const std::function<std::vector<int64_t>(const std::vector<int64_t>&)>& dims) {
  for (Feeds& some : feeds) {
    const auto it = some.find(name);
    if (it == some.end()) continue;
    const auto reshaped = it->second.Reshaped(dims(it->second.dims()));
    if (reshaped.ok()) it->second = *reshaped;
  }
}

bool RowsWithoutHeads(Model& model, std::vector<Feeds>& feeds) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    if (!IsRow(*input, 3)) continue;
    const Shape shape = *input->shape();
    const auto heads = shape[1].constant(), size = shape[2].constant();
    if (!heads || !size) continue;
    ReadThrough(graph, input, Shape{shape[0], Dim(*heads * *size)}, "Reshape",
                {Ints(graph, {-1, *heads, *size})});
    Reshape(feeds, input->name(), [](const auto& dims) {
      return std::vector<int64_t>{dims[0], dims[1] * dims[2]};
    });
    changed = true;
  }
  return changed;
}

bool BatchOfOne(Model& model, std::vector<Feeds>& feeds) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    if (!IsRow(*input, 2) && !IsRow(*input, 3)) continue;
    std::vector<Dim> dims = input->shape()->dims();
    dims.insert(dims.begin(), Dim(1));
    ReadThrough(graph, input, Shape(dims), "Squeeze", {Ints(graph, {0})});
    Reshape(feeds, input->name(), [](std::vector<int64_t> was) {
      was.insert(was.begin(), 1);
      return was;
    });
    changed = true;
  }
  return changed;
}

// [T, H, D] given as [H, T, D].
bool HeadsFirst(Model& model, std::vector<Feeds>& feeds) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    if (!IsRow(*input, 3)) continue;
    const Shape shape = *input->shape();
    const std::vector<int64_t> perm = {1, 0, 2};
    const auto turn = [&perm](Node& node) { node.SetAttribute("perm", MakeAttribute(perm)); };
    ReadThrough(graph, input, Shape{shape[1], shape[0], shape[2]}, "Transpose", {}, turn);
    Model turned;
    turned.graph = std::make_shared<Graph>();
    turned.opset_imports = {{"", kNewestOpset}};
    Value* x = turned.graph->AddInput("x", input->dtype(), std::nullopt);
    Value* y = turned.graph->AddValue("y");
    turn(*turned.graph->AddNode("", "Transpose", {x}, {y}));
    turned.graph->AddOutput(y);
    for (Feeds& some : feeds) {
      const auto it = some.find(input->name());
      if (it == some.end()) continue;
      const auto result = EvaluateModel(turned, {{"x", it->second}});
      if (result.ok()) it->second = result->front();
    }
    changed = true;
  }
  return changed;
}

// Indices of the other width.
bool OtherIntegers(Model& model, std::vector<Feeds>& feeds) {
  Graph& graph = *model.graph;
  bool changed = false;
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    const bool wide = input->dtype() == DataType::kInt64;
    if ((!wide && input->dtype() != DataType::kInt32) || input->is_output()) continue;
    const DataType was = input->dtype();
    const DataType other = wide ? DataType::kInt32 : DataType::kInt64;
    ReadThrough(graph, input, *input->shape(), "Cast", {}, [was](Node& cast) {
      cast.SetAttribute("to", MakeAttribute(static_cast<int64_t>(was)));
    });
    input->set_dtype(other);
    for (Feeds& some : feeds) {
      const auto it = some.find(input->name());
      const auto numbers = it == some.end()
                               ? absl::StatusOr<std::vector<int64_t>>(absl::NotFoundError(""))
                               : IntegerValues(it->second);
      if (!numbers.ok()) continue;
      const std::vector<int64_t> dims = it->second.dims();
      it->second = wide ? Tensor::Of<int32_t>(dims, {numbers->begin(), numbers->end()})
                        : Tensor::Of<int64_t>(dims, *numbers);
    }
    changed = true;
  }
  return changed;
}

// Along the last axis.
Tensor Beside(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> dims = a.dims();
  const int64_t bytes = BitWidth(a.dtype()) / 8;
  const int64_t first = dims.back() * bytes, second = b.dims().back() * bytes;
  dims.back() += b.dims().back();
  auto joined = Tensor::Allocate(a.dtype(), dims);
  if (!joined.ok()) return {};
  const int64_t rows = joined->size() / std::max<int64_t>(dims.back(), 1);
  auto* to = static_cast<std::byte*>(joined->mutable_data());
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * (first + second), static_cast<const std::byte*>(a.data()) + row * first,
                first);
    std::memcpy(to + row * (first + second) + first,
                static_cast<const std::byte*>(b.data()) + row * second, second);
  }
  return *joined;
}

bool MayJoin(const Value& a, const Value& b) {
  for (int rank : {2, 3}) {
    if (!IsRow(a, rank) || !IsRow(b, rank) || a.dtype() != b.dtype()) continue;
    for (int axis = 0; axis + 1 < rank; ++axis) {
      if (!ProvablyEqual((*a.shape())[axis], (*b.shape())[axis])) return false;
    }
    return a.shape()->back(0).constant() && b.shape()->back(0).constant();
  }
  return false;
}

// Two inputs of as many rows as parts of one, as a projection gives both.
bool RowsInOne(Model& model, std::vector<Feeds>& feeds) {
  Graph& graph = *model.graph;
  const std::vector<Value*> inputs(graph.inputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t j = i + 1; j < inputs.size(); ++j) {
      if (!MayJoin(*inputs[i], *inputs[j])) continue;
      const int64_t first = *inputs[i]->shape()->back(0).constant();
      const int64_t second = *inputs[j]->shape()->back(0).constant();
      std::vector<Value*> parts;
      for (size_t at : {i, j}) {
        parts.push_back(
            graph.AddValue(graph.UniqueName("part"), inputs[at]->dtype(), inputs[at]->shape()));
        graph.ReplaceAllUses(inputs[at], parts.back());
      }
      Node* split = graph.AddNode("", "Split", {inputs[i], Ints(graph, {first, second})}, parts,
                                  FirstReader(graph));
      split->SetAttribute("axis", MakeAttribute(int64_t{-1}));
      std::vector<Dim> dims = inputs[i]->shape()->dims();
      dims.back() = Dim(first + second);
      inputs[i]->set_shape(Shape(dims));
      for (Feeds& some : feeds) {
        some[inputs[i]->name()] = Beside(some.at(inputs[i]->name()), some.at(inputs[j]->name()));
        some.erase(inputs[j]->name());
      }
      graph.RemoveInput(static_cast<int>(j));
      return true;
    }
  }
  return false;
}

constexpr Interface kInterfaces[] = {
    {"rows without heads", RowsWithoutHeads},
    {"batch of one", BatchOfOne},
    {"heads first", HeadsFirst},
    {"other integers", OtherIntegers},
    {"rows in one", RowsInOne},
};

}  // namespace

std::span<const Interface> Interfaces() { return kInterfaces; }

}  // namespace pagefuse
