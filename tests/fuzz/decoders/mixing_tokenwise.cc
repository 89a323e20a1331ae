// SPDX-License-Identifier: Apache-2.0
// Ops that work on each token alone, many of which look otherwise.
#include <functional>
#include <numeric>

#include "decoder_text.h"
#include "mixing.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

using Text = DecoderText;
using Name = std::string;

Name Channels(Text& text) { return text.graph.Weights({text.hidden}, 1); }

Name Rows(Text& text, const Name& flat) {
  const Name shape =
      text.Add("Concat", {text.Batch(), text.Length(), text.Ints({text.hidden})}, "axis = 0");
  return text.Add("Reshape", {flat, shape});
}

Name TransposeBack(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 2, 1]");
  const Name scaled = text.Add("Mul", {turned, text.graph.Weights({text.hidden, 1}, 1)});
  return text.Add("Transpose", {scaled}, "perm = [0, 2, 1]");
}

Name TransposeBatch(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [1, 0, 2]");
  const Name scaled = text.Add("Mul", {turned, Channels(text)});
  return text.Add("Transpose", {scaled}, "perm = [1, 0, 2]");
}

Name FlattenBySizes(Text& text, const Name& x) {
  const Name flat = text.Add("Reshape", {x, text.Ints({-1, text.hidden})});
  return Rows(text, text.Add("MatMul", {flat, text.Matrix(text.hidden, text.hidden)}));
}

Name FlattenInferred(Text& text, const Name& x) {
  const Name flat = text.Add("Reshape", {x, text.Ints({-1, text.hidden})});
  const Name product = text.Add("Tanh", {flat});
  const Name shape = text.Add("Concat", {text.Batch(), text.Ints({-1, text.hidden})}, "axis = 0");
  return text.Add("Reshape", {product, shape});
}

Name FlattenByShape(Text& text, const Name& x) {
  const Name flat = text.Add("Flatten", {x}, "axis = 2");
  const Name product = text.Add("MatMul", {flat, text.Matrix(text.hidden, text.hidden)});
  return text.Add("Reshape", {product, text.Add("Shape", {x})});
}

// A product over rows and channels, bias and all, as exporters write linear layers.
Name Gemm(Text& text, const Name& x) {
  const Name flat = text.Add("Reshape", {x, text.Ints({-1, text.hidden})});
  const Name product =
      text.Add("Gemm", {flat, text.Matrix(text.hidden, text.hidden), Channels(text)}, "transB = 1");
  return Rows(text, product);
}

Name SwapHalves(Text& text, const Name& x) {
  const int64_t half = text.hidden / 2;
  const Name low = text.Add("Slice", {x, text.Ints({0}), text.Ints({half}), text.Ints({2})});
  const Name high =
      text.Add("Slice", {x, text.Ints({half}), text.Ints({INT64_MAX}), text.Ints({-1})});
  return text.Add("Concat", {high, low}, "axis = 2");
}

Name SplitChannels(Text& text, const Name& x) {
  const auto parts = text.graph.AddMany("Split", 2, {x}, "axis = 2, num_outputs = 2");
  return text.Add("Concat", {text.Add("Tanh", {parts[0]}), text.Add("Neg", {parts[1]})},
                  "axis = -1");
}

Name DoubleChannels(Text& text, const Name& x) {
  const Name twice = text.Add("Concat", {x, text.Add("Abs", {x})}, "axis = -1");
  return text.Add("MatMul", {twice, text.Matrix(2 * text.hidden, text.hidden)});
}

Name LayerNorm(Text& text, const Name& x) {
  return text.Add("LayerNormalization", {x, Channels(text)}, "axis = 2");
}

Name ExpandByOnes(Text& text, const Name& x) {
  const Name apart = text.Add("Unsqueeze", {x, text.Ints({2})});
  const Name expanded = text.Add("Expand", {apart, text.Ints({1, 1, 1, 1})});
  return text.Add("Mul", {text.Add("Squeeze", {expanded, text.Ints({2})}), Channels(text)});
}

Name ExpandAndMean(Text& text, const Name& x) {
  const Name apart = text.Add("Unsqueeze", {x, text.Ints({2})});
  const Name expanded = text.Add("Expand", {apart, text.Ints({1, 1, 2, 1})});
  const Name scaled = text.Add("Mul", {expanded, text.graph.Weights({2, text.hidden}, 1)});
  return text.Add("ReduceMean", {scaled, text.Ints({2})}, "keepdims = 0");
}

Name WhereIds(Text& text, const Name& x) {
  const Name ids = text.Add("Cast", {kIds}, "to = 7");
  const Name special = text.Add("Less", {ids, text.graph.Int(DecoderText::kVocabulary / 2)});
  const Name column = text.Add("Unsqueeze", {special, text.Ints({-1})});
  return text.Add("Where", {column, text.Add("Neg", {x}), x});
}

Name GateByMask(Text& text, const Name& x) {
  const Name kept = text.Add("Cast", {text.MaskOfNew()}, "to = 1");
  return text.Add("Mul", {x, text.Add("Unsqueeze", {kept, text.Ints({2})})});
}

Name GateByPosition(Text& text, const Name& x) {
  const Name factor = text.Add("Mul", {text.PositionColumn(), text.graph.Float(0.25)});
  return text.Add("Mul", {x, text.Add("Cos", {factor})});
}

Name OddPositions(Text& text, const Name& x) {
  const Name odd = text.Add("Mod", {text.Positions(), text.graph.Int(2)});
  const Name condition =
      text.Add("Cast", {text.Add("Unsqueeze", {odd, text.Ints({-1})})}, "to = 9");
  return text.Add("Where", {condition, x, text.Add("Neg", {x})});
}

Name GatherChannels(Text& text, const Name& x) {
  std::vector<int64_t> order(static_cast<size_t>(text.hidden));
  std::iota(order.rbegin(), order.rend(), 0);
  return text.Add("Gather", {x, text.Ints(order)}, "axis = -1");
}

Name ChannelCumSum(Text& text, const Name& x) {
  return text.Add("Tanh", {text.Add("CumSum", {x, text.graph.Int(2)})});
}

Name ChannelSoftmax(Text& text, const Name& x) {
  return text.Add("Add", {x, text.Add("Softmax", {x}, "axis = 2")});
}

Name ChannelMean(Text& text, const Name& x) {
  return text.Add("Sub", {x, text.Add("ReduceMean", {x, text.Ints({2})}, "keepdims = 1")});
}

Name PointConvolution(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 2, 1]");
  const Name kernel = text.graph.Weights({text.hidden, text.hidden, 1}, 0.4);
  const Name product = text.Add("Conv", {turned, kernel}, "kernel_shape = [1]");
  return text.Add("Transpose", {product}, "perm = [0, 2, 1]");
}

Name BatchedProduct(Text& text, const Name& x) {
  return text.Add("MatMul", {x, text.graph.Weights({1, text.hidden, text.hidden}, 0.4)});
}

Name EinsumProduct(Text& text, const Name& x) {
  return text.Add("Einsum", {x, text.Matrix(text.hidden, text.hidden)},
                  "equation = \"bsh,hk->bsk\"");
}

Name TopChannels(Text& text, const Name& x) {
  const auto top = text.graph.AddMany("TopK", 2, {x, text.Ints({2})}, "axis = -1");
  const Name sum = text.Add("ReduceSum", {top[0], text.Ints({-1})}, "keepdims = 1");
  return text.Add("Mul", {x, text.Add("Sigmoid", {sum})});
}

Name PadChannels(Text& text, const Name& x) {
  const Name padded = text.Add("Pad", {x, text.Ints({0, 0, 1, 0, 0, 0})});
  return text.Add("Slice", {padded, text.Ints({0}), text.Ints({text.hidden}), text.Ints({2})});
}

Name OneHotProduct(Text& text, const Name& x) {
  const Name hot = text.Add(
      "OneHot", {kIds, text.graph.Int(DecoderText::kVocabulary), text.graph.Floats({2}, {0, 1})},
      "axis = -1");
  return text.Add(
      "Add", {x, text.Add("MatMul", {hot, text.Matrix(DecoderText::kVocabulary, text.hidden)})});
}

Name FoldChannels(Text& text, const Name& x) {
  const Name folded = text.Add("Reshape", {x, text.Ints({0, 0, 2, text.hidden / 2})});
  const Name turned = text.Add("Transpose", {folded}, "perm = [0, 2, 1, 3]");
  const Name scaled = text.Add("Mul", {turned, text.graph.Weights({2, 1, 1}, 1)});
  const Name back = text.Add("Transpose", {scaled}, "perm = [0, 2, 1, 3]");
  return text.Add("Reshape", {back, text.Ints({0, 0, -1})});
}

Name AddFront(Text& text, const Name& x) {
  const Name front = text.Add("Unsqueeze", {x, text.Ints({0})});
  const Name scaled = text.Add("Mul", {front, text.graph.Weights({1, 1, 1, text.hidden}, 1)});
  return text.Add("Squeeze", {scaled, text.Ints({0})});
}

Name ThroughDouble(Text& text, const Name& x) {
  const Name wide = text.Add("Cast", {x}, "to = 11");
  return text.Add("Cast", {text.Add("Tanh", {wide})}, "to = 1");
}

// A part of the embeddings that a second table holds, as some small models have it.
Name SecondTable(Text& text, const Name& x) {
  const Name table = text.graph.Weights({DecoderText::kVocabulary, text.hidden}, 0.7);
  return text.Add("Add", {x, text.Add("Gather", {table, kIds})});
}

}  // namespace

std::vector<MixOp> TokenwiseOps() {
  constexpr Meaning kTokenwise = Meaning::kTokenwise;
  return {{"transpose_back", kTokenwise, TransposeBack},
          {"transpose_batch", kTokenwise, TransposeBatch},
          {"flatten_by_sizes", kTokenwise, FlattenBySizes},
          {"flatten_inferred", kTokenwise, FlattenInferred},
          {"flatten_by_shape", kTokenwise, FlattenByShape},
          {"gemm", kTokenwise, Gemm},
          {"swap_halves", kTokenwise, SwapHalves},
          {"split_channels", kTokenwise, SplitChannels},
          {"double_channels", kTokenwise, DoubleChannels},
          {"layer_norm", kTokenwise, LayerNorm},
          {"expand_by_ones", kTokenwise, ExpandByOnes},
          {"expand_and_mean", kTokenwise, ExpandAndMean},
          {"where_ids", kTokenwise, WhereIds},
          {"gate_by_mask", kTokenwise, GateByMask},
          {"gate_by_position", kTokenwise, GateByPosition},
          {"odd_positions", kTokenwise, OddPositions},
          {"gather_channels", kTokenwise, GatherChannels},
          {"channel_cumsum", kTokenwise, ChannelCumSum},
          {"channel_softmax", kTokenwise, ChannelSoftmax},
          {"channel_mean", kTokenwise, ChannelMean},
          {"point_convolution", kTokenwise, PointConvolution},
          {"batched_product", kTokenwise, BatchedProduct},
          {"einsum_product", kTokenwise, EinsumProduct},
          {"top_channels", kTokenwise, TopChannels},
          {"pad_channels", kTokenwise, PadChannels},
          {"one_hot_product", kTokenwise, OneHotProduct},
          {"fold_channels", kTokenwise, FoldChannels},
          {"add_front", kTokenwise, AddFront},
          {"through_double", kTokenwise, ThroughDouble},
          {"second_table", kTokenwise, SecondTable}};
}

}  // namespace pagefuse::fuzz
