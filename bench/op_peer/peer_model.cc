// SPDX-License-Identifier: Apache-2.0
#include "peer_model.h"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "runtime_body.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/schema/function_body.h"

namespace pagefuse {
namespace {

constexpr int64_t kOpset = 26;  // the first with BitCast
constexpr int64_t kIrVersion = 11;
constexpr char kFunctionDomain[] = "pagefuse.peer";

// How a type enters and leaves a graph.
DataType CarrierOf(DataType type) {
  const bool half = type == DataType::kFloat16 || type == DataType::kBfloat16;
  return half ? DataType::kUint16 : RuntimeType(type);
}

Value* AddBitCast(Graph& graph, Value* from, Value* to) {
  Node* node = graph.AddNode("", "BitCast", {from}, {to});
  node->SetAttribute("to", Attribute{static_cast<int64_t>(to->dtype()), "", ""});
  return to;
}

// The value that the function reads for an input of `type`.
Value* AddPeerInput(PeerModel& peer, const std::string& name, const Tensor& tensor) {
  Graph& graph = *peer.model.graph;
  const DataType carrier = CarrierOf(tensor.dtype());
  const Shape shape = Shape::FromInts(tensor.dims());
  Value* input = graph.AddInput(name, carrier, shape);
  peer.inputs.emplace_back(name, tensor);
  if (carrier == RuntimeType(tensor.dtype())) return input;
  return AddBitCast(graph, input, graph.AddValue(name + "_typed", tensor.dtype(), shape));
}

void AddPeerOutput(Graph& graph, const std::string& name, Value* value) {
  const DataType carrier = CarrierOf(value->dtype());
  if (carrier != value->dtype()) {
    value = AddBitCast(graph, value, graph.AddValue(name, carrier, value->shape()));
  }
  graph.AddOutput(value);
}

PeerModel EmptyPeer(std::string op) {
  PeerModel peer;
  peer.op = std::move(op);
  peer.model.ir_version = kIrVersion;
  peer.model.opset_imports = {{"", kOpset}};
  peer.model.graph = std::make_shared<Graph>();
  peer.model.graph->name = "peer";
  return peer;
}

int FindPort(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// Gives the node the op's defaults of attributes that it leaves out.
void FillDefaults(const OpDef& op, Node& node) {
  for (const AttributeDef& def : op.attributes()) {
    if (node.attribute(def.name) != nullptr) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            node.SetAttribute(def.name, Attribute{value, "", ""});
          }
        },
        def.default_value);
  }
}

// The decomposition with all attributes put in.
absl::StatusOr<Function> DecompositionOf(const OpDef& op, const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string text, op.Decompose(node));
  PF_ASSIGN_OR_RETURN(Function function, ParseFunction(text));
  Graph scratch;
  Node* caller = scratch.AddNode(node.domain(), node.op_type(), {}, {});
  for (const auto& [name, attribute] : node.attributes()) caller->SetAttribute(name, attribute);
  FillDefaults(op, *caller);
  function.body = InstantiateBody(function, *caller);
  AdaptToRuntime(*function.body);
  function.attributes.clear();
  function.defaults.clear();
  function.domain = kFunctionDomain;
  function.name = op.name();
  function.opset_imports = {{"", kOpset}};
  return function;
}

}  // namespace

PeerModel NodePeer(OpCall& call) {
  const Node& node = *call.args().node;
  PeerModel peer = EmptyPeer(node.op_type());
  if (!node.domain().empty()) peer.model.opset_imports[node.domain()] = call.opset();
  Graph& graph = *peer.model.graph;
  std::vector<Value*> inputs, outputs;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.input(i) == nullptr) {
      inputs.push_back(nullptr);
    } else if (call.IsConstant(i)) {
      inputs.push_back(graph.AddInitializer(node.input(i)->name(), call.input(i)));
    } else {
      inputs.push_back(AddPeerInput(peer, node.input(i)->name(), call.input(i)));
    }
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Value& ours = *node.output(i);
    const bool carried = CarrierOf(ours.dtype()) != ours.dtype();
    outputs.push_back(
        graph.AddValue(ours.name() + (carried ? "_typed" : ""), ours.dtype(), ours.shape()));
  }
  Node* copy = graph.AddNode(node.domain(), node.op_type(), inputs, outputs);
  for (const auto& [name, attribute] : node.attributes()) copy->SetAttribute(name, attribute);
  for (int i = 0; i < node.num_outputs(); ++i) {
    AddPeerOutput(graph, node.output(i)->name(), outputs[i]);
  }
  return peer;
}

absl::StatusOr<PeerModel> DecompositionPeer(OpCall& call) {
  const OpDef& op = call.op();
  const Node& node = *call.args().node;
  if (!op.has_decomposition()) {
    return absl::UnimplementedError(absl::StrCat(op.name(), " has no decomposition"));
  }
  PF_ASSIGN_OR_RETURN(Function function, DecompositionOf(op, node));
  PeerModel peer = EmptyPeer("decomposition");
  peer.model.opset_imports[kFunctionDomain] = 1;
  Graph& graph = *peer.model.graph;
  std::vector<Value*> inputs, outputs;
  for (const Value* formal : function.body->inputs()) {
    const int port = FindPort(op.inputs(), formal->name());
    const bool present = port >= 0 && node.input(port) != nullptr;
    inputs.push_back(present ? AddPeerInput(peer, formal->name(), call.input(port)) : nullptr);
  }
  std::vector<std::pair<std::string, Value*>> results;
  for (const Value* formal : function.body->outputs()) {
    const int port = FindPort(op.outputs(), formal->name());
    const Value* ours = port < 0 ? nullptr : node.output(port);
    if (ours == nullptr) {
      outputs.push_back(nullptr);
      continue;
    }
    const DataType type = RuntimeType(ours->dtype());
    const std::string suffix = CarrierOf(type) == type ? "" : "_typed";
    outputs.push_back(graph.AddValue(formal->name() + suffix, type, ours->shape()));
    results.emplace_back(formal->name(), outputs.back());
  }
  graph.AddNode(kFunctionDomain, op.name(), inputs, outputs);
  for (const auto& [name, value] : results) AddPeerOutput(graph, name, value);
  peer.model.functions.push_back(std::move(function));
  return peer;
}

namespace {

Tensor Zeros(DataType type, std::vector<int64_t> dims) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(type, std::move(dims));
  PF_CHECK(tensor.ok());
  return *std::move(tensor);
}

// Numbers between -1 and 1; how long it takes does not depend on them.
Tensor Numbers(DataType type, std::vector<int64_t> dims) {
  Tensor tensor = Zeros(type, std::move(dims));
  std::mt19937 random(1);
  std::uniform_int_distribution<int> uniform(-127, 127);
  if (type == DataType::kInt8) {
    for (int8_t& x : tensor.mutable_values<int8_t>()) x = static_cast<int8_t>(uniform(random));
  } else {
    for (float& x : tensor.mutable_values<float>()) {
      x = static_cast<float>(uniform(random)) / 128.0f;
    }
  }
  return tensor;
}

}  // namespace

PeerModel GroupQueryAttentionPeer(const PeerAttentionShape& shape, bool quantised) {
  const auto& [heads, kv_heads, head_size, length] = shape;
  PeerModel peer = EmptyPeer("GroupQueryAttention");
  peer.model.opset_imports["com.microsoft"] = 1;
  Graph& graph = *peer.model.graph;
  const DataType cache = quantised ? DataType::kInt8 : DataType::kFloat;
  const std::vector<int64_t> cache_dims = {1, kv_heads, length, head_size};
  std::vector<Value*> inputs;
  const auto add = [&](const char* name, const Tensor& tensor) {
    inputs.push_back(AddPeerInput(peer, name, tensor));
  };
  add("query", Numbers(DataType::kFloat, {1, 1, heads * head_size}));
  add("key", Numbers(DataType::kFloat, {1, 1, kv_heads * head_size}));
  add("value", Numbers(DataType::kFloat, {1, 1, kv_heads * head_size}));
  add("past_key", Numbers(cache, cache_dims));
  add("past_value", Numbers(cache, cache_dims));
  add("seqlens_k", Tensor::Of<int32_t>({1}, {static_cast<int32_t>(length - 1)}));
  add("total_sequence_length", Tensor::Scalar<int32_t>(static_cast<int32_t>(length)));
  if (quantised) {
    constexpr size_t kScalePort = 12;
    inputs.resize(kScalePort);
    for (const char* name : {"k_scale", "v_scale"}) add(name, Tensor::Of<float>({1}, {1.0f / 128}));
  }
  const std::vector<Value*> outputs = {
      graph.AddValue("output", DataType::kFloat, Shape::FromInts({1, 1, heads * head_size})),
      graph.AddValue("present_key", cache, Shape::FromInts(cache_dims)),
      graph.AddValue("present_value", cache, Shape::FromInts(cache_dims))};
  Node* node = graph.AddNode("com.microsoft", peer.op, inputs, outputs);
  node->SetAttribute("num_heads", Attribute{heads, "", ""});
  node->SetAttribute("kv_num_heads", Attribute{kv_heads, "", ""});
  if (quantised) {
    for (const char* name : {"k_quant_type", "v_quant_type"}) {
      node->SetAttribute(name, Attribute{std::string("PER_TENSOR"), "", ""});
    }
    node->SetAttribute("kv_cache_bit_width", Attribute{int64_t{8}, "", ""});
  }
  for (Value* output : outputs) graph.AddOutput(output);
  peer.in_place = {{"present_key", "past_key"}, {"present_value", "past_value"}};
  return peer;
}

}  // namespace pagefuse
