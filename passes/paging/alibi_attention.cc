// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/alibi_attention.h"

#include <algorithm>
#include <vector>

#include "pagefuse/passes/analysis/attention/linear_bias.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/marked_matches.h"
#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {
namespace {

using ports::Attention;
using ports::Where;

constexpr double kLowBesideBias = -1e9;

// Scores, or a mask, without the linear bias that was added to them.
class BiasTaker {
 public:
  BiasTaker(Graph& graph, Node* reader, std::optional<Dim> keys, const SymbolicContents& contents)
      : builder_(graph, reader, "unbiased"), keys_(std::move(keys)), contents_(contents) {}

  const std::optional<LinearBias>& bias() const { return bias_; }

  // The value without it; null if it is all that the value is, or if there is none.
  Value* Without(Value* value, int depth = 0) {
    constexpr int kMostSums = 6;
    if (!value || depth > kMostSums) return nullptr;
    const Node* node = value->producer();
    if (!node) return Take(value);
    if (node->Is("Add")) {
      for (int side : {1, 0}) {
        if (Take(node->input(side)); bias_) return node->input(1 - side);
      }
      for (int side : {1, 0}) {
        Value* rest = Without(node->input(side), depth + 1);
        if (bias_) return rest ? builder_.Add("Add", {rest, node->input(1 - side)}) : nullptr;
      }
      return nullptr;
    }
    if (node->Is("Where")) return WithoutChosen(*node, depth);
    if (node->Is("Mul") || node->Is("Div")) {
      if (Value* rest = WithoutScaled(*node, depth); bias_) return rest;
    }
    return Take(value);
  }

 private:
  Value* Take(Value* value) {
    bias_ = ReadLinearBias(value, keys_, contents_);
    return nullptr;
  }

  // A sum that is scaled, as Falcon has it: so is the bias.
  Value* WithoutScaled(const Node& node, int depth) {
    for (int side : {0, 1}) {
      const auto number = NumberOf(node.input(1 - side));
      const Node* sum = node.input(side)->producer();
      if (!number || *number == 0 || !sum || !sum->Is("Add")) continue;
      if (node.Is("Div") && side == 1) continue;
      Value* rest = Without(node.input(side), depth + 1);
      if (!bias_) continue;
      bias_->factor *= node.Is("Mul") ? *number : 1 / *number;
      return rest ? builder_.Add(node.op_type(), {rest, node.input(1 - side)}) : nullptr;
    }
    return nullptr;
  }

  // What is chosen where keys are seen; a number hides the others.
  Value* WithoutChosen(const Node& where, int depth) {
    for (int branch : {Where::kTrue, Where::kFalse}) {
      const int other = branch == Where::kTrue ? Where::kFalse : Where::kTrue;
      const auto low = NumberOf(where.input(other));
      // A bias grows with the sequence: what hides beside it lies below all that it may come to.
      if (!low || !(*low <= kLowBesideBias)) continue;
      Value* rest = Without(where.input(branch), depth + 1);
      if (!bias_) return nullptr;
      // All that is left of a mask is that it hides.
      if (!rest) rest = builder_.Float(0, where.input(other)->dtype());
      std::vector<Value*> inputs = where.inputs();
      inputs[branch] = rest;
      return builder_.Add("Where", inputs);
    }
    return nullptr;
  }

  GraphBuilder builder_;
  const std::optional<Dim> keys_;
  const SymbolicContents& contents_;
  std::optional<LinearBias> bias_;
};

// [H] floats.
Value* SlopesByHead(Graph& graph, Node* anchor, const LinearBias& bias) {
  GraphBuilder builder(graph, anchor, "alibi_slopes");
  const auto scaled = [&bias](float slope) { return static_cast<float>(slope * bias.factor); };
  const Tensor* constant = bias.slopes ? ConstantOf(bias.slopes) : nullptr;
  std::vector<float> numbers = bias.numbers;
  if (constant && constant->dtype() == DataType::kFloat) {
    numbers.assign(constant->values<float>().begin(), constant->values<float>().end());
  }
  if (!numbers.empty()) {
    std::ranges::transform(numbers, numbers.begin(), scaled);
    const auto heads = static_cast<int64_t>(numbers.size());
    return graph.AddInitializer(graph.UniqueName("alibi_slopes"),
                                Tensor::Of<float>({heads}, numbers));
  }
  Value* slopes = builder.Cast(builder.Reshape(bias.slopes, {-1}), DataType::kFloat);
  return bias.factor == 1 ? slopes : builder.Add("Mul", {slopes, builder.Float(scaled(1))});
}

// The product of probabilities and values, a few nodes behind their softmax; null if there is none.
Node* SumBehind(Node* softmax) {
  constexpr int kMostNodes = 8;
  std::vector<Node*> reached = {softmax};
  for (size_t i = 0; i < reached.size() && i < kMostNodes; ++i) {
    for (const Value* output : reached[i]->outputs()) {
      for (const Use& use : output->uses()) {
        if (use.node->Is("MatMul")) return use.node;
        reached.push_back(use.node);
      }
    }
  }
  return nullptr;
}

Dim LastDim(const Value* value) { return value->shape() ? value->shape()->back(0) : Dim(); }

// The keys of an Attention: those of its past and the new ones.
Dim KeysOf(const Node& attention) {
  const auto& keys = attention.input(Attention::kKey)->shape();
  const Value* past = attention.input(Attention::kPastKey);
  if (!keys || keys->rank() < 3 || (past && !past->shape())) return {};
  const Dim added = (*keys)[keys->rank() == 4 ? 2 : 1];
  return past ? (*past->shape())[2] + added : added;
}

class AlibiLowering {
 public:
  AlibiLowering(Model& model, SymbolicContents& contents) : model_(model), contents_(contents) {}

  absl::Status Run(ExtrasOfAttention& extras) {
    Graph& graph = *model_.graph;
    for (Node* node : NodesOf(graph)) {
      if (node->Is("Softmax")) TakeFromScores(node);
      if (node->Is("Attention")) TakeFromMask(node);
    }
    EraseAllDead(replaced_, contents_);
    return marked_.Recognise(model_, contents_, extras);
  }

 private:
  void Note(Node* last, Node* anchor, const LinearBias& bias) {
    marked_.Mark(last, {.slopes = SlopesByHead(*model_.graph, anchor, bias),
                        .counted = bias.padding,
                        .most_keys = bias.most_keys});
  }

  void TakeFromScores(Node* softmax) {
    BiasTaker taker(*model_.graph, softmax, LastDim(softmax->input(0)), contents_);
    Value* rest = taker.Without(softmax->input(0));
    Node* sum = taker.bias() ? SumBehind(softmax) : nullptr;
    if (!rest || !sum) return;
    Note(sum, softmax, *taker.bias());
    Node* before = softmax->input(0)->producer();
    softmax->SetInput(0, rest);
    replaced_.push_back(before);
  }

  void TakeFromMask(Node* attention) {
    Value* mask = attention->input(Attention::kMask);
    if (!mask || mask->dtype() == DataType::kBool) return;
    BiasTaker taker(*model_.graph, attention, KeysOf(*attention), contents_);
    Value* rest = taker.Without(mask);
    if (!taker.bias()) return;
    Note(attention, attention, *taker.bias());
    attention->SetInput(Attention::kMask, rest);
    if (Node* before = mask->producer()) replaced_.push_back(before);
  }

  Model& model_;
  SymbolicContents& contents_;
  MarkedMatches marked_{"scores with a linear bias"};
  std::vector<Node*> replaced_;  // by what stands without the bias; erased behind the walk
};

}  // namespace

absl::Status CheckNoBiasBesideSink(Graph& graph, Node* softmax, const SymbolicContents& contents) {
  BiasTaker taker(graph, softmax, std::nullopt, contents);
  taker.Without(softmax->input(0));
  if (!taker.bias()) return absl::OkStatus();
  return Unfit(*softmax,
               "a linear bias beside a sink: the sink is compared with what the biases of all keys "
               "have in common, which depends on how a prompt is cut into steps");
}

absl::Status LowerAlibiAttention(Model& model, SymbolicContents& contents,
                                 ExtrasOfAttention& extras) {
  return AlibiLowering(model, contents).Run(extras);
}

}  // namespace pagefuse
