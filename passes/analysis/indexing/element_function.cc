// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/element_function.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

constexpr int kMaxNodes = 128;

// Copies the nodes that compute an element into a graph over vectors of bytes.
class FunctionCopier {
 public:
  FunctionCopier(IndexingAnalysis& reader, const OpsetImports& opsets, Graph& graph)
      : reader_(reader), opsets_(opsets), graph_(graph) {}

  absl::StatusOr<Value*> Copy(const Element& unresolved) {
    const Element element = reader_.Source(unresolved);
    const std::string key = element.Key();
    const auto known = copies_.find(key);
    if (known != copies_.end()) return known->second;
    PF_ASSIGN_OR_RETURN(Value * copy, CopyNew(element));
    copies_[key] = copy;
    return copy;
  }

  std::vector<std::pair<Element, std::string>> bytes;

 private:
  absl::StatusOr<Value*> CopyNew(const Element& element) {
    if (const Tensor* tensor = ConstantOf(element.value)) {
      if (tensor->size() == 1) {
        PF_ASSIGN_OR_RETURN(Tensor number, tensor->Reshaped({}));
        return graph_.AddInitializer(graph_.UniqueName("constant"), std::move(number));
      }
    }
    const Node* node = element.producer();
    const bool copied = node && node->num_outputs() == 1 && IsElementwise(*node);
    if (!copied) return CopyByte(element);
    if (++num_nodes_ > kMaxNodes) return MatchFailure("it takes too many steps");
    std::vector<Value*> inputs;
    for (int i = 0; i < node->num_inputs(); ++i) {
      Value* copy = nullptr;
      if (node->input(i)) {
        PF_ASSIGN_OR_RETURN(copy, Copy(reader_.Operand(element, i)));
      }
      inputs.push_back(copy);
    }
    Value* output = graph_.AddValue(graph_.UniqueName("value"), element.value->dtype());
    Node* copy = graph_.AddNode(node->domain(), node->op_type(), std::move(inputs), {output});
    for (const auto& [name, attribute] : node->attributes()) copy->SetAttribute(name, attribute);
    return output;
  }

  bool IsElementwise(const Node& node) const {
    if (node.Is("Cast") || node.Is("BitCast")) return true;
    const OpDef* def = FindOpDef(node, opsets_);
    return def && def->is_elementwise() && node.Subgraphs().empty();
  }

  absl::StatusOr<Value*> CopyByte(const Element& element) {
    if (element.value->dtype() != DataType::kUint8) {
      return MatchFailure(*element.value, " is no byte of a cache");
    }
    const std::string name = graph_.UniqueName("byte");
    bytes.emplace_back(element, name);
    return graph_.AddInput(name, DataType::kUint8, Shape{Dim::Symbol("points")});
  }

  IndexingAnalysis& reader_;
  const OpsetImports& opsets_;
  Graph& graph_;
  std::map<std::string, Value*> copies_;
  int num_nodes_ = 0;
};

}  // namespace

absl::StatusOr<ElementFunction> ElementFunction::Of(IndexingAnalysis& reader,
                                                    const std::vector<Element>& factors,
                                                    const OpsetImports& opsets) {
  ElementFunction function;
  function.model_.opset_imports = opsets;
  function.model_.graph = std::make_shared<Graph>();
  Graph& graph = *function.model_.graph;
  FunctionCopier copier(reader, opsets, graph);
  Value* product = nullptr;
  for (const Element& factor : factors) {
    PF_ASSIGN_OR_RETURN(Value * copy, copier.Copy(factor));
    GraphBuilder builder(graph, nullptr, "product");
    product = product ? builder.Add("Mul", {product, copy}) : copy;
  }
  if (!product || copier.bytes.empty()) return MatchFailure("it reads no byte");
  graph.AddOutput(product);
  // In the order of their addresses.
  const auto before = [](const auto& a, const auto& b) {
    const auto first = AddressOf(a.first);
    const auto second = AddressOf(b.first);
    return first && second && (*second - *first).number().value_or(0) > 0;
  };
  std::sort(copier.bytes.begin(), copier.bytes.end(), before);
  for (const auto& [element, name] : copier.bytes) {
    function.bytes_.push_back(element);
    function.inputs_.push_back(name);
  }
  return function;
}

absl::StatusOr<std::vector<float>> ElementFunction::At(
    const std::vector<std::vector<uint8_t>>& points) const {
  std::map<std::string, Tensor> feeds;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto size = static_cast<int64_t>(points[i].size());
    feeds.emplace(inputs_[i], Tensor::Of<uint8_t>({size}, points[i]));
  }
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                      EvaluateModel(model_, {feeds.begin(), feeds.end()}));
  std::vector<float> values(results[0].size());
  PF_RETURN_IF_ERROR(
      DecodeToFloat(results[0].dtype(), results[0].data(), results[0].size(), values.data()));
  return values;
}

bool IsFloat16(IndexingAnalysis& reader, const std::vector<Element>& factors,
               const OpsetImports& opsets, Element& first) {
  const auto function = ElementFunction::Of(reader, factors, opsets);
  if (!function.ok() || function->bytes().size() != 2) return false;
  const auto low = AddressOf(function->bytes()[0]);
  const auto high = AddressOf(function->bytes()[1]);
  if (!low || !high || (*high - *low).number() != 1) return false;
  std::vector<std::vector<uint8_t>> points(2);
  std::vector<uint16_t> codes;
  for (int code = 0; code < 65536; ++code) {
    const bool finite = (code & 0x7C00) != 0x7C00;
    if (!finite) continue;
    codes.push_back(static_cast<uint16_t>(code));
    points[0].push_back(static_cast<uint8_t>(code & 0xFF));
    points[1].push_back(static_cast<uint8_t>(code >> 8));
  }
  const auto found = function->At(points);
  std::vector<float> expected(codes.size());
  const auto count = static_cast<int64_t>(codes.size());
  if (!found.ok() ||
      !DecodeToFloat(DataType::kFloat16, codes.data(), count, expected.data()).ok()) {
    return false;
  }
  first = function->bytes()[0];
  return *found == expected;  // 0 equals -0
}

bool IsE8m0(IndexingAnalysis& reader, const Element& factor, const OpsetImports& opsets,
            Element& byte) {
  const auto function = ElementFunction::Of(reader, {factor}, opsets);
  if (!function.ok() || function->bytes().size() != 1) return false;
  std::vector<uint8_t> codes;
  std::vector<float> expected;
  for (int code = 0; code < 255; ++code) {
    codes.push_back(static_cast<uint8_t>(code));
    expected.push_back(std::ldexp(1.0F, code - 127));
  }
  const auto found = function->At({codes});
  byte = function->bytes()[0];
  return found.ok() && *found == expected;
}

}  // namespace pagefuse
