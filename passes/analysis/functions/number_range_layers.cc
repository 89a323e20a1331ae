// SPDX-License-Identifier: Apache-2.0
// What products, norms, attention and weights of few bits make of the ranges of their inputs.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "pagefuse/passes/analysis/functions/number_range_rules.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

NumberRange ProductOf(const RangeNode& n, int left, int right, double count) {
  NumberRange a = n.in(left), b = n.in(right);
  if (!AreWeights(n.node.input(left))) return SumOfProducts(a, b, count);
  NumberRange weighed = Join(b, NumberRange::Between(0, 0, 0));
  weighed.nan = a.nan || b.nan || b.may_be_infinite();
  return weighed;
}

NumberRange MatMulRule(const RangeNode& n) { return ProductOf(n, 0, 1, n.Length(0, 0)); }

NumberRange Scaled(const RangeNode& n, std::string_view attribute, const NumberRange& x) {
  const double factor = n.node.FloatAttribute(std::string(attribute), 1).value_or(1);
  return Product(x, NumberRange::Between(factor, factor, std::abs(factor)));
}

// FusedMatMul and Gemm.
NumberRange ScaledProductRule(const RangeNode& n) {
  const bool transposed = IntOr(n.node, "transA", 0) != 0;
  const auto& a = n.node.input(0)->shape();
  // With transBatchA, the first axis is that of the rows.
  const int rows = IntOr(n.node, "transBatchA", 0) != 0 && a ? a->rank() - 1 : 1;
  const int summed = transposed ? rows : 0;
  const NumberRange product = Scaled(n, "alpha", ProductOf(n, 0, 1, n.Length(0, summed)));
  return n.node.input(2) ? Sum(product, Scaled(n, "beta", n.in(2))) : product;
}

// As many products as all labels but those of the output have places.
NumberRange EinsumRule(const RangeNode& n) {
  if (n.node.num_inputs() != 2) return NumberRange::Any();
  return SumOfProducts(n.in(0), n.in(1), kLongestSum);
}

// As many products as a kernel has places in all channels of its group.
NumberRange ConvRule(const RangeNode& n) {
  const auto& kernel = n.node.input(1)->shape();
  double count = kernel ? 1 : kLongestSum;
  for (int axis = 1; kernel && axis < kernel->rank(); ++axis) {
    count *= static_cast<double>((*kernel)[axis].constant().value_or(kLongestSum));
  }
  const NumberRange product = SumOfProducts(n.in(0), n.in(1), count);
  return n.node.input(2) ? Sum(product, n.in(2)) : product;
}

// A row in which all is minus infinity is no row of a token, which sees itself.
NumberRange SoftmaxRule(const RangeNode& n) {
  const NumberRange x = n.in(0);
  NumberRange weights = NumberRange::Between(0, 1, 0.25);
  weights.nan = x.nan || x.most == NumberRange::kInfinity;
  return weights;
}

// x over the root of the mean of its squares, times a weight.
NumberRange Normed(const RangeNode& n, const NumberRange& x, const NumberRange& weight) {
  const Shape* shape = n.node.input(0)->shape() ? &*n.node.input(0)->shape() : nullptr;
  const int64_t rank = shape ? shape->rank() : 0;
  const bool last = NormalAxis(IntOr(n.node, "axis", -1), rank) == rank - 1;
  const double largest = std::sqrt(last ? n.Length(0, 0) : kLongestSum);
  NumberRange normed = Product(NumberRange::Between(-largest, largest, 1), weight);
  normed.nan = normed.nan || !x.finite();
  return normed;
}

bool HasEpsilon(const Node& node) {
  const Attribute* epsilon = node.attribute("epsilon");
  const float* number = epsilon ? std::get_if<float>(&epsilon->value) : nullptr;
  return !epsilon || (number && *number > 0);
}

NumberRange NormRule(const RangeNode& n) {
  if (n.output != 0 || !HasEpsilon(n.node)) return NumberRange::Any();
  const NumberRange normed = Normed(n, n.in(0), n.in(1));
  return n.node.Is("LayerNormalization") && n.node.input(2) ? Sum(normed, n.in(2)) : normed;
}

// com.microsoft.Skip(Simplified)LayerNormalization: the norm of a sum, and the sum.
NumberRange SkipNormRule(const RangeNode& n) {
  const bool simple = n.node.Is("SkipSimplifiedLayerNormalization", "com.microsoft");
  const int bias = simple ? 3 : 4;
  NumberRange sum = Sum(n.in(0), n.in(1));
  if (n.node.input(bias)) sum = Sum(sum, n.in(bias));
  if (n.output == 3) return sum;
  if (n.output != 0 || !HasEpsilon(n.node)) return NumberRange::Any();
  const NumberRange normed = Normed(n, sum, n.in(2));
  return !simple && n.node.input(3) ? Sum(normed, n.in(3)) : normed;
}

// --- attention ---

NumberRange Rotated(const NumberRange& x, const NumberRange& cos, const NumberRange& sin) {
  NumberRange rotated = Sum(Product(x, cos), Product(x, Join(sin, Negated(sin))));
  rotated = Join(rotated, x);
  rotated.typical = x.typical;
  return rotated;
}

NumberRange RotaryRule(const RangeNode& n) { return Rotated(n.in(0), n.in(1), n.in(2)); }
NumberRange MicrosoftRotaryRule(const RangeNode& n) { return Rotated(n.in(0), n.in(2), n.in(3)); }

NumberRange Weighed(const NumberRange& values, bool finite) {
  NumberRange rows = Join(values, NumberRange::Between(0, 0, 0));
  rows.nan = !finite;
  return rows;
}

// Values weighed; of presents, what they are joined of.
NumberRange AttentionRule(const RangeNode& n) {
  using ports::Attention;
  if (n.output == Attention::kPresentKey) return n.in(Attention::kKey);
  if (n.output == Attention::kPresentValue) return n.in(Attention::kValue);
  if (n.output != Attention::kRows) return NumberRange::Any();
  const bool finite = n.in(Attention::kQuery).finite() && n.in(Attention::kKey).finite() &&
                      n.in(Attention::kValue).finite();
  return Weighed(n.in(Attention::kValue), finite);
}

// Queries may hold keys and values beside.
NumberRange MicrosoftAttentionRule(const RangeNode& n) {
  const auto in = [&](int i) { return n.in(n.node.input(i) ? i : 0); };
  const bool finite = in(0).finite() && in(1).finite() && in(2).finite();
  return n.output == 0 ? Weighed(in(2), finite) : in(n.output);
}

NumberRange SinkAttentionRule(const RangeNode& n) {
  return Weighed(n.in(2), n.in(0).finite() && n.in(1).finite() && n.in(2).finite());
}

// Rows weighed by a softmax.
NumberRange WindowCompressRule(const RangeNode& n) {
  return Weighed(n.in(0), n.in(0).finite() && n.in(1).finite());
}

// Sigmoids, and shares.
NumberRange HyperConnectionMixRule(const RangeNode& n) {
  const double most = std::max(2.0f, n.node.FloatAttribute("post_factor", 2).value_or(2));
  NumberRange x = NumberRange::Between(0, most, 0.5);
  x.nan = !n.in(0).finite();
  return x;
}

// Whether integers are computed of the bits of floats.
bool OfFloats(const Value* value, int depth = 0) {
  constexpr int kMostSteps = 16;
  const Node* node = value->producer();
  if (!node || IsFloatingPoint(value->dtype())) return false;
  if (node->Is("BitCast") || depth > kMostSteps) return true;
  return std::ranges::any_of(
      node->inputs(), [&](const Value* input) { return input && OfFloats(input, depth + 1); });
}

// Floats that are kept as bytes, as a cache keeps scales, are as given as others (number_ranges.h).
NumberRange BitCastRule(const RangeNode& n) {
  return OfFloats(n.node.input(0)) ? NumberRange::Any() : NumberRanges::OfGiven();
}

// --- weights of few bits ---

NumberRange DequantiseRule(const RangeNode& n) {
  NumberRange codes = n.in(0);
  if (n.node.input(2)) codes = Sum(codes, Negated(n.in(2)));
  return Product(codes, n.in(1));
}

// Weights of codes of a few bits, by their scales.
NumberRange Coded(const NumberRange& scales) {
  constexpr double kMostCode = 255;
  return Product(NumberRange::Between(-kMostCode, kMostCode, 4), scales);
}

NumberRange CodedProductRule(const RangeNode& n) {
  const NumberRange product = SumOfProducts(n.in(0), Coded(n.in(2)), n.Length(0, 0));
  return n.node.input(5) ? Sum(product, n.in(5)) : product;
}

NumberRange CodedRowsRule(const RangeNode& n) { return Coded(n.in(2)); }

NumberRange GroupedRule(const RangeNode& n) {
  const NumberRange weights = n.node.input(3) ? Coded(n.in(3)) : n.in(2);
  return SumOfProducts(n.in(0), weights, n.Length(0, 0));
}

NumberRange GatedLinearRule(const RangeNode& n) {
  constexpr int kGate = 1, kUp = 2, kGateScales = 3, kUpScales = 4;
  const auto linear = [&](int weight, int scales) {
    const NumberRange weights = n.node.input(scales) ? Coded(n.in(scales)) : n.in(weight);
    return SumOfProducts(n.in(0), weights, n.Length(0, 0));
  };
  return Product(Gated(linear(kGate, kGateScales)), linear(kUp, kUpScales));
}

}  // namespace

const RangeRules& LayerRangeRules() {
  static const auto& rules = *new RangeRules{
      {".MatMul", MatMulRule},
      {"com.microsoft.FusedMatMul", ScaledProductRule},
      {".Gemm", ScaledProductRule},
      {".Einsum", EinsumRule},
      {".Conv", ConvRule},
      {".Softmax", SoftmaxRule},
      {".LayerNormalization", NormRule},
      {".RMSNormalization", NormRule},
      {".SimplifiedLayerNormalization", NormRule},
      {"com.microsoft.SkipLayerNormalization", SkipNormRule},
      {"com.microsoft.SkipSimplifiedLayerNormalization", SkipNormRule},
      {".RotaryEmbedding", RotaryRule},
      {"com.microsoft.RotaryEmbedding", MicrosoftRotaryRule},
      {".Attention", AttentionRule},
      {"com.microsoft.GroupQueryAttention", MicrosoftAttentionRule},
      {"com.microsoft.MultiHeadAttention", MicrosoftAttentionRule},
      {".DequantizeLinear", DequantiseRule},
      {"com.microsoft.DequantizeLinear", DequantiseRule},
      {"com.microsoft.MatMulNBits", CodedProductRule},
      {"com.microsoft.GatherBlockQuantized", CodedRowsRule},
      {".BitCast", BitCastRule},
      {"pagefuse.SinkAttention", SinkAttentionRule},
      {"pagefuse.WindowCompress", WindowCompressRule},
      {"pagefuse.HyperConnectionMix", HyperConnectionMixRule},
      {"pagefuse.GroupedMatMul", GroupedRule},
      {"pagefuse.GatedLinear", GatedLinearRule},
  };
  return rules;
}

}  // namespace pagefuse
