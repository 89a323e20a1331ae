// Elementwise: a chain of elementwise ops in one pass over memory. The node holds the chain as a
// graph; its kernel runs the kernels of the graph's nodes on one tile after the other, so that what
// lies between them stays in the cache, and every element is what it is without the chain.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/onnx/body_op.h"
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

bool BroadcastsTo(const std::vector<int64_t>& dims, const std::vector<int64_t>& output) {
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[dims.size() - 1 - i];
    if (dim != 1 && (i >= output.size() || dim != output[output.size() - 1 - i])) return false;
  }
  return true;
}

// Tiles are parts of every value, so none may be larger than the output.
absl::Status CheckBroadcasts(const ShapeContext& c, const ChainValues& values,
                             const std::vector<int64_t>& output) {
  for (const auto& [value, known] : values) {
    const auto dims = known.shape ? known.shape->constant() : std::nullopt;
    if (!dims || BroadcastsTo(*dims, output)) continue;
    return c.Error(StrCat("\"", value->name(), "\" of its graph is ", DimsToString(*dims),
                          ", which does not broadcast to the output's ", DimsToString(output)));
  }
  return absl::OkStatus();
}

absl::Status InferElementwise(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const ChainGraph chain, ChainOf(c.node()));
  PF_ASSIGN_OR_RETURN(const std::vector<Known> inputs, KnownInputs(c, *chain.body));
  PF_ASSIGN_OR_RETURN(const ChainValues values, InferChain(chain, inputs));
  const Value* result = chain.body->outputs()[0];
  const Known& known = values.at(result);
  const auto dims = known.shape ? known.shape->constant() : std::nullopt;
  if (dims) PF_RETURN_IF_ERROR(CheckBroadcasts(c, values, *dims));
  // Where symbols are broadcast, the graph that was inferred has the names of the sizes.
  c.SetOutput(0, known.dtype, dims ? known.shape : result->shape());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> RunGraph(const Node& node, const std::vector<Tensor>& inputs,
                                             const BodyRunner& run) {
  PF_ASSIGN_OR_RETURN(const ChainGraph chain, ChainOf(node));
  return onnx_ops::RunBody(node, run, *chain.body, inputs);
}

}  // namespace

BodyOp ElementwiseBodies() { return {RunGraph, Bind}; }

OpDef ElementwiseDef() {
  return OpDef("pagefuse", "Elementwise", /*since=*/1)
      .Doc(
          "A chain of elementwise ops of ai.onnx that runs in one pass over memory, tile by tile, "
          "each node by its own kernel. Values of the chain broadcast to its output.")
      .Input("X", "", "all broadcast", PortKind::kVariadic)
      .Output("Y", "T", "the broadcast shape")
      .RequiredAttr("body",
                    "the chain: a graph from the inputs to one output, which reads nothing "
                    "from around it")
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
