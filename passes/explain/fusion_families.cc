// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/explain/fusion_families.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/node_walk.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rewrite/text/embedded_rules.h"

namespace pagefuse {
namespace {

const OpTypes kViews = {"Reshape", "Squeeze",   "Unsqueeze", "Flatten",
                        "Cast",    "Transpose", "Identity"};
// Of which a gated op takes two. There is none over the products of experts.
const OpTypes kProducts = {"MatMul", "FusedMatMul", "Gemm", "MatMulNBits", "Linear", "Einsum"};

bool IsComputed(const Value* value) { return value != nullptr && ConstantOf(value) == nullptr; }

// Of two values that the run computes: no projection by weights.
bool IsComputedProduct(const Node& node) {
  return IsOneOf(node, {"MatMul", "FusedMatMul", "Einsum"}) && IsComputed(node.input(0)) &&
         IsComputed(node.input(1));
}

// exp(x) / sum exp(x)
bool IsSoftmaxQuotient(const Node& node) {
  if (!node.Is("Div")) return false;
  const Node* power = node.input(0)->producer();
  const Node* sum = node.input(1)->producer();
  return power != nullptr && sum != nullptr && power->Is("Exp") && sum->Is("ReduceSum") &&
         sum->input(0) == node.input(0);
}

// A softmax of scores by which values are weighted.
bool IsAttentionWrittenOut(const Node& node) {
  if (!node.Is("Softmax") && !node.Is("LogSoftmax") && !IsSoftmaxQuotient(node)) return false;
  constexpr int kSteps = 8;
  const Node* scores =
      Above(node.input(0), IsComputedProduct,
            {"Add", "Sub", "Mul", "Div", "Where", "Cast", "Concat", "Reshape", "Transpose", "Tanh",
             "Exp", "Max", "Identity", "Unsqueeze", "Squeeze", "Expand"},
            kSteps);
  return scores != nullptr &&
         Below(node, IsComputedProduct,
               {"Where", "IsNaN", "Cast", "Slice", "Split", "Dropout", "Reshape", "Transpose",
                "Exp", "Identity", "Unsqueeze", "Squeeze"},
               kSteps) != nullptr;
}

// Rectified products of queries and keys, summed over heads.
bool IsIndexerScore(const Node& node) {
  constexpr int kSteps = 6;
  if (!node.Is("Relu")) return false;
  const Node* scores =
      Above(node.input(0), IsComputedProduct,
            {"Mul", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze"}, kSteps);
  const auto sums = [](const Node& reader) {
    return reader.Is("ReduceSum") || IsComputedProduct(reader);
  };
  return scores != nullptr &&
         Below(node, sums, {"Mul", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze"},
               kSteps) != nullptr;
}

// x * cos + Concat(-x_hi, x_lo) * sin, halves or pairs.
bool IsTurnedHalf(const Node& node) {
  constexpr int kSteps = 3;
  if (!node.Is("Neg")) return false;
  const auto adds = [](const Node& reader) { return reader.Is("Add") || reader.Is("Sub"); };
  const Node* turned = Below(node, Is("Concat"), kViews, kSteps);
  const Node* crossed = turned != nullptr ? Below(*turned, Is("Mul"), kViews, kSteps) : nullptr;
  return crossed != nullptr && Below(*crossed, adds, kViews, kSteps) != nullptr;
}

// The product of the two, if a node computes it.
bool HasProduct(const Value* a, const Value* b, const NodeTest& read_by) {
  for (const Use& use : a->uses()) {
    if (!use.node->Is("Mul") || use.node->input(1 - use.index) != b) continue;
    if (Below(*use.node, read_by, {}, 0) != nullptr) return true;
  }
  return false;
}

// lo * cos - hi * sin beside hi * cos + lo * sin.
bool IsTurnedPair(const Node& node) {
  if (!node.Is("Sub")) return false;
  const Node* first = node.input(0)->producer();
  const Node* second = node.input(1)->producer();
  if (first == nullptr || second == nullptr || !first->Is("Mul") || !second->Is("Mul")) {
    return false;
  }
  for (const int low : {0, 1}) {
    for (const int high : {0, 1}) {
      const Value* cos = first->input(1 - low);
      const Value* sin = second->input(1 - high);
      if (HasProduct(first->input(low), sin, Is("Add")) &&
          HasProduct(second->input(high), cos, Is("Add"))) {
        return true;
      }
    }
  }
  return false;
}

bool IsRopeWrittenOut(const Node& node) { return IsTurnedHalf(node) || IsTurnedPair(node); }

// Of keys that go into a paged cache.
bool IsRopeBesideInsert(const Node& node) {
  return IsOneOf(node, {"RotaryEmbedding"}) &&
         Below(node, Is("PagedCacheInsert", "pagefuse"), kViews, 4) != nullptr;
}

bool IsSquare(const Node& node) {
  return (node.Is("Mul") && node.input(0) == node.input(1)) || node.Is("Pow");
}

// The root of a mean of squares. Squares of differences from a mean are of another norm.
bool IsRmsNormWrittenOut(const Node& node) {
  if (!node.Is("ReduceMean")) return false;
  const Node* square = node.input(0)->producer();
  if (square == nullptr || !IsSquare(*square)) return false;
  const Node* difference = square->input(0)->producer();
  if (difference != nullptr && difference->Is("Sub")) return false;
  const auto roots = [](const Node& reader) { return reader.Is("Sqrt") || reader.Is("Pow"); };
  return Below(node, roots, {"Add", "Cast", "Max"}, 3) != nullptr;
}

bool IsSwishWrittenOut(const Node& node) {
  const auto gates = [&node](const Node& reader) {
    return reader.Is("Mul") &&
           (reader.input(0) == node.input(0) || reader.input(1) == node.input(0));
  };
  return node.Is("Sigmoid") && Below(node, gates, {}, 0) != nullptr;
}

// 1 + erf(..) or 1 + tanh(..), times something.
bool IsGeluWrittenOut(const Node& node) {
  if (!node.Is("Erf") && !node.Is("Tanh")) return false;
  const Node* sum = Below(node, Is("Add"), {"Cast"}, 1);
  return sum != nullptr && Below(*sum, Is("Mul"), {"Cast"}, 1) != nullptr;
}

// act(x @ w_gate) * (x @ w_up), or the halves of one product.
bool IsGatedMlp(const Node& node) {
  constexpr int kSteps = 4;
  if (!node.Is("Mul")) return false;
  const auto is_product = [](const Node& above) { return IsOneOf(above, kProducts); };
  const OpTypes between = {"Split", "Slice", "Reshape", "Cast", "Add", "Identity", "Squeeze"};
  for (const int side : {0, 1}) {
    const Node* act = Above(
        node.input(side),
        [](const Node& above) {
          return IsOneOf(above, {"Swish", "Gelu", "FastGelu", "QuickGelu", "BiasGelu"});
        },
        {"Cast"}, 1);
    if (act == nullptr) continue;
    const Node* gate = Above(act->input(0), is_product, between, kSteps);
    const Node* up = Above(node.input(1 - side), is_product, between, kSteps);
    if (gate != nullptr && up != nullptr && gate->input(0) == up->input(0)) return true;
  }
  return false;
}

// Rows put into what came in and goes out again.
bool IsCacheWrite(const Node& node) {
  return IsOneOf(node, {"ScatterND", "ScatterElements", "TensorScatter"}) &&
         InputAbove(node.input(0), kViews) != nullptr && ReachesOutput(node.output(0), kViews, 4);
}

bool IsByteType(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUint8 || type == DataType::kFloat8E4M3FN ||
         type == DataType::kFloat8E5M2;
}

// Codes out of a cache, times their scale.
bool IsDequantisingRead(const Node& node) {
  const bool casts = node.Is("Cast") && IsByteType(node.input(0)->dtype()) &&
                     IsFloatingPoint(node.output(0)->dtype());
  if (!casts && !IsOneOf(node, {"DequantizeLinear"})) return false;
  if (casts && Below(node, Is("Mul"), kViews, 3) == nullptr) return false;
  return InputAbove(node.input(0), {"Gather", "GatherND", "Reshape", "Transpose", "Slice",
                                    "Unsqueeze", "Squeeze", "Expand", "Concat", "BitCast",
                                    "Identity", "ScatterND", "TensorScatter"}) != nullptr;
}

}  // namespace

bool IsAttentionOp(const Node& node) {
  // Attention with a sink that no paged op took up.
  if (node.Is("SinkAttention", "pagefuse")) return true;
  const bool known = node.domain().empty() || node.domain() == "com.microsoft";
  return known && IsOneOf(node, {"Attention", "GroupQueryAttention", "MultiHeadAttention",
                                 "PagedAttention", "DecoderMaskedMultiHeadAttention"});
}

std::span<const FusionFamily> FusionFamilies() {
  static const auto& families = *new std::vector<FusionFamily>{
      {"attention written out",
       IsAttentionWrittenOut,
       {RecogniseAttention},
       {"fuse-paged-attention", "fuse-sparse-mla", "fuse-turboquant-attention"},
       "attention"},
      {"scores of an indexer", IsIndexerScore, {}, {"fuse-index-logits"}},
      {"rotary embedding written out", IsRopeWrittenOut, {[] { return EmbeddedRulePass("rope"); }}},
      {"rotary embedding beside its cache insert", IsRopeBesideInsert, {FuseRopeQuant}},
      {"RMSNorm written out", IsRmsNormWrittenOut, {[] { return EmbeddedRulePass("rms-norm"); }}},
      {"Swish written out", IsSwishWrittenOut, {[] { return EmbeddedRulePass("swish"); }}},
      {"GELU written out", IsGeluWrittenOut, {[] { return EmbeddedRulePass("activation"); }}},
      {"gated MLP", IsGatedMlp, {[] { return EmbeddedRulePass("gated-mlp"); }}},
      {"write into a cache",
       IsCacheWrite,
       {[] { return EmbeddedRulePass("row-writes"); }},
       {"fuse-equivalent", "fuse-contiguous-insert"}},
      {"read of a quantised cache",
       IsDequantisingRead,
       {},
       {"fuse-paged-attention", "fuse-sparse-mla", "fuse-turboquant-attention",
        "fuse-index-logits"}},
  };
  return families;
}

}  // namespace pagefuse
