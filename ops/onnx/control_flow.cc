// SPDX-License-Identifier: Apache-2.0
// If and Loop: graphs that run once, or again and again.
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/bodies.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// --- If ---

// What both branches agree on.
std::optional<Shape> CommonShape(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b || a->rank() != b->rank()) return std::nullopt;
  Shape common = *a;
  for (int i = 0; i < common.rank(); ++i) {
    if (!ProvablyEqual((*a)[i], (*b)[i])) common[i] = Dim();
  }
  return common;
}

absl::Status InferIf(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 0));
  const BodyPorts ports{.inputs = 0, .min_outputs = static_cast<size_t>(c.num_outputs())};
  PF_ASSIGN_OR_RETURN(const Graph* yes, BodyOf(c.node(), "then_branch", ports));
  PF_ASSIGN_OR_RETURN(const Graph* no, BodyOf(c.node(), "else_branch", ports));
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Value& a = *yes->outputs()[i];
    const Value& b = *no->outputs()[i];
    const bool both = a.dtype() != DataType::kUndefined && b.dtype() != DataType::kUndefined;
    if (both && a.dtype() != b.dtype()) {
      return c.Error(StrCat("output ", i, " is ", DataTypeName(a.dtype()), " in one branch, ",
                            DataTypeName(b.dtype()), " in the other"));
    }
    c.SetOutput(i, a.dtype() != DataType::kUndefined ? a.dtype() : b.dtype(),
                CommonShape(a.shape(), b.shape()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> RunIf(const Node& node, const std::vector<Tensor>& inputs,
                                          const BodyRunner& run) {
  PF_ASSIGN_OR_RETURN(const bool condition, OneBool(node, "input 0 \"cond\"", inputs[0]));
  const BodyPorts ports{.inputs = 0, .min_outputs = static_cast<size_t>(node.num_outputs())};
  PF_ASSIGN_OR_RETURN(const Graph* branch,
                      BodyOf(node, condition ? "then_branch" : "else_branch", ports));
  return RunBody(node, run, *branch, {});
}

void BindNothing(const ShapeContext&, Graph&) {}

// --- Loop ---

BodyPorts LoopPorts(int node_inputs) {
  const auto carried = static_cast<size_t>(node_inputs > 2 ? node_inputs - 2 : 0);
  return {.inputs = 2 + carried, .min_outputs = 1 + carried};
}

void BindLoop(const ShapeContext& c, Graph& body) {
  const std::vector<Value*>& inputs = body.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < 2) {
      inputs[i]->set_dtype(i == 0 ? DataType::kInt64 : DataType::kBool);
      if (!inputs[i]->shape()) inputs[i]->set_shape(Shape());
    } else if (inputs[i]->dtype() == DataType::kUndefined) {
      // The type stays as it is from step to step, the shape need not.
      inputs[i]->set_dtype(c.input_type(static_cast<int>(i)));
    }
  }
}

absl::Status InferLoop(ShapeContext& c) {
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 0));
  PF_RETURN_IF_ERROR(ExpectOneElement(c, 1));
  const BodyPorts ports = LoopPorts(c.num_inputs());
  PF_ASSIGN_OR_RETURN(const Graph* body, BodyOf(c.node(), "body", ports));
  const int carried = static_cast<int>(ports.inputs) - 2;
  for (int i = 0; i < carried; ++i) {
    if (!c.has_input(2 + i)) return c.InputError(2 + i, "is missing");
  }
  if (c.num_outputs() >= static_cast<int>(body->outputs().size())) {
    return c.Error(
        StrCat("expected at most ", body->outputs().size() - 1, " outputs, got ", c.num_outputs()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Value& value = *body->outputs()[1 + i];
    if (i < carried) {
      const DataType type = c.input_type(2 + i);
      if (type != DataType::kUndefined && value.dtype() != DataType::kUndefined &&
          type != value.dtype()) {
        return c.InputError(2 + i, StrCat("expected type ", DataTypeName(value.dtype()),
                                          " as its graph gives, got ", DataTypeName(type)));
      }
      c.SetOutput(i, type, std::nullopt);
      continue;
    }
    std::optional<Shape> stacked;
    if (value.shape()) {
      std::vector<Dim> dims(value.shape()->rank() + 1);
      stacked = Shape(std::move(dims));
    }
    c.SetOutput(i, value.dtype(), std::move(stacked));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> RunLoop(const Node& node, const std::vector<Tensor>& inputs,
                                            const BodyRunner& run) {
  const BodyPorts ports = LoopPorts(node.num_inputs());
  PF_ASSIGN_OR_RETURN(const Graph* body, BodyOf(node, "body", ports));
  int64_t limit = std::numeric_limits<int64_t>::max();
  bool go_on = true;
  if (!inputs.empty() && inputs[0].defined()) limit = inputs[0].values<int64_t>()[0];
  if (inputs.size() > 1 && inputs[1].defined()) {
    PF_ASSIGN_OR_RETURN(go_on, OneBool(node, "input 1 \"cond\"", inputs[1]));
  }
  const size_t carried = ports.inputs - 2;
  std::vector<Tensor> state(inputs.end() - static_cast<int64_t>(carried), inputs.end());
  std::vector<std::vector<Tensor>> steps(body->outputs().size() - 1 - carried);
  for (int64_t i = 0; i < limit && go_on; ++i) {
    std::vector<Tensor> args = {Tensor::Scalar<int64_t>(i), Tensor::Scalar(true)};
    args.insert(args.end(), state.begin(), state.end());
    PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, RunBody(node, run, *body, std::move(args)));
    PF_ASSIGN_OR_RETURN(go_on, OneBool(node, "the condition of its graph", results[0]));
    for (size_t k = 0; k < carried; ++k) state[k] = std::move(results[1 + k]);
    for (size_t k = 0; k < steps.size(); ++k) steps[k].push_back(results[1 + carried + k]);
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    PF_ASSIGN_OR_RETURN(Tensor whole, Stack(node, steps[k], 0, *body->outputs()[1 + carried + k]));
    state.push_back(std::move(whole));
  }
  return state;
}

}  // namespace

OpDef IfDef() {
  return OpDef("", "If", 1)
      .Bodies({RunIf, BindNothing})
      .Doc("The outputs of one of two graphs, which read what they need from around the node.")
      .Input("cond", "bool", "[]")
      .Output("outputs", "V", "as the graphs say", PortKind::kVariadic)
      .RequiredAttr("then_branch", "the graph that runs where cond is true")
      .RequiredAttr("else_branch", "the graph that runs where it is false")
      .Types("V", AllTypes())
      .InferShapes(InferIf);
}

OpDef LoopDef() {
  return OpDef("", "Loop", 1)
      .Bodies({RunLoop, BindLoop})
      .Doc(
          "Runs a graph M times, or until its condition is false: (step, cond, state...) to (cond, "
          "state..., scanned...). The last state is the output, and what was scanned, stacked.")
      .Input("M", "int64", "[]", PortKind::kOptional)
      .Input("cond", "bool", "[]", PortKind::kOptional)
      .Input("v_initial", "", "the state before the first step; its shape may change",
             PortKind::kVariadic)
      .Output("v_final_and_scan_outputs", "V", "", PortKind::kVariadic)
      .RequiredAttr("body", "the graph")
      .Types("V", AllTypes())
      .InferShapes(InferLoop);
}

}  // namespace pagefuse::onnx_ops
