// microsoft-ops: ops of com.microsoft that hold an attention, or the embedding before it, are
// written out in standard ops, as their decompositions say, so that what reads graphs by meaning
// sees projection, heads, masks and caches.
//
//   y, present = com.microsoft.Attention <num_heads = H> (x, w, b, mask_index, past)
//     =>  q, k, v = heads of the three parts of x w + b
//         y, .. = Attention (q, k, v, Where (mask_index, 0, -10000), past[0], past[1])
#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/ops/function_body.h"
#include "pagefuse/ops/registry.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/splice_body.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "microsoft-ops";

// Products of heads: of matrices that are no weights.
bool IsProductOfHeads(const Node& node) {
  if (!node.Is("FusedMatMul", "com.microsoft")) return false;
  for (int side : {0, 1}) {
    const Value* factor = node.input(side);
    if (factor->IsConstant() || !factor->shape() || factor->shape()->rank() != 4) return false;
  }
  return true;
}

bool IsWrittenOut(const Node& node) {
  constexpr std::string_view kOps[] = {"Attention", "EmbedLayerNormalization", "MultiHeadAttention",
                                       "RotaryEmbedding"};
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&](std::string_view op) { return node.Is(op, "com.microsoft"); }) ||
         IsProductOfHeads(node);
}

void FillDefaults(Node& node, const OpDef& op) {
  for (const AttributeDef& def : op.attributes()) {
    if (node.attribute(def.name) != nullptr) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            node.SetAttribute(def.name, MakeAttribute(value));
          }
        },
        def.default_value);
  }
}

int PlaceOf(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// A body lists the ports that it uses, by name.
BodyPorts PortsByName(const Graph& body, const OpDef& op) {
  BodyPorts ports;
  for (const Value* input : body.inputs()) {
    ports.inputs.push_back(PlaceOf(op.inputs(), input->name()));
  }
  for (const Value* output : body.outputs()) {
    ports.outputs.push_back(PlaceOf(op.outputs(), output->name()));
  }
  return ports;
}

absl::Status WriteOut(Node* node, const OpDef& op, SymbolicContents& contents) {
  PF_ASSIGN_OR_RETURN(const DecompositionVariant variant, op.Decompose(*node));
  PF_ASSIGN_OR_RETURN(Function function, ParseFunction(variant.text));
  FillDefaults(*node, op);
  const std::unique_ptr<Graph> body = InstantiateBody(function, *node);
  PF_RETURN_IF_ERROR(SpliceBody(*body, *node, PortsByName(*body, op), contents));
  node->graph()->EraseNode(node);
  return absl::OkStatus();
}

class MicrosoftOps : public Pass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Writes out Attention, MultiHeadAttention, RotaryEmbedding, EmbedLayerNormalization and "
           "products of heads of com.microsoft.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    // Decompositions are texts of the canonical opset.
    if (OpsetOf(model.opset_imports, "") < kCanonicalOpset) return false;
    PF_RETURN_IF_ERROR(InferShapes(model));
    bool changed = false;
    for (Node* node : NodesOf(*model.graph)) {
      if (!IsWrittenOut(*node)) continue;
      const OpDef* op = FindOpDef(*node, model.opset_imports);
      const std::string at = node->output(0) ? node->output(0)->name() : node->name;
      const absl::Status done = op ? WriteOut(node, *op, context.contents)
                                   : absl::FailedPreconditionError("its version is not known");
      if (!done.ok()) {
        context.AddMiss(name(), at, std::string(StdView(done.message())));
        continue;
      }
      PF_RETURN_IF_ERROR(context.Rewrote(model, name()));
      changed = true;
    }
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> WriteOutMicrosoftOps() { return std::make_unique<MicrosoftOps>(); }

}  // namespace pagefuse
