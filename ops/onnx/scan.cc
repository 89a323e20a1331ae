// SPDX-License-Identifier: Apache-2.0
// Scan: a graph that runs along axes of its inputs, with a state from step to step.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/bodies.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

// One scanned input or output.
struct Scanned {
  int64_t axis = 0;
  bool backwards = false;
};

struct ScanSpec {
  int num_states = 0;
  std::vector<Scanned> inputs, outputs;
};

absl::StatusOr<std::vector<Scanned>> ReadScanned(const Node& node, const std::string& which,
                                                 size_t count) {
  std::vector<Scanned> scanned(count);
  const std::string axes_name = StrCat("scan_", which, "_axes");
  const std::string directions_name = StrCat("scan_", which, "_directions");
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, node.IntsAttribute(axes_name, {}));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> directions,
                      node.IntsAttribute(directions_name, {}));
  for (const auto& [name, values] :
       {std::pair(&axes_name, &axes), std::pair(&directions_name, &directions)}) {
    if (values->empty() || values->size() == count) continue;
    return AttributeError(node, *name, StrCat("expected ", count, " values, got ", values->size()));
  }
  for (size_t i = 0; i < count; ++i) {
    if (!axes.empty()) scanned[i].axis = axes[i];
    if (!directions.empty()) scanned[i].backwards = directions[i] != 0;
  }
  return scanned;
}

absl::StatusOr<ScanSpec> SpecOf(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t num_scanned, node.IntAttribute("num_scan_inputs", 0));
  if (num_scanned < 1 || num_scanned > node.num_inputs()) {
    return AttributeError(node, "num_scan_inputs",
                          StrCat("expected 1 to ", node.num_inputs(), ", got ", num_scanned));
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.input(i) != nullptr) continue;
    return NodeError(node, StrCat("input ", i, " is missing"));
  }
  ScanSpec spec;
  spec.num_states = node.num_inputs() - static_cast<int>(num_scanned);
  const BodyPorts ports{.inputs = static_cast<size_t>(node.num_inputs()),
                        .min_outputs = static_cast<size_t>(spec.num_states)};
  PF_ASSIGN_OR_RETURN(const Graph* body, BodyOf(node, "body", ports));
  PF_ASSIGN_OR_RETURN(spec.inputs, ReadScanned(node, "input", num_scanned));
  PF_ASSIGN_OR_RETURN(spec.outputs,
                      ReadScanned(node, "output", body->outputs().size() - spec.num_states));
  return spec;
}

void BindScan(const ShapeContext& c, Graph& body) {
  const absl::StatusOr<ScanSpec> spec = SpecOf(c.node());
  if (!spec.ok()) return;  // InferScan says what is wrong
  for (int i = 0; i < c.num_inputs(); ++i) {
    Value* input = body.inputs()[i];
    if (input->dtype() == DataType::kUndefined) input->set_dtype(c.input_type(i));
    const Shape* shape = c.input_shape(i);
    if (i < spec->num_states || input->shape() || shape == nullptr) continue;
    const int64_t axis = spec->inputs[i - spec->num_states].axis;
    if (axis < -shape->rank() || axis >= shape->rank()) continue;
    std::vector<Dim> dims = shape->dims();
    dims.erase(dims.begin() + (axis < 0 ? axis + shape->rank() : axis));
    input->set_shape(Shape(std::move(dims)));
  }
}

// The dim of all scanned axes; they must agree.
absl::StatusOr<Dim> LengthOf(const ShapeContext& c, const ScanSpec& spec) {
  Dim length;
  for (size_t k = 0; k < spec.inputs.size(); ++k) {
    const int i = spec.num_states + static_cast<int>(k);
    const Shape* shape = c.input_shape(i);
    if (shape == nullptr) continue;
    PF_ASSIGN_OR_RETURN(const int axis, ResolveAxis(c, spec.inputs[k].axis, shape->rank()));
    const Dim& dim = (*shape)[axis];
    if (Differ(length, dim)) {
      return c.InputError(i, StrCat("expected ", length.ToString(), " elements along axis ", axis,
                                    ", got shape ", shape->ToString()));
    }
    if (!length.known() || dim.is_constant()) length = dim;
  }
  return length;
}

absl::Status InferScan(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const ScanSpec spec, SpecOf(c.node()));
  PF_ASSIGN_OR_RETURN(const Graph* body,
                      BodyOf(c.node(), "body", {static_cast<size_t>(c.num_inputs()), 0}));
  PF_ASSIGN_OR_RETURN(const Dim length, LengthOf(c, spec));
  if (c.num_outputs() > static_cast<int>(body->outputs().size())) {
    return c.Error(
        StrCat("expected at most ", body->outputs().size(), " outputs, got ", c.num_outputs()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Value& value = *body->outputs()[i];
    if (i < spec.num_states) {
      c.SetOutput(i, c.input_type(i), std::nullopt);
      continue;
    }
    std::optional<Shape> whole;
    if (value.shape()) {
      const int64_t rank = value.shape()->rank() + 1;
      int64_t axis = spec.outputs[i - spec.num_states].axis;
      if (axis < -rank || axis >= rank) {
        return c.AttributeError("scan_output_axes",
                                StrCat(axis, " is out of range for rank ", rank));
      }
      std::vector<Dim> dims(value.shape()->rank());
      dims.insert(dims.begin() + (axis < 0 ? axis + rank : axis), length);
      whole = Shape(std::move(dims));
    }
    c.SetOutput(i, value.dtype(), std::move(whole));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> RunScan(const Node& node, const std::vector<Tensor>& inputs,
                                            const BodyRunner& run) {
  PF_ASSIGN_OR_RETURN(const ScanSpec spec, SpecOf(node));
  PF_ASSIGN_OR_RETURN(const Graph* body, BodyOf(node, "body", {inputs.size(), 0}));
  std::vector<Tensor> state(inputs.begin(), inputs.begin() + spec.num_states);
  std::vector<int> axes;
  for (size_t k = 0; k < spec.inputs.size(); ++k) {
    axes.push_back(KernelAxis(spec.inputs[k].axis, inputs[spec.num_states + k].rank()));
  }
  const int64_t length = inputs[spec.num_states].dims()[axes[0]];
  std::vector<std::vector<Tensor>> steps(spec.outputs.size());
  for (int64_t i = 0; i < length; ++i) {
    std::vector<Tensor> args = state;
    for (size_t k = 0; k < spec.inputs.size(); ++k) {
      const int64_t index = spec.inputs[k].backwards ? length - 1 - i : i;
      PF_ASSIGN_OR_RETURN(Tensor slice, SliceOf(inputs[spec.num_states + k], axes[k], index));
      args.push_back(std::move(slice));
    }
    PF_ASSIGN_OR_RETURN(std::vector<Tensor> results, RunBody(node, run, *body, std::move(args)));
    for (int k = 0; k < spec.num_states; ++k) state[k] = std::move(results[k]);
    for (size_t k = 0; k < steps.size(); ++k) steps[k].push_back(results[spec.num_states + k]);
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    if (spec.outputs[k].backwards) std::reverse(steps[k].begin(), steps[k].end());
    PF_ASSIGN_OR_RETURN(Tensor whole, Stack(node, steps[k], spec.outputs[k].axis,
                                            *body->outputs()[spec.num_states + k]));
    state.push_back(std::move(whole));
  }
  return state;
}

}  // namespace

OpDef ScanDef() {
  return OpDef("", "Scan", 9)
      .Bodies({RunScan, BindScan})
      .Doc(
          "Runs a graph for each index of an axis of the scanned inputs: (state..., slices...) to "
          "(state..., slices...). The outputs are the last state, then the slices, stacked.")
      .Input("initial_state_and_scan_inputs", "", "", PortKind::kVariadic)
      .Output("final_state_and_scan_outputs", "V", "", PortKind::kVariadic)
      .RequiredAttr("body", "the graph")
      .RequiredAttr("num_scan_inputs", "inputs that are scanned: the last ones")
      .Attr("scan_input_axes", std::vector<int64_t>{}, "0 if not given")
      .Attr("scan_input_directions", std::vector<int64_t>{}, "1: from the back")
      .Attr("scan_output_axes", std::vector<int64_t>{}, "of the stacked outputs; 0 if not given")
      .Attr("scan_output_directions", std::vector<int64_t>{}, "1: stacked from the back")
      .Types("V", AllTypes())
      .InferShapes(InferScan);
}

}  // namespace pagefuse::onnx_ops
