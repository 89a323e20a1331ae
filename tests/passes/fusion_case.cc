// SPDX-License-Identifier: Apache-2.0
#include "fusion_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "tools/check/expect_case.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/schema/shape_language.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

constexpr std::string_view kDomain = "decomposition";

// --- decompositions ---

Value* PortValue(const std::vector<Port>& ports, const std::vector<Value*>& values,
                 std::string_view name) {
  for (size_t i = 0; i < ports.size() && i < values.size(); ++i) {
    if (ports[i].name == name) return values[i];
  }
  return nullptr;
}

void FillAttributes(const OpDef& op, const Node& node, Node& call) {
  for (const AttributeDef& def : op.attributes()) {
    const auto set = [&](const auto& value) {
      using T = std::decay_t<decltype(value)>;
      if constexpr (!std::is_same_v<T, std::monostate>) {
        call.SetAttribute(def.name, MakeAttribute(value));
      }
    };
    std::visit(set, def.default_value);
  }
  for (const auto& [name, attribute] : node.attributes()) call.SetAttribute(name, attribute);
}

// A call of the decomposition in place of the node, and the decomposition as a function.
absl::Status CallDecomposition(Model& model, Node* node, const OpDef& op) {
  PF_ASSIGN_OR_RETURN(const std::string text, op.Decompose(*node));
  PF_ASSIGN_OR_RETURN(Function function, ParseFunction(text));
  function.domain = kDomain;
  function.name = StrCat("body", model.functions.size());
  const int64_t version = OpsetOf(function.opset_imports, "");
  model.opset_imports[""] = version > 0 ? version : kNewestOpset;
  function.opset_imports = model.opset_imports;
  Graph& graph = *node->graph();
  std::vector<Value*> inputs, outputs;
  for (const Value* formal : function.body->inputs()) {
    inputs.push_back(PortValue(op.inputs(), node->inputs(), formal->name()));
  }
  std::vector<std::pair<Value*, Value*>> results;  // of the call and of the node
  for (const Value* formal : function.body->outputs()) {
    Value* old = PortValue(op.outputs(), node->outputs(), formal->name());
    outputs.push_back(graph.AddValue(graph.UniqueName(formal->name()),
                                     old ? old->dtype() : DataType::kUndefined));
    if (old) results.emplace_back(old, outputs.back());
  }
  Node* call = graph.AddNode(kDomain, function.name, inputs, outputs, node);
  FillAttributes(op, *node, *call);
  for (const auto& [old, value] : results) graph.ReplaceAllUses(old, value);
  graph.EraseNode(node);
  model.opset_imports[std::string(kDomain)] = 1;
  model.functions.push_back(std::move(function));
  return absl::OkStatus();
}

// Attributes by name, defaults among them; those that say how to compute are left out.
std::map<std::string, std::string> AttributeTexts(const OpDef& op, const Node& node) {
  std::map<std::string, std::string> texts;
  Graph scratch;
  Node* all = scratch.AddNode(node.domain(), node.op_type(), {}, {});
  FillAttributes(op, node, *all);
  for (const auto& [name, attribute] : all->attributes()) {
    if (name.ends_with("_hint")) continue;
    if (const auto* number = std::get_if<float>(&attribute.value)) texts[name] = StrCat(*number);
    if (const auto* number = std::get_if<int64_t>(&attribute.value)) texts[name] = StrCat(*number);
    if (const auto* text = std::get_if<std::string>(&attribute.value)) texts[name] = *text;
  }
  return texts;
}

// The fused ops of a graph: name and attributes.
struct FusedOp {
  std::string op;
  std::map<std::string, std::string> attributes;
};

std::vector<FusedOp> FusedOps(const Graph& graph) {
  std::vector<FusedOp> ops;
  for (const auto& node : graph.nodes()) {
    const OpDef* op = OpRegistry::Global().Find(node->domain(), node->op_type(), 1);
    if (node->domain() != "pagefuse" || !op) continue;
    ops.push_back({node->op_type(), AttributeTexts(*op, *node)});
  }
  return ops;
}

// OK if `got` has what `want` says; what it leaves open may be said.
absl::Status CompareFused(const std::vector<FusedOp>& got, const std::vector<FusedOp>& want) {
  const auto names = [](const std::vector<FusedOp>& ops) {
    std::string text;
    for (const FusedOp& op : ops) StrAppend(&text, text.empty() ? "" : ", ", op.op);
    return text.empty() ? "nothing" : text;
  };
  if (names(got) != names(want)) {
    return absl::FailedPreconditionError(StrCat("expected ", names(want), ", got ", names(got)));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    for (const auto& [name, text] : want[i].attributes) {
      const auto it = got[i].attributes.find(name);
      const std::string found = it == got[i].attributes.end() ? "none" : it->second;
      // With clean_logits 0 anything may stand outside of ranges: what a graph has there too.
      if (found == text || (name == "clean_logits" && text == "0")) continue;
      return absl::FailedPreconditionError(
          StrCat(want[i].op, ": attribute \"", name, "\": expected ", text, ", got ", found));
    }
  }
  return absl::OkStatus();
}

// True for the dims that differ from run to run: tokens.
bool IsTokens(std::string_view dim) {
  return dim == "T" || dim == "T'" || dim == "T''" || dim == "M";
}

// Whether the node's port or attribute makes the condition true.
bool Holds(const PortCondition& condition, const OpDef& op, const Node& node) {
  const Value* port = PortValue(op.inputs(), node.inputs(), condition.name);
  bool holds = port != nullptr || IntOr(node, condition.name, 0) != 0;
  if (condition.value) holds = StringOr(node, condition.name, "") == *condition.value;
  return holds != condition.negated;
}

// The dims that the port declares, as this node has it: {"B", "M"}.
std::vector<std::string> DeclaredDims(const Port& port, const OpDef& op, const Node& node) {
  SizeNames sizes;
  const auto pattern = ParseShapePattern(port.shape, sizes);
  if (!pattern.ok()) return {};
  std::vector<DimList> lists = pattern->any;
  for (const auto& [condition, dims] : pattern->chosen) {
    if (lists.empty() && (!condition || Holds(*condition, op, node))) lists.push_back(dims);
  }
  if (lists.empty()) return {};
  const std::string& text = lists.front().text;
  return absl::StrSplit(text.substr(1, text.size() - 2), ", ");
}

// Those of tokens become symbols.
void SymboliseTokens(const std::vector<std::string>& names, Value& value) {
  if (!value.shape() || static_cast<int>(names.size()) != value.shape()->rank()) return;
  std::vector<Dim> dims = value.shape()->dims();
  for (size_t axis = 0; axis < names.size(); ++axis) {
    if (IsTokens(names[axis])) dims[axis] = Dim::Symbol(names[axis]);
  }
  value.set_shape(Shape(std::move(dims)));
}

void SymboliseTokens(Model& calls) {
  for (const auto& node : calls.graph->nodes()) {
    const OpDef* op = FindOpDef(*node, calls.opset_imports);
    if (!op) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!node->input(i)) continue;
      SymboliseTokens(DeclaredDims(op->inputs()[i], *op, *node), *node->input(i));
    }
  }
  for (Value* output : calls.graph->outputs()) output->set_shape(std::nullopt);
}

// A model of calls becomes a case: its decompositions must become the calls again.
absl::StatusOr<FusionCase> CaseOf(std::string name, Model calls) {
  FusionCase result;
  result.name = std::move(name);
  result.group = calls.graph->nodes().back()->op_type();
  result.options = ExpectPipeline();
  result.plain = calls.Clone();
  PF_RETURN_IF_ERROR(Decompose(result.plain));
  result.check_fused = [want = FusedOps(*calls.graph)](const Graph& graph) {
    return CompareFused(FusedOps(graph), want);
  };
  return result;
}

// --- feeds ---

absl::StatusOr<Tensor> Scaled(const Tensor& tensor, float factor) {
  const DataType type = tensor.dtype();
  if (type != DataType::kFloat && type != DataType::kFloat16 && type != DataType::kBfloat16) {
    return tensor;
  }
  std::vector<float> numbers(tensor.size());
  PF_RETURN_IF_ERROR(DecodeToFloat(type, tensor.data(), tensor.size(), numbers.data()));
  // What the type cannot hold stays as it is: infinities are no numbers.
  const float most = type == DataType::kFloat16 ? 65504.0f : 0x1.fep127f;
  for (float& number : numbers) {
    if (std::abs(number * factor) <= most) number *= factor;
  }
  PF_ASSIGN_OR_RETURN(Tensor scaled, Tensor::Allocate(type, tensor.dims()));
  PF_RETURN_IF_ERROR(EncodeFromFloat(type, numbers.data(), tensor.size(), scaled.mutable_data()));
  return scaled;
}

std::string NearestMisses(const std::vector<MissedMatch>& misses) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < misses.size() && i < kMost; ++i) {
    StrAppend(&text, "\n  ", misses[i].rule, " at \"", misses[i].at, "\" (",
              misses[i].matched_nodes, " nodes): ", misses[i].condition);
  }
  return text;
}

}  // namespace

absl::Status Decompose(Model& model) {
  PF_RETURN_IF_ERROR(InferShapes(model));
  for (Node* node : NodesOf(*model.graph)) {
    const OpDef* op = FindOpDef(*node, model.opset_imports);
    if (node->domain() != "pagefuse" || !op || !op->has_decomposition()) continue;
    PF_RETURN_IF_ERROR(CallDecomposition(model, node, *op));
  }
  PF_RETURN_IF_ERROR(InlineAllFunctions(model));
  model.functions.clear();
  return InferShapes(model);
}

absl::StatusOr<FusionCase> LoadDecompositionCase(const std::string& folder, bool symbols) {
  PF_ASSIGN_OR_RETURN(TestCase test_case, LoadTestCase(folder));
  if (symbols) SymboliseTokens(test_case.model);
  const std::filesystem::path path(folder);
  PF_ASSIGN_OR_RETURN(FusionCase result,
                      CaseOf(StrCat(path.parent_path().filename().string(), ".",
                                    path.filename().string(), symbols ? ".T" : ""),
                             std::move(test_case.model)));
  for (TestDataSet& data : test_case.data_sets) result.feeds.push_back(std::move(data.feeds));
  std::vector<std::string> names;
  for (const Value* output : result.plain.graph->outputs()) names.push_back(output->name());
  result.compare = [names, rules = test_case.rules](const std::vector<Tensor>& got,
                                                    const std::vector<Tensor>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      const auto rule = rules.find(names[i]);
      const absl::Status same = CompareTensors(
          rule == rules.end() ? DefaultRule(want[i].dtype()) : rule->second, got[i], want[i]);
      if (!same.ok()) return same;
    }
    return absl::OkStatus();
  };
  return result;
}

absl::StatusOr<FusionCase> ParseDecompositionCase(const std::string& name,
                                                  const std::string& text) {
  PF_ASSIGN_OR_RETURN(Model calls, ParseModel(text));
  PF_ASSIGN_OR_RETURN(Feeds feeds, RandomFeeds(calls, 0));
  PF_ASSIGN_OR_RETURN(FusionCase result, CaseOf(name, std::move(calls)));
  result.feeds = {std::move(feeds)};
  result.compare = [](const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
    constexpr double kTolerance = 2e-4;
    for (size_t i = 0; i < want.size(); ++i) {
      PF_RETURN_IF_ERROR(CompareTensors(StrCat(i), want[i], got[i], kTolerance));
    }
    return absl::OkStatus();
  };
  return result;
}

absl::StatusOr<FusionCase> LoadCorpusCase(const std::string& folder) {
  PF_ASSIGN_OR_RETURN(ExpectCase loaded, LoadExpectCase(folder));
  FusionCase result;
  result.name = loaded.test_case.name;
  result.group = loaded.expected.value("family", "");
  result.must_fuse = loaded.expected["verdict"] == "fuse";
  result.options = ExpectPipeline();
  result.plain = loaded.test_case.model.Clone();
  for (const TestDataSet& data : loaded.test_case.data_sets) result.feeds.push_back(data.feeds);
  const auto shared = std::make_shared<const ExpectCase>(std::move(loaded));
  result.check_fused = [shared](const Graph& graph) {
    return CheckVerdict(graph, shared->expected);
  };
  result.compare = [shared](const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
    return CompareOutputs(*shared, got, want);
  };
  return result;
}

absl::StatusOr<std::vector<MissedMatch>> MissesOf(const FusionCase& fusion_case,
                                                  const Model& plain) {
  Model model = plain.Clone();
  PipelineOptions options = fusion_case.options;
  options.explain = {"*"};
  PF_ASSIGN_OR_RETURN(PipelineReport report, RunPipeline(model, options));
  return std::move(report.misses);
}

absl::StatusOr<FusionOutcome> RunFusion(const FusionCase& fusion_case, const Model& plain) {
  FusionOutcome outcome = {.model = plain.Clone(), .fusion = {}, .misses = {}};
  PF_RETURN_IF_ERROR(RunPipeline(outcome.model, fusion_case.options).status());
  outcome.fusion = fusion_case.check_fused(*outcome.model.graph);
  if (outcome.fusion.ok()) return outcome;
  PF_ASSIGN_OR_RETURN(outcome.misses, MissesOf(fusion_case, plain));
  outcome.fusion = absl::FailedPreconditionError(
      StrCat(StdView(outcome.fusion.message()), NearestMisses(outcome.misses)));
  return outcome;
}

namespace {

// Formats leave open which sign a zero code has.
void DropZeroSigns(Tensor& expected, Tensor& found) {
  auto* a = static_cast<uint8_t*>(expected.mutable_data());
  auto* b = static_cast<uint8_t*>(found.mutable_data());
  for (int64_t i = 0; i < expected.byte_size(); ++i) {
    if ((a[i] | b[i]) == 0x80) a[i] = b[i] = 0;
  }
}

// Passes promise nothing of what is no number: a row that sees no key, say, or the bits of a NaN
// that was cast there and back.
absl::Status LeaveOpen(Tensor& expected, Tensor& found) {
  const DataType type = expected.dtype();
  if (expected.dims() != found.dims() || type != found.dtype()) return absl::OkStatus();
  if (type == DataType::kUint8 || type == DataType::kFloat8E4M3FN) DropZeroSigns(expected, found);
  if (!IsFloatingPoint(type)) return absl::OkStatus();
  std::vector<float> numbers(expected.size());
  PF_RETURN_IF_ERROR(DecodeToFloat(type, expected.data(), expected.size(), numbers.data()));
  const int64_t bytes = BitWidth(type) / 8;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (!std::isnan(numbers[i])) continue;
    std::memset(static_cast<std::byte*>(expected.mutable_data()) + i * bytes, 0, bytes);
    std::memset(static_cast<std::byte*>(found.mutable_data()) + i * bytes, 0, bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SameNumbers(const FusionCase& fusion_case, const std::vector<Feeds>& feeds,
                         const Model& got, const Model& want) {
  for (const Feeds& one : feeds) {
    auto expected = EvaluateModel(want, one);
    if (!expected.ok()) return absl::UnimplementedError(expected.status().message());
    PF_ASSIGN_OR_RETURN(std::vector<Tensor> found, EvaluateModel(got, one));
    bool identical = expected->size() == found.size();
    for (size_t i = 0; i < std::min(expected->size(), found.size()); ++i) {
      PF_RETURN_IF_ERROR(LeaveOpen((*expected)[i], found[i]));
      identical = identical && (*expected)[i].IdenticalTo(found[i]);
    }
    // The case's rule may refuse what no op would give.
    if (identical) continue;
    PF_RETURN_IF_ERROR(fusion_case.compare(found, *expected));
  }
  return absl::OkStatus();
}

bool WritesNegativeSlots(const Model& fused, const Feeds& feeds) {
  Model slots = fused.Clone();
  const size_t others = slots.graph->outputs().size();
  for (const auto& node : slots.graph->nodes()) {
    const auto assumes = FindMetadata(node->metadata, "pkg.pagefuse.assumes");
    const OpDef* op = OpRegistry::Global().Find(node->domain(), node->op_type(), 1);
    if (!op || !assumes || assumes->find("slots are not negative") == std::string::npos) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const bool is_slots = op->inputs()[i].name.find("slot_mapping") != std::string::npos;
      if (is_slots && node->input(i)) slots.graph->AddOutput(node->input(i));
    }
  }
  const auto values = EvaluateModel(slots, feeds);
  if (!values.ok()) return false;
  return std::any_of(values->begin() + others, values->end(), [](const Tensor& tensor) {
    const auto integers = IntegerValues(tensor);
    return integers.ok() &&
           std::any_of(integers->begin(), integers->end(), [](int64_t slot) { return slot < 0; });
  });
}

bool ComputesNan(const Model& model, const Feeds& feeds) {
  Model all = model.Clone();
  for (const auto& node : all.graph->nodes()) {
    for (Value* output : node->outputs()) {
      if (output && !output->is_output()) all.graph->AddOutput(output);
    }
  }
  const auto values = EvaluateModel(all, feeds);
  if (!values.ok()) return false;
  return std::any_of(values->begin(), values->end(), [](const Tensor& tensor) {
    if (!IsFloatingPoint(tensor.dtype())) return false;
    std::vector<float> numbers(tensor.size());
    const absl::Status decoded =
        DecodeToFloat(tensor.dtype(), tensor.data(), tensor.size(), numbers.data());
    return decoded.ok() && std::any_of(numbers.begin(), numbers.end(),
                                       [](float number) { return std::isnan(number); });
  });
}

std::vector<Feeds> MoreFeeds(const FusionCase& fusion_case) {
  std::vector<Feeds> all = fusion_case.feeds;
  for (const Feeds& feeds : fusion_case.feeds) {
    for (float factor : {-1.0f, 0x1p-12f, 0x1p6f}) {
      Feeds scaled;
      for (const auto& [name, tensor] : feeds) {
        // A scale of a whole tensor is positive wherever one is taken.
        const auto other = Scaled(tensor, tensor.size() == 1 ? std::fabs(factor) : factor);
        scaled[name] = other.ok() ? *other : tensor;
      }
      all.push_back(std::move(scaled));
    }
  }
  return all;
}

}  // namespace pagefuse
