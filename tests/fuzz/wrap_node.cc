// SPDX-License-Identifier: Apache-2.0
#include "wrap_node.h"

#include "value_mutator.h"

namespace pagefuse::fuzz {
namespace {

void AddGraph(onnx::NodeProto& node, const char* name, const onnx::GraphProto& graph) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = graph;
}

void AddScalar(onnx::ValueInfoProto& info, const std::string& name, int type) {
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(type);
  info.mutable_type()->mutable_tensor_type()->mutable_shape();
}

// The number of steps, as an initialiser.
std::string AddTrips(Random& random, onnx::GraphProto& graph, const std::string& name) {
  auto& trips = *graph.add_initializer();
  trips.set_name(name);
  trips.set_data_type(onnx::TensorProto::INT64);
  trips.add_int64_data(OddInt(random));
  return name;
}

}  // namespace

void WrapNode(Random& random, onnx::GraphProto& graph, onnx::NodeProto& node,
              const std::vector<std::string>& names, const std::string& prefix) {
  const onnx::NodeProto inner = node;
  node.clear_input();
  node.clear_attribute();
  node.clear_domain();
  onnx::GraphProto body;
  body.set_name("body");
  *body.add_node() = inner;
  for (auto& output : *body.mutable_node(0)->mutable_output()) {
    if (!output.empty()) output = prefix + output;
  }
  if (random.OneIn(3)) {
    node.set_op_type("If");
    node.add_input(OddName(random, names));
    for (const auto& output : body.node(0).output()) body.add_output()->set_name(output);
    AddGraph(node, "then_branch", body);
    AddGraph(node, "else_branch", body);
    return;
  }
  node.set_op_type("Loop");
  node.add_input(random.OneIn(4) ? "" : AddTrips(random, graph, prefix + "trips"));
  node.add_input("");
  AddScalar(*body.add_input(), prefix + "step", onnx::TensorProto::INT64);
  AddScalar(*body.add_input(), prefix + "condition", onnx::TensorProto::BOOL);
  auto& keep = *body.add_node();
  keep.set_op_type("Identity");
  keep.add_input(prefix + "condition");
  keep.add_output(prefix + "go_on");
  AddScalar(*body.add_output(), prefix + "go_on", onnx::TensorProto::BOOL);
  for (const auto& output : body.node(0).output()) body.add_output()->set_name(output);
  if (random.OneIn(2)) {  // the first output is a state
    node.add_input(OddName(random, names));
    const auto& inputs = body.node(0).input();
    body.add_input()->set_name(inputs.empty() ? prefix + "state" : inputs[0]);
  }
  AddGraph(node, "body", body);
}

}  // namespace pagefuse::fuzz
