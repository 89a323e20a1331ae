// SPDX-License-Identifier: Apache-2.0
// Elementwise: a chain of elementwise ops in one pass over memory. The node holds the chain as a
// graph; its kernel runs the kernels of the graph's nodes on one tile after the other, so that what
// lies between them stays in the cache, and every element is what it is without the chain.
#include "pagefuse/ops/onnx/elementwise.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/bodies.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/pagefuse/elementwise/elementwise_chain.h"

namespace pagefuse::pagefuse_ops {
namespace {

using Known = ShapeContext::Known;

// Only the node's inputs decide the shapes inside.
void Bind(const ShapeContext& c, Graph& body) {
  for (Value* value : body.values()) {
    if (value->initializer() == nullptr) value->set_shape(std::nullopt);
  }
  for (int i = 0; i < std::min(c.num_inputs(), static_cast<int>(body.inputs().size())); ++i) {
    Value* input = body.inputs()[i];
    if (input->dtype() == DataType::kUndefined) input->set_dtype(c.input_type(i));
    if (const Shape* shape = c.input_shape(i)) input->set_shape(*shape);
  }
}

absl::StatusOr<std::vector<Known>> KnownInputs(const ShapeContext& c, const Graph& body) {
  std::vector<Known> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has_input(i)) return c.InputError(i, "is missing");
    const DataType type = c.input_type(i);
    const DataType declared = body.inputs()[i]->dtype();
    if (type != DataType::kUndefined && declared != DataType::kUndefined && type != declared) {
      return c.InputError(i, StrCat("expected type ", DataTypeName(declared),
                                    " as its graph says, got ", DataTypeName(type)));
    }
    const Shape* shape = c.input_shape(i);
    inputs.push_back({type, shape == nullptr ? std::nullopt : std::optional<Shape>(*shape),
                      std::nullopt, nullptr});
  }
  return inputs;
}

// All inputs reach the output through elementwise ops, so its shape is theirs, broadcast.
absl::Status SetOutput(ShapeContext& c, const Graph& body, DataType dtype) {
  PF_RETURN_IF_ERROR(onnx_ops::InferBroadcast(c, dtype));
  std::optional<Shape> shape = c.outputs()[0].shape;
  for (const Value* constant : body.initializers()) {
    if (!shape) break;
    PF_ASSIGN_OR_RETURN(
        shape, BroadcastShapes(c, *shape, Shape::FromInts(constant->initializer()->dims())));
  }
  c.SetOutput(0, dtype, std::move(shape));
  return absl::OkStatus();
}

// Only a run knows the contents of all inputs.
bool IsRun(const ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.carried_tensor(i) == nullptr) return false;
  }
  return true;
}

absl::Status InferElementwise(ShapeContext& c) {
  const onnx_ops::BodyPorts ports{.inputs = static_cast<size_t>(c.num_inputs()), .min_outputs = 1};
  PF_ASSIGN_OR_RETURN(const Graph* body, onnx_ops::BodyOf(c.node(), "body", ports));
  const DataType inferred = body->outputs()[0]->dtype();
  // The graph was checked when it was loaded, or is when it is evaluated. To walk it again in every
  // run would take longer than small tensors do.
  if (IsRun(c) && inferred != DataType::kUndefined) return SetOutput(c, *body, inferred);
  PF_ASSIGN_OR_RETURN(const ChainGraph chain, ChainOf(c.node()));
  PF_ASSIGN_OR_RETURN(const std::vector<Known> inputs, KnownInputs(c, *body));
  PF_ASSIGN_OR_RETURN(const ChainValues values, InferChain(chain, inputs));
  const Known& known = values.at(body->outputs()[0]);
  PF_RETURN_IF_ERROR(SetOutput(c, *body, known.dtype));
  const std::optional<Shape>& shape = c.outputs()[0].shape;
  if (!known.shape || !shape || known.shape->rank() == shape->rank()) return absl::OkStatus();
  return c.Error(StrCat("its graph gives ", known.shape->ToString(), ", its inputs broadcast to ",
                        shape->ToString()));
}

absl::StatusOr<std::vector<Tensor>> RunGraph(const Node& node, const std::vector<Tensor>& inputs,
                                             const BodyRunner& run) {
  PF_ASSIGN_OR_RETURN(const ChainGraph chain, ChainOf(node));
  return onnx_ops::RunBody(node, run, *chain.body, inputs);
}

}  // namespace

OpDef ElementwiseDef() {
  return OpDef("pagefuse", "Elementwise", /*since=*/1)
      .Bodies({RunGraph, Bind})
      .Doc(
          "A chain of elementwise ops of ai.onnx that runs in one pass over memory, tile by tile, "
          "each node by its own kernel.")
      .Input("X", "", "all broadcast", PortKind::kVariadic)
      .Output("Y", "T", "the broadcast shape")
      .RequiredAttr("body",
                    "the chain: a graph from the inputs, all of which it reads, to one output; it "
                    "reads nothing from around it")
      .Types("T", onnx_ops::AllTypes())
      .InferShapes(InferElementwise)
      .AddKernel(
          {.name = "tiles",
           .priority = 10,
           .supports = [](const KernelQuery& query) { return CompileChain(query).status(); },
           .prepare = [](const PrepareArgs& args) -> absl::StatusOr<std::unique_ptr<KernelState>> {
             return CompileChain(args.query);
           },
           .run = RunChain})
      .InPlace(0, 0);
}

}  // namespace pagefuse::pagefuse_ops
