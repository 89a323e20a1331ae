// SPDX-License-Identifier: Apache-2.0
// lower-opset: replaces ops that are newer than the opset of the file. BitCast and float8 become
// arithmetic, other ops calls of functions that say what they mean. Where an op has neither, the
// file keeps the opset that knows the op.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/lower/body_rewrites.h"
#include "pagefuse/passes/lower/call_bodies.h"
#include "pagefuse/passes/lower/lower.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "lower-opset";
constexpr int64_t kBitCastOpset = 26;

// Attributes that older forms of an op do not have.
struct NewAttribute {
  std::string_view op_type, name;
  int64_t since;
};
constexpr NewAttribute kNewAttributes[] = {{"Attention", "left_window_size", 25},
                                           {"Attention", "right_window_size", 25},
                                           {"Cast", "round_mode", 24},
                                           {"QuantizeLinear", "precision", 23},
                                           {"DequantizeLinear", "output_dtype", 23}};

// The first opset that says what the node does.
int64_t NeededOpset(const Node& node, const OpDef& op) {
  int64_t needed = op.since();
  // Attention-24 takes a mask that is shorter than the keys otherwise than Attention-23.
  constexpr int64_t kNewMasks = 24;
  constexpr int kMask = 3;
  if (node.Is("Attention") && node.num_inputs() > kMask) needed = kNewMasks;
  for (const NewAttribute& attribute : kNewAttributes) {
    if (node.Is(attribute.op_type) && node.attribute(attribute.name) != nullptr) {
      needed = std::max(needed, attribute.since);
    }
  }
  return needed;
}

bool IsNewer(const Node& node, const OpsetImports& opsets, int64_t target) {
  const OpDef* op = node.domain().empty() ? FindOpDef(node, opsets) : nullptr;
  return op != nullptr && NeededOpset(node, *op) > target;
}

bool CanLower(const Node& node, const OpDef& op) {
  if (node.Is("BitCast")) return true;
  return op.since() == NeededOpset(node, op) && op.has_decomposition() && op.Decompose(node).ok();
}

constexpr int64_t kFusedVersion = 1;

// Caches that came as float8 and were not made bytes: what fused ops alone read, and give back. They
// stay float8, for runtimes that have the ops.
std::set<Value*> KeptFloat8(const Model& model) {
  std::set<Value*> kept;
  const auto is_called = [](const Use& use) {
    return IsBodyDomain(use.node->domain(), kFusedDomain);
  };
  for (Value* input : model.graph->inputs()) {
    const auto& uses = input->uses();
    if (input->dtype() == DataType::kFloat8E4M3FN && std::ranges::all_of(uses, is_called)) {
      kept.insert(input);
    }
  }
  for (Value* output : model.graph->outputs()) {
    const Node* writer = output->producer();
    if (writer == nullptr || !IsBodyDomain(writer->domain(), kFusedDomain)) continue;
    const OpDef* op = OpRegistry::Global().Find(kFusedDomain, writer->op_type(), kFusedVersion);
    if (op == nullptr) continue;
    for (const auto& [out, in] : op->aliases()) {
      if (writer->output(out) == output && kept.count(writer->input(in)) > 0) kept.insert(output);
    }
  }
  return kept;
}

// What the bodies give as bytes: other runtimes are told so, and metadata keeps what it is here.
void NameFloat8(Model& model, const std::set<Value*>& kept) {
  std::string names;
  for (Value* value : model.graph->values()) {
    if (value->dtype() != DataType::kFloat8E4M3FN || value->producer() == nullptr) continue;
    if (kept.count(value) > 0) continue;
    StrAppend(&names, names.empty() ? "" : "\n", value->name());
    value->set_dtype(DataType::kUint8);
  }
  if (!names.empty()) SetMetadata(model.metadata, kFloat8Values, names);
}

// The IR that came with an opset.
int64_t IrVersionOf(int64_t opset) {
  if (opset <= 22) return 10;
  if (opset <= 24) return 11;
  return opset == 25 ? 12 : 13;
}

// The opset that the newest op without a body needs; 0 if there is none.
int64_t Blocked(Model& model, int64_t target, PassContext& context) {
  int64_t needed = 0;
  for (const GraphScope& scope : AllGraphs(model)) {
    for (const auto& node : scope.graph->nodes()) {
      if (!IsNewer(*node, *scope.opsets, target)) continue;
      const OpDef& op = *FindOpDef(*node, *scope.opsets);
      if (CanLower(*node, op)) continue;
      needed = std::max(needed, NeededOpset(*node, op));
      context.AddMissedMatch(kName, NodeLabel(*node),
                             StrCat(node->Description(), ": has no body for opset ", target,
                                    ", it needs ", NeededOpset(*node, op)));
    }
  }
  return needed;
}

// Shape inference of older runtimes takes a list that a Constant of a function holds otherwise for
// a tensor without dims.
void WriteConstantsAsTensors(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Constant") || node->attributes().size() != 1) continue;
    const auto& [name, attribute] = node->attributes().front();
    if (std::holds_alternative<AttributeRef>(attribute.value) || name == "value") continue;
    std::optional<Tensor> tensor = ConstantNodeValue(attribute, name);
    if (!tensor.has_value()) continue;
    node->RemoveAttribute(std::string(name));
    node->SetAttribute("value", MakeAttribute(*std::move(tensor)));
  }
}

absl::Status CallNewer(Graph& graph, OpsetImports& opsets, int64_t target, CallBodies& bodies) {
  for (Node* node : NodesOf(graph)) {
    for (Graph* subgraph : node->Subgraphs()) {
      PF_RETURN_IF_ERROR(CallNewer(*subgraph, opsets, target, bodies));
    }
    if (!IsNewer(*node, opsets, target)) continue;
    PF_ASSIGN_OR_RETURN(const std::string domain, bodies.Add(node, *FindOpDef(*node, opsets)));
    opsets[domain] = 1;
  }
  return absl::OkStatus();
}

absl::Status LowerGraph(Graph& graph, OpsetImports& opsets, int64_t target, CallBodies& bodies) {
  // An attribute may be newer than the opset that the passes write.
  if (OpsetOf(opsets, "") < target) opsets[""] = target;
  if (OpsetOf(opsets, "") == target) return absl::OkStatus();
  WriteConstantsAsTensors(graph);
  WidenTypes(graph);
  if (target < kBitCastOpset) PF_RETURN_IF_ERROR(LowerBits(graph));
  PF_RETURN_IF_ERROR(CallNewer(graph, opsets, target, bodies));
  opsets.erase("ai.onnx");
  opsets[""] = target;
  return absl::OkStatus();
}

// Bodies of newer ops come to the end of the list, and are lowered in their turn.
absl::Status Lower(Model& model, int64_t target) {
  CallBodies bodies(model, kNewerOpsDomain);
  PF_RETURN_IF_ERROR(LowerGraph(*model.graph, model.opset_imports, target, bodies));
  for (size_t i = 0; i < model.functions.size(); ++i) {
    const std::shared_ptr<Graph> body = model.functions[i].body;
    OpsetImports opsets = model.functions[i].opset_imports;
    PF_RETURN_IF_ERROR(LowerGraph(*body, opsets, target, bodies));
    model.functions[i].opset_imports = std::move(opsets);
    // Types were those of one call.
    for (Value* value : body->values()) {
      if (value->initializer() != nullptr) continue;
      value->set_dtype(DataType::kUndefined);
      value->set_shape(std::nullopt);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LowerAll(Model& model, PassContext& context) {
  int64_t target = kOldestTarget;
  const std::string text = context.Option("target_opset", StrCat(target));
  if (!absl::SimpleAtoi(text, &target) || target < kOldestTarget || target > kNewestOpset) {
    return absl::InvalidArgumentError(StrCat("target_opset: expected ", kOldestTarget, " to ",
                                             kNewestOpset, ", got \"", text, "\""));
  }
  const int64_t from = OpsetOf(model.opset_imports, "");
  const bool is_written = FindMetadata(model.metadata, kWrittenFromOpset).has_value();
  if (is_written) return false;
  const int64_t needed = Blocked(model, target, context);
  if (from <= target && needed <= from && model.functions.empty()) return false;
  target = std::max(target, needed);
  const std::set<Value*> kept = KeptFloat8(model);
  PF_RETURN_IF_ERROR(Lower(model, target));
  for (Value* value : kept) value->set_dtype(DataType::kFloat8E4M3FN);
  NameFloat8(model, kept);
  SetMetadata(model.metadata, kWrittenFromOpset, StrCat(from));
  model.ir_version = std::min(model.ir_version, IrVersionOf(target));
  PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
  return true;
}

// Nodes of all bodies.
int64_t BodyNodes(const Model& model) {
  int64_t nodes = 0;
  for (const Function& function : model.functions) nodes += function.body->num_nodes();
  return nodes;
}

}  // namespace

std::unique_ptr<Pass> LowerOpset() {
  return MakePass(
      kName,
      "Lowers a graph to an opset that other runtimes support: newer ops become calls of "
      "functions, and BitCast and float8 become arithmetic.",
      LowerAll, {TargetOpsetOption()});
}

std::string WrittenReport(const Model& model) {
  std::map<std::string, int> counts;
  for (const Function& function : model.functions) ++counts[function.name];
  std::string report;
  for (const auto& [op, count] : counts) {
    StrAppend(&report, report.empty() ? "bodies: " : ", ", op, " ", count);
  }
  if (!report.empty()) StrAppend(&report, " (", BodyNodes(model), " nodes); ");
  return StrCat(report, "opset ", model.OpsetVersion(""), ", IR ", model.ir_version);
}

std::vector<std::unique_ptr<Pass>> ExportPasses() {
  std::vector<std::unique_ptr<Pass>> passes;
  passes.push_back(ExpandElementwise());
  passes.push_back(ByteCaches());
  passes.push_back(AttentionMasks());
  passes.push_back(WriteBodies());
  passes.push_back(LowerOpset());
  return passes;
}

}  // namespace pagefuse
