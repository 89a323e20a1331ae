// equal-batches: where an exporter gave the rows of a block table and the sequences two symbols,
// the graph itself says that they are one.
//
//   rows = Reshape (Gather (pool, table [T, M]), [B, -1, D])
//
// gives each of B sequences the rows of its own table row only where T is B. Ops over block tables
// refuse anything else, so the inputs are declared that way: a run with other sizes is an error.
#include <map>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/words/words.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "equal-batches";

bool IsInputBatch(const Graph& graph, const std::string& symbol) {
  for (const Value* input : graph.inputs()) {
    const auto& shape = input->shape();
    if (shape && shape->rank() > 0 && (*shape)[0].symbol() == symbol) return true;
  }
  return false;
}

// The symbols of a Reshape that splits gathered rows by another batch than gathered them.
std::optional<std::pair<std::string, std::string>> Mismatch(const Node& node,
                                                            const SymbolicContents& contents) {
  if (!node.Is("Reshape") || !node.input(0)->shape()) return std::nullopt;
  const Node* gather = node.input(0)->producer();
  if (!gather || !(gather->Is("Gather") || gather->Is("GatherND"))) return std::nullopt;
  const auto sizes = KnownDims(node.input(1), contents);
  const Shape& rows = *node.input(0)->shape();
  if (!sizes || sizes->size() < 2 || rows.rank() < 2) return std::nullopt;
  const auto table = rows[0].symbol();
  const auto batch = (*sizes)[0].symbol();
  if (!table || !batch || *table == *batch) return std::nullopt;
  const Graph& graph = *node.graph();
  if (!IsInputBatch(graph, *table) || !IsInputBatch(graph, *batch)) return std::nullopt;
  return std::make_pair(*table, *batch);
}

void Substitute(Graph& graph, SymbolicContents& contents, const std::map<std::string, Dim>& names) {
  for (Value* value : graph.values()) {
    if (value->shape()) value->set_shape(value->shape()->Substitute(names));
  }
  for (auto& [value, dims] : contents) {
    for (Dim& dim : dims) dim = dim.Substitute(names);
  }
}

class EqualBatches : public Pass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Declares the rows of a block table as many as the sequences that read them.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    Graph& graph = *model.graph;
    bool changed = false;
    for (Node* node : NodesOf(graph)) {
      const auto mismatch = Mismatch(*node, context.contents);
      if (!mismatch) continue;
      Substitute(graph, context.contents, {{mismatch->first, Dim::Symbol(mismatch->second)}});
      context.contents.clear();
      PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
      PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
      changed = true;
    }
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> DeclareEqualBatches() { return std::make_unique<EqualBatches>(); }

}  // namespace pagefuse
