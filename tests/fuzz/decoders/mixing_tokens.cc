// SPDX-License-Identifier: Apache-2.0
// Ops that mix tokens, or sequences of the batch, or count them.
#include "decoder_text.h"
#include "mixing.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

using Text = DecoderText;
using Name = std::string;

// Ends of a cut, near and far.
Name Cut(Text& text, const Name& x, int64_t from, int64_t to, int64_t axis = 1) {
  return text.Add("Slice", {x, text.Ints({from}), text.Ints({to}), text.Ints({axis})});
}

Name Half(Text& text, const Name& x) { return text.Add("Mul", {x, text.graph.Float(0.5)}); }

Name AddHalf(Text& text, const Name& x, const Name& more) {
  return text.Add("Add", {x, Half(text, more)});
}

Name CausalConvolution(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 2, 1]");
  const Name kernel = text.graph.Weights({text.hidden, 1, 3}, 0.7);
  const Name product = text.Add("Conv", {turned, kernel},
                                StrCat("kernel_shape = [3], pads = [2, 0], group = ", text.hidden));
  return text.Add("Transpose", {product}, "perm = [0, 2, 1]");
}

Name ShiftBySlice(Text& text, const Name& x) {
  const Name zeros = text.Add("Mul", {Cut(text, x, 0, 1), text.graph.Float(0)});
  return AddHalf(text, x, text.Add("Concat", {zeros, Cut(text, x, 0, -1)}, "axis = 1"));
}

Name ShiftByPad(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("Pad", {x, text.Ints({0, 1, 0, 0, -1, 0})}));
}

Name Roll(Text& text, const Name& x) {
  const Name rolled =
      text.Add("Concat", {Cut(text, x, -1, INT64_MAX), Cut(text, x, 0, -1)}, "axis = 1");
  return AddHalf(text, x, rolled);
}

Name CumSumTokens(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("CumSum", {x, text.graph.Int(1)}));
}

Name Reduced(Text& text, const Name& x, const std::string& op, int64_t axis) {
  return AddHalf(text, x, text.Add(op, {x, text.Ints({axis})}, "keepdims = 1"));
}

Name MeanOfTokens(Text& text, const Name& x) { return Reduced(text, x, "ReduceMean", 1); }
Name MaxOfTokens(Text& text, const Name& x) { return Reduced(text, x, "ReduceMax", -2); }
Name MeanOfBatch(Text& text, const Name& x) { return Reduced(text, x, "ReduceMean", 0); }
Name MeanOfAll(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("ReduceMean", {x}, "keepdims = 1"));
}

Name SoftmaxOfTokens(Text& text, const Name& x) {
  return text.Add("Mul", {x, text.Add("Softmax", {x}, "axis = 1")});
}

Name SoftmaxOfBatch(Text& text, const Name& x) {
  return text.Add("Mul", {x, text.Add("Softmax", {x}, "axis = 0")});
}

Name Reverse(Text& text, const Name& x) {
  const Name turned = text.Add(
      "Slice", {x, text.Ints({-1}), text.Ints({INT64_MIN}), text.Ints({1}), text.Ints({-1})});
  return AddHalf(text, x, turned);
}

Name GatherReverse(Text& text, const Name& x) {
  const Name last = text.Add("Sub", {text.Scalar(text.Length()), text.graph.Int(1)});
  const Name places = text.Add(
      "Sub", {last, text.Add("Range",
                             {text.graph.Int(0), text.Scalar(text.Length()), text.graph.Int(1)})});
  return AddHalf(text, x, text.Add("Gather", {x, places}, "axis = 1"));
}

Name FirstToken(Text& text, const Name& x) { return AddHalf(text, x, Cut(text, x, 0, 1)); }
Name LastToken(Text& text, const Name& x) { return AddHalf(text, x, Cut(text, x, -1, INT64_MAX)); }

Name NormOfTokens(Text& text, const Name& x) {
  const Name norm = text.Add("ReduceL2", {x, text.Ints({1})}, "keepdims = 1");
  return text.Add("Div", {x, text.Add("Add", {norm, text.graph.Float(0.5)})});
}

Name InstanceNorm(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 2, 1]");
  const Name norm = text.Add("InstanceNormalization", {turned, text.graph.Weights({text.hidden}, 1),
                                                       text.graph.Weights({text.hidden}, 1)});
  return AddHalf(text, x, text.Add("Transpose", {norm}, "perm = [0, 2, 1]"));
}

Name BackToRows(Text& text, const Name& flat) {
  const Name shape =
      text.Add("Concat", {text.Batch(), text.Length(), text.Ints({text.hidden})}, "axis = 0");
  return text.Add("Reshape", {flat, shape});
}

Name FlatSoftmax(Text& text, const Name& x) {
  const Name flat = text.Add("Reshape", {x, text.Ints({0, -1})});
  return AddHalf(text, x, BackToRows(text, text.Add("Softmax", {flat}, "axis = -1")));
}

// A view that takes channels for tokens: row numbers are those of another token.
Name WrongView(Text& text, const Name& x) {
  const Name shape =
      text.Add("Concat", {text.Batch(), text.Ints({text.hidden}), text.Length()}, "axis = 0");
  const Name viewed = text.Add("Reshape", {x, shape});
  const Name scaled = text.Add("Mul", {viewed, text.graph.Weights({text.hidden, 1}, 1)});
  return BackToRows(text, scaled);
}

// Batch and tokens change places in a view, without a transpose.
Name SwappedView(Text& text, const Name& x) {
  const Name shape =
      text.Add("Concat", {text.Length(), text.Batch(), text.Ints({text.hidden})}, "axis = 0");
  const Name viewed = text.Add("Reshape", {x, shape});
  const Name mean = text.Add("ReduceMean", {viewed, text.Ints({0})}, "keepdims = 1");
  return BackToRows(text, text.Add("Add", {viewed, mean}));
}

// Half a row is one place: places are twice as many as tokens.
Name CumSumOfHalves(Text& text, const Name& x) {
  const Name shape =
      text.Add("Concat", {text.Batch(), text.Ints({-1, text.hidden / 2})}, "axis = 0");
  const Name halves = text.Add("Reshape", {x, shape});
  return AddHalf(text, x, BackToRows(text, text.Add("CumSum", {halves, text.graph.Int(1)})));
}

Name FlatCumSum(Text& text, const Name& x) {
  const Name flat = text.Add("Reshape", {x, text.Ints({-1, text.hidden})});
  return AddHalf(text, x, BackToRows(text, text.Add("CumSum", {flat, text.graph.Int(0)})));
}

Name Gram(Text& text, const Name& x) {
  const Name products = text.Add("MatMul", {x, text.Add("Transpose", {x}, "perm = [0, 2, 1]")});
  return AddHalf(text, x, text.Add("MatMul", {text.Add("Softmax", {products}, "axis = -1"), x}));
}

Name GramEinsum(Text& text, const Name& x) {
  const Name products = text.Add("Einsum", {x, x}, "equation = \"bsh,bth->bst\"");
  const Name sums = text.Add("ReduceSum", {products, text.Ints({-1})}, "keepdims = 1");
  return text.Add("Mul", {x, text.Add("Sigmoid", {sums})});
}

Name DivideByLength(Text& text, const Name& x) {
  return text.Add("Div", {x, text.Add("Cast", {text.Length()}, "to = 1")});
}

Name DivideByTotal(Text& text, const Name& x) {
  const Name total = text.Add("Cast", {text.Total()}, "to = 1");
  return text.Add("Mul",
                  {x, text.Add("Add", {text.Add("Reciprocal", {total}), text.graph.Float(0.5)})});
}

Name DivideByMask(Text& text, const Name& x) {
  const Name count = text.Add("ReduceSum", {text.MaskNumbers(), text.Ints({1})}, "keepdims = 1");
  const Name column = text.Add("Unsqueeze", {text.Add("Cast", {count}, "to = 1"), text.Ints({2})});
  return text.Add("Div", {x, column});
}

Name SortTokens(Text& text, const Name& x) {
  const auto sorted = text.graph.AddMany("TopK", 2, {x, text.Length()}, "axis = 1");
  return AddHalf(text, x, sorted[0]);
}

Name AveragePool(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 2, 1]");
  const Name pooled =
      text.Add("AveragePool", {turned}, "kernel_shape = [2], pads = [1, 0], strides = [1]");
  return text.Add("Transpose", {pooled}, "perm = [0, 2, 1]");
}

// A recurrence: each token takes half of the state of the one before.
Name Recurrence(Text& text, const Name& x) {
  const Name first = text.Add("Mul", {Cut(text, x, 0, 1), text.graph.Float(0)});
  const Name state = text.Add("Squeeze", {first, text.Ints({1})});
  const auto outputs = text.graph.AddMany(
      "Scan", 2, {state, x},
      "num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = step "
      "(float[batch, width] s, float[batch, width] r) => (float[batch, width] n, float[batch, "
      "width] o) { t = Tanh (s) n = Add (t, r) o = Identity (n) }");
  return outputs[1];
}

// Each row gets the places that have the same id: the batch's tokens meet in a comparison.
Name SameIds(Text& text, const Name& x) {
  const Name ids = text.Add("Cast", {kIds}, "to = 7");
  const Name same = text.Add("Equal", {text.Add("Unsqueeze", {ids, text.Ints({2})}),
                                       text.Add("Unsqueeze", {ids, text.Ints({1})})});
  const Name weights = text.Add("Cast", {same}, "to = 1");
  return AddHalf(text, x, text.Add("MatMul", {weights, x}));
}

// The token before stands beside each token.
Name Bigram(Text& text, const Name& x) {
  const Name before =
      text.Add("Concat", {Cut(text, kIds, 0, 1), Cut(text, kIds, 0, -1)}, "axis = 1");
  const Name table = text.graph.Weights({Text::kVocabulary, text.hidden}, 0.7);
  return text.Add("Add", {x, text.Add("Gather", {table, before})});
}

Name CumSumOfIds(Text& text, const Name& x) {
  const Name ids = text.Add("Cast", {kIds}, "to = 1");
  const Name sums = text.Add("CumSum", {ids, text.graph.Int(1)});
  const Name waves = text.Add("Cos", {text.Add("Unsqueeze", {sums, text.Ints({-1})})});
  return text.Add("Mul", {x, waves});
}

// A batch of one becomes three sequences, and one again.
Name ConstantOfThree(Text& text, const Name& x) {
  const Name three = text.Add("Add", {x, text.graph.Weights({3, 1, text.hidden}, 1)});
  return text.Add("ReduceMax", {three, text.Ints({0})}, "keepdims = 1");
}

Name ExpandBatch(Text& text, const Name& x) {
  const Name twice = text.Add("Expand", {x, text.Ints({2, 1, 1})});
  const Name scaled = text.Add("Mul", {twice, text.graph.Weights({2, 1, 1}, 1)});
  return text.Add("ReduceSum", {scaled, text.Ints({0})}, "keepdims = 1");
}

}  // namespace

std::vector<MixOp> TokenMixingOps() {
  constexpr Meaning kMixes = Meaning::kMixes;
  return {{"causal_convolution", kMixes, CausalConvolution},
          {"shift_by_slice", kMixes, ShiftBySlice},
          {"shift_by_pad", kMixes, ShiftByPad},
          {"roll", kMixes, Roll},
          {"cumsum_tokens", kMixes, CumSumTokens},
          {"mean_of_tokens", kMixes, MeanOfTokens},
          {"max_of_tokens", kMixes, MaxOfTokens},
          {"mean_of_batch", kMixes, MeanOfBatch},
          {"mean_of_all", kMixes, MeanOfAll},
          {"softmax_of_tokens", kMixes, SoftmaxOfTokens},
          {"softmax_of_batch", kMixes, SoftmaxOfBatch},
          {"reverse", kMixes, Reverse},
          {"gather_reverse", kMixes, GatherReverse},
          {"first_token", kMixes, FirstToken},
          {"last_token", kMixes, LastToken},
          {"norm_of_tokens", kMixes, NormOfTokens},
          {"instance_norm", kMixes, InstanceNorm},
          {"flat_softmax", kMixes, FlatSoftmax},
          {"wrong_view", kMixes, WrongView},
          {"swapped_view", kMixes, SwappedView},
          {"cumsum_of_halves", kMixes, CumSumOfHalves},
          {"flat_cumsum", kMixes, FlatCumSum},
          {"gram", kMixes, Gram},
          {"gram_einsum", kMixes, GramEinsum},
          {"divide_by_length", kMixes, DivideByLength},
          {"divide_by_total", kMixes, DivideByTotal},
          {"divide_by_mask", kMixes, DivideByMask},
          {"sort_tokens", kMixes, SortTokens},
          {"average_pool", kMixes, AveragePool},
          {"recurrence", kMixes, Recurrence},
          {"same_ids", kMixes, SameIds},
          {"bigram", kMixes, Bigram},
          {"cumsum_of_ids", kMixes, CumSumOfIds},
          {"constant_of_three", kMixes, ConstantOfThree},
          {"expand_batch", kMixes, ExpandBatch}};
}

}  // namespace pagefuse::fuzz
