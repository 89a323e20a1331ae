// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/computed_region.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

// No op is written in more nodes than this.
constexpr size_t kMaxNodes = 512;
// Rotations are written as products with small constants; projections are larger.
constexpr int64_t kLargestFactor = 1 << 14;

bool IsSmallConstant(const Value* value) {
  const Tensor* tensor = ConstantOf(value);
  return tensor && tensor->size() <= kLargestFactor;
}

// True if a few nodes compute the value from constants and inputs of the graph of that shape.
bool IsGiven(const Value& value) {
  constexpr size_t kMostValues = 20;
  std::vector<const Value*> values = {&value};
  for (size_t i = 0; i < values.size(); ++i) {
    const Node* node = values[i]->producer();
    if (!node) continue;
    for (const Value* input : node->inputs()) {
      if (!input || ConstantOf(input)) continue;
      const bool alike =
          value.shape() && input->shape() && value.shape()->rank() == input->shape()->rank();
      if (!alike) return false;
      if (std::ranges::find(values, input) == values.end()) values.push_back(input);
      if (values.size() > kMostValues) return false;
    }
  }
  return true;
}

// A square matrix that the graph holds or is given, as it is or not: rows are rotated by it.
bool IsRotation(const Value* value) {
  constexpr int64_t kLargestRotation = 256;
  const auto& shape = value->shape();
  const auto size = shape && shape->rank() == 2 ? (*shape)[0].constant() : std::nullopt;
  return size && *size <= kLargestRotation && ProvablyEqual((*shape)[0], (*shape)[1]) &&
         IsGiven(*value);
}

// Numbers that are conditions: rows of a product with them are picked.
bool IsTruths(const Value* value) {
  const Node* node = value->producer();
  return node &&
         (node->Is("OneHot") || (node->Is("Cast") && node->input(0)->dtype() == DataType::kBool));
}

// Products with a constant, a rotation or a choice mix the elements of a token.
bool IsProductOfRows(const Node& node) {
  const bool product = node.Is("MatMul") || node.Is("Gemm") || node.Is("Einsum") ||
                       node.Is("FusedMatMul", "com.microsoft");
  if (!product) return false;
  return std::ranges::any_of(node.inputs(), [](const Value* input) {
    return IsSmallConstant(input) || IsRotation(input) || IsTruths(input);
  });
}

// Nodes whose result no region computes.
bool IsBorder(const Node& node) {
  if (IsProductOfRows(node)) return false;
  if (!node.domain().empty() || !node.Subgraphs().empty() || node.Is("MatMul")) return true;
  static constexpr std::string_view kBorders[] = {
      "Gemm",          "Conv",          "Einsum",       "Attention",     "TopK",
      "MatMulInteger", "QLinearMatMul", "RandomNormal", "RandomUniform", "Multinomial"};
  return std::any_of(std::begin(kBorders), std::end(kBorders),
                     [&](std::string_view op) { return node.Is(op); });
}

std::optional<std::vector<int64_t>> KnownSizes(const Value* value, const RegionScope& scope) {
  const auto it = scope.contents->find(value);
  if (it == scope.contents->end() || !value->shape() || value->shape()->rank() > 1) {
    return std::nullopt;
  }
  return NumbersOf(it->second, scope.sizes);
}

// Whether an upstream is read to its end, or only as far as shows that it has a leaf.
enum class Reach { kAll, kFirstLeaf };

class UpstreamReader {
 public:
  UpstreamReader(const absl::flat_hash_set<const Value*>& border, const RegionScope& scope,
                 Reach reach = Reach::kAll)
      : border_(border), scope_(scope), reach_(reach) {}

  Upstream Read(const std::vector<Value*>& outputs) {
    for (Value* output : outputs) {
      // One at a time: one may be computed from another.
      if (!IsDone()) Enter(output);
      Drain();
    }
    return std::move(result_);
  }

 private:
  bool IsDone() const { return reach_ == Reach::kFirstLeaf && !result_.leaves.empty(); }

  void Drain() {
    while (!path_.empty() && !IsDone()) {
      auto& [node, next] = path_.back();
      if (next == node->num_inputs()) {
        result_.nodes.push_back(node);
        path_.pop_back();
        continue;
      }
      Value* input = node->input(next++);
      if (input) Enter(input);
    }
  }

  void Enter(Value* value) {
    if (!seen_.insert(value).second) return;
    if (border_.contains(value)) {
      result_.reached.push_back(value);
      return;
    }
    if (ConstantOf(value)) {
      result_.constants.push_back(value);
      return;
    }
    if (KnownSizes(value, scope_)) return;
    Node* node = value->producer();
    if (!node || IsBorder(*node) || entered_ > kMaxNodes) {
      result_.leaves.push_back(value);
      return;
    }
    // A node of one output was not entered before its output was.
    if (node->num_outputs() > 1 && !nodes_.insert(node).second) return;
    ++entered_;
    path_.emplace_back(node, 0);
  }

  const absl::flat_hash_set<const Value*>& border_;
  const RegionScope& scope_;
  const Reach reach_;
  Upstream result_;
  absl::flat_hash_set<const Value*> seen_;
  absl::flat_hash_set<const Node*> nodes_;  // entered, of several outputs
  size_t entered_ = 0;
  std::vector<std::pair<Node*, int>> path_;
};

Tensor SizesTensor(const Value& value, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> dims;
  if (value.shape()->rank() == 1) dims.push_back(static_cast<int64_t>(sizes.size()));
  if (value.dtype() == DataType::kInt32) {
    return Tensor::Of<int32_t>(dims, std::vector<int32_t>(sizes.begin(), sizes.end()));
  }
  return Tensor::Of<int64_t>(dims, sizes);
}

// True if nodes of the region alone read what the node gives, a few nodes away: it goes with them.
// `uses_left`: how many more are looked at.
bool ServesRegion(const Node& node, const absl::flat_hash_set<const Node*>& inside, int nodes_away,
                  int& uses_left) {
  return std::ranges::all_of(node.outputs(), [&](const Value* output) {
    if (!output) return true;
    if (output->is_output() || nodes_away == 0) return false;
    return std::ranges::all_of(output->uses(), [&](const Use& use) {
      if (inside.contains(use.node)) return true;
      return --uses_left > 0 && ServesRegion(*use.node, inside, nodes_away - 1, uses_left);
    });
  });
}

// A size that nothing but the region needs.
bool MeasuresFor(const Node& node, const absl::flat_hash_set<const Node*>& inside) {
  int uses_left = 1024;
  return node.Is("Shape") && ServesRegion(node, inside, /*nodes_away=*/6, uses_left);
}

// The region as a model of its own.
class RegionModel {
 public:
  RegionModel(const ComputedRegion& region, const RegionScope& scope) : scope_(scope) {
    model_.opset_imports = *scope.opsets;
    model_.graph = std::make_shared<Graph>();
    for (Value* port : region.ports) {
      // One value may be several ports.
      if (values_.contains(port)) continue;
      values_[port] = model_.graph->AddInput(port->name(), port->dtype(), std::nullopt);
    }
    for (const Node* node : region.nodes) Copy(*node);
    for (Value* output : region.outputs) model_.graph->AddOutput(values_.at(output));
  }

  const Model& model() const { return model_; }

 private:
  void Copy(const Node& node) {
    std::vector<Value*> inputs, outputs;
    for (Value* input : node.inputs()) inputs.push_back(input ? Operand(input) : nullptr);
    for (Value* output : node.outputs()) {
      if (output &&
          values_.contains(output)) {  // a port that another output of its node is no part of
        outputs.push_back(
            model_.graph->AddValue(model_.graph->UniqueName("unused"), output->dtype()));
        continue;
      }
      outputs.push_back(output ? Fresh(output) : nullptr);
    }
    Node* copy =
        model_.graph->AddNode(node.domain(), node.op_type(), std::move(inputs), std::move(outputs));
    for (const auto& [name, attribute] : node.attributes()) copy->SetAttribute(name, attribute);
  }

  Value* Fresh(const Value* value) {
    return values_[value] =
               model_.graph->AddValue(model_.graph->UniqueName(value->name()), value->dtype());
  }

  Value* Operand(const Value* value) {
    const auto it = values_.find(value);
    if (it != values_.end()) return it->second;
    const Tensor* constant = ConstantOf(value);
    const Tensor tensor = constant ? *constant : SizesTensor(*value, *KnownSizes(value, scope_));
    return values_[value] =
               model_.graph->AddInitializer(model_.graph->UniqueName(value->name()), tensor);
  }

  const RegionScope& scope_;
  Model model_;
  absl::flat_hash_map<const Value*, Value*> values_;
};

}  // namespace

std::optional<std::vector<int64_t>> NumbersOf(const std::vector<Dim>& dims, const DimSizes& sizes) {
  std::optional<std::map<std::string, Dim>> bindings;  // made where a dim is no number
  std::vector<int64_t> numbers;
  for (const Dim& dim : dims) {
    std::optional<int64_t> number = dim.constant();
    if (!number) {
      if (!bindings) bindings.emplace(sizes.begin(), sizes.end());
      number = dim.Substitute(*bindings).constant();
    }
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

Upstream UpstreamOf(const std::vector<Value*>& outputs,
                    const absl::flat_hash_set<const Value*>& border, const RegionScope& scope) {
  return UpstreamReader(border, scope).Read(outputs);
}

absl::StatusOr<ComputedRegion> RegionBetween(std::vector<Value*> ports, std::vector<Value*> outputs,
                                             const RegionScope& scope) {
  const absl::flat_hash_set<const Value*> border(ports.begin(), ports.end());
  Upstream upstream = UpstreamReader(border, scope, Reach::kFirstLeaf).Read(outputs);
  if (!upstream.leaves.empty()) {
    return MatchFailure("it reads ", *upstream.leaves.front(), " too");
  }
  for (const Value* port : ports) {
    const auto& reached = upstream.reached;
    if (std::ranges::find(reached, port) != reached.end()) continue;
    return MatchFailure("it does not read ", *port);
  }
  return ComputedRegion{std::move(ports), std::move(outputs), std::move(upstream.nodes)};
}

absl::Status CheckReaders(const ComputedRegion& region,
                          const absl::flat_hash_set<const Value*>& metadata) {
  absl::flat_hash_set<const Value*> data;
  for (const Value* port : region.ports) {
    if (!metadata.contains(port)) data.insert(port);
  }
  const absl::flat_hash_set<const Node*> inside(region.nodes.begin(), region.nodes.end());
  for (const Node* node : region.nodes) {
    const bool derives = std::ranges::any_of(
        node->inputs(), [&](const Value* input) { return data.contains(input); });
    // A size of data is no data.
    if (!derives || node->Is("Shape") || node->Is("Size")) continue;
    for (const Value* output : node->outputs()) {
      if (!output) continue;
      data.insert(output);
      if (std::ranges::find(region.outputs, output) != region.outputs.end()) continue;
      if (output->is_output()) {
        return MatchFailure(*output, " is a graph output");
      }
      for (const Use& use : output->uses()) {
        if (inside.contains(use.node) || MeasuresFor(*use.node, inside)) continue;
        return MatchFailure(*output, " is read by ", *use.node, " outside it");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> EvaluateRegion(const ComputedRegion& region,
                                                   const RegionScope& scope,
                                                   const std::vector<Tensor>& ports) {
  const RegionModel copy(region, scope);
  std::map<std::string, Tensor> feeds;
  for (size_t i = 0; i < ports.size(); ++i) feeds[region.ports[i]->name()] = ports[i];
  return EvaluateModel(copy.model(), feeds);
}

}  // namespace pagefuse
