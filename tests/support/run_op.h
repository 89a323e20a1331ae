// SPDX-License-Identifier: Apache-2.0
// Runs one op of the domain pagefuse on tensors.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "must.h"
#include "simd_targets.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse::testing {

struct OpCall {
  std::string op;
  std::vector<Tensor> inputs;  // undefined: omitted
  std::vector<std::pair<std::string, decltype(Attribute::value)>> attributes;
  int num_outputs = 1;
};

// The outputs in order. Inputs stay unchanged.
inline absl::StatusOr<std::vector<Tensor>> RunOp(const OpCall& call,
                                                 const EvaluateOptions& options = {}) {
  Graph graph;
  std::vector<Value*> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& tensor = call.inputs[i];
    inputs.push_back(!tensor.defined() ? nullptr
                                       : graph.AddInput("in" + std::to_string(i), tensor.dtype(),
                                                        Shape::FromInts(tensor.dims())));
  }
  std::vector<Value*> outputs;
  for (int i = 0; i < call.num_outputs; ++i) {
    outputs.push_back(graph.AddValue("out" + std::to_string(i)));
  }
  Node* node = graph.AddNode("pagefuse", call.op, inputs, outputs);
  node->name = "n";
  for (const auto& [name, value] : call.attributes) node->SetAttribute(name, {value, "", ""});
  return EvaluateNode(*node, 1, call.inputs, options);
}

// Runs the op by each kernel on every SIMD target, and `check` on what it puts out.
template <typename Check>
void ForEachRun(const OpCall& call, const Check& check) {
  for (const char* kernel : {"reference", "hwy"}) {
    SCOPED_TRACE(kernel);
    ForEachSimdTarget([&] { check(Must(RunOp(call, {.force_kernel = kernel}))); });
  }
}

}  // namespace pagefuse::testing
