// SPDX-License-Identifier: Apache-2.0
// The second half of the body: mask, bias, softmax, values, outputs.

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention_body.h"

namespace pagefuse {
using pagefuse_ops::Call;

// `visible` and inside the window, or the chunks that replace it.
std::string PagedAttentionBody::Window(std::string visible) {
  const PagedAttentionAttributes& a = o_.attributes;
  if (a.chunk_size() > 0) {
    const std::string size = Int(a.chunk_size());
    const std::string own = Add(Call("Div", "p", size));
    const std::string other = Add(Call("Div", "j", size));
    const std::string back = Add(Call("Sub", own, other));
    const std::string near = Add(Call("LessOrEqual", back, Int(a.chunk_lookback)));
    return Add(Call("And", visible, near));
  }
  if (a.sliding_window == 0) return visible;
  const std::string window = Constant("window", StrCat("value_int: int = ", a.sliding_window));
  Set("dist", "Sub (p, j)");
  visible = Add(Call("And", visible, Add(Call("Less", "dist", window))));
  if (a.is_causal && !o_.has_causal_flags) return visible;
  std::string ahead = Add(Call("Less", Add("Neg (dist)"), window));
  if (o_.has_causal_flags) ahead = Add(Call("Or", ahead, "is_causal"));
  return Add(Call("And", visible, ahead));
}

// Some range of the sequence holds both p and j, [T, N].
std::string PagedAttentionBody::ImageRanges() {
  Set("wide_ranges", "Cast <to = 7> (mm_prefix_range)");
  Set("ranges", "Gather <axis = 0> (wide_ranges, seq)");
  Set("lo", "Gather <axis = 2> (ranges, i_0)");
  Set("hi", "Gather <axis = 2> (ranges, i_1)");
  const std::string some = Add("Less (lo, hi)");
  const std::string p_after = Add("GreaterOrEqual (p, lo)");
  const std::string p_before = Add("LessOrEqual (p, hi)");
  const std::string p_inside = Add(Call("And", p_after, p_before));
  const std::string holds_p = Add(Call("And", some, p_inside));
  const std::string lo1 = Add(Call("Unsqueeze", "lo", Ints({2})));
  const std::string j_after = Add(Call("GreaterOrEqual", "j", lo1));
  const std::string hi1 = Add("Unsqueeze (hi, l_2)");
  const std::string j_before = Add(Call("LessOrEqual", "j", hi1));
  const std::string holds_j = Add(Call("And", j_after, j_before));
  const std::string holds_p1 = Add(Call("Unsqueeze", holds_p, "l_2"));
  const std::string holds_both = Add(Call("And", holds_p1, holds_j));
  const std::string as_int = Add(StrCat("Cast <to = 6> (", holds_both, ")"));
  const std::string any = Add(StrCat("ReduceMax <keepdims = 0> (", as_int, ", l_1)"));
  return Add(StrCat("Cast <to = 9> (", any, ")"));
}

void PagedAttentionBody::Mask() {
  w_.Comment("mask [T, 1, 1, N]");
  const PagedAttentionAttributes& a = o_.attributes;
  Set("n_keys1", "Shape <start = 2, end = 3> (k)");
  Set("n_keys", "Squeeze (n_keys1)");
  Set("j", "Range (i_0, n_keys, i_1)");
  Set("p", "Unsqueeze (pos, l_1)");
  const std::string len1 = Add("Unsqueeze (len, l_1)");
  Set("inside", Call("Less", "j", len1));
  std::string visible = "inside";
  if (o_.has_causal_flags) {
    const std::string past = Add("LessOrEqual (j, p)");
    const std::string flag = Add("Gather <axis = 0> (causal_flags, seq)");
    Set("is_causal", Call("Unsqueeze", flag, "l_1"));
    const std::string free = Add("Not (is_causal)");
    visible = Add(Call("And", Add(Call("Or", past, free)), "inside"));
  } else if (a.is_causal) {
    visible = Add(Call("And", Add("LessOrEqual (j, p)"), "inside"));
  }
  if (!(o_.has_ranges && a.mm_prefix_clamp_window)) visible = Window(visible);
  if (o_.has_ranges) {
    visible = Add(Call("And", Add(Call("Or", visible, ImageRanges())), "inside"));
    if (a.mm_prefix_clamp_window) visible = Window(visible);
  }
  Set("mask", Call("Unsqueeze", visible, Ints({1, 2})));
}

// ALiBi and the bias among query tokens, on top of masked scores.
std::string PagedAttentionBody::Bias(std::string s) {
  if (o_.has_alibi || o_.has_qq_bias) {
    Set("ctx", "Sub (pos, qidx)");
    Set("ctx1", "Unsqueeze (ctx, l_1)");
    Set("relative", "Sub (j, ctx1)");
  }
  if (o_.has_alibi) {
    const bool root = o_.attributes.use_alibi_sqrt;
    Set("slopes", "Reshape (alibi_slopes, head_shape)");
    std::string distance = root ? Add("Sub (p, j)") : "relative";
    distance = Add(StrCat("Cast <to = 1> (", distance, ")"));
    if (root) {
      distance = Add(StrCat("Sqrt (", Add(Call("Max", distance, "f_0")), ")"));
    }
    const std::string wide = Add(Call("Unsqueeze", distance, Ints({1, 2})));
    const std::string bias = Add(Call("Mul", "slopes", wide));
    s = Add(Call(root ? "Sub" : "Add", s, bias));
  }
  if (o_.has_qq_bias) {
    const std::string size = Add("Squeeze (" + Add("Shape <start = 1, end = 2> (qq_bias)") + ")");
    const std::string after = Add("GreaterOrEqual (relative, i_0)");
    const std::string before = Add(Call("Less", "relative", size));
    const std::string among = Add(Call("And", after, before));
    const std::string row = Add("Gather <axis = 0> (qq_bias, qidx)");
    const std::string index = Add(StrCat("Where (", among, ", relative, i_0)"));
    const std::string element = Add(StrCat("GatherElements <axis = 1> (", row, ", ", index, ")"));
    const std::string bias = Add(StrCat("Where (", among, ", ", element, ", f_0)"));
    s = Add(Call("Add", s, Add(Call("Unsqueeze", bias, Ints({1, 2})))));
  }
  return s;
}

void PagedAttentionBody::Softmax(std::string_view s) {
  w_.Comment("softmax over the visible keys (and the sink); a row that sees nothing gives zeros");
  std::string max = Add(Call("ReduceMax <keepdims = 1>", s, Ints({3})));
  if (o_.has_sink) {
    Set("sink", Call("Reshape", Cast("head_sink", o_.sink_type, DataType::kFloat), "head_shape"));
    max = Add(Call("Max", max, "sink"));
  }
  const std::string infinite = Add(StrCat("IsInf (", max, ")"));
  Set("m", StrCat("Where (", infinite, ", f_0, ", max, ")"));
  const std::string below = Add(Call("Sub", s, "m"));
  Set("e", StrCat("Exp (", below, ")"));
  std::string sum = Add("ReduceSum <keepdims = 1> (e, l_3)");
  if (o_.has_sink) {
    const std::string sink_below = Add("Sub (sink, m)");
    sum = Add(Call("Add", sum, Add(StrCat("Exp (", sink_below, ")"))));
  }
  Set("l", StrCat("Identity (", sum, ")"));
  std::string weights = "e";
  if (codes()) weights = Add("Mul (e, vs)");

  w_.Comment("values of slots that are not visible never count, whatever they hold");
  const std::string column = Add("Transpose <perm = [0, 1, 3, 2]> (mask)");
  const std::string v = Add(StrCat("Where (", column, ", v, f_0)"));
  const std::string w = Add(StrCat("Where (mask, ", weights, ", f_0)"));
  const std::string o = Add(Call("MatMul", w, v));
  Set("empty", "Equal (l, f_0)");
  const std::string divisor = Add(StrCat("Where (empty, ", Float("f_1", 1), ", l)"));
  Set("o", Call("Div", o, divisor));
}

// The floats `o`, nan_value where one is no number.
std::string PagedAttentionBody::Numbers(std::string o) {
  if (!o_.attributes.replaces_nan) return o;
  const std::string broken = Add(StrCat("IsNaN (", o, ")"));
  const std::string number = Float("nan_value", o_.attributes.nan_value);
  return Add(StrCat("Where (", broken, ", ", number, ", ", o, ")"));
}

void PagedAttentionBody::Output() {
  std::string o = "o";
  if (f8_query()) o = Add("Mul (o, v_scale)");
  Set("out_shape", "Shape (query)");
  o = Add(Call("Reshape", o, "out_shape"));
  DataType type = DataType::kFloat;
  if (transforms()) {
    o = Cast(Cast(o, type, o_.compute_type), o_.compute_type, type);
    o = Add(Call("MatMul", o, "hadamard"));
    o = Add(Call("Mul", o, "rht_signs"));
    o = Add(Call("Div", o, Add("Cast <to = 1> (d)")));
    o = Cast(o, type, o_.compute_type);
    type = o_.compute_type;
  }
  if (o_.has_output_scale) {
    o = Cast(o, type, DataType::kFloat);
    o = Numbers(Add(Call("Mul", o, Add("Reciprocal (output_scale)"))));
    o = Add(StrCat("Clip (", o, ", ", Float("f_m448", -448), ", ", Float("f_448", 448), ")"));
    const bool twin = o_.output_type == DataType::kUint8;
    if (twin) o = Add(StrCat("Cast <to = 17> (", o, ")"));
    Set("output", StrCat(twin ? "BitCast <to = 2>" : "Cast <to = 17>", " (", o, ")"));
    return;
  }
  if (o_.attributes.replaces_nan) o = Numbers(Cast(o, type, DataType::kFloat));
  Set("output", StrCat("Cast <to = ", static_cast<int>(o_.output_type), "> (", o, ")"));
}

void PagedAttentionBody::Lse() {
  const std::string log = Add("Log (l)");
  const std::string sum = Add(Call("Add", log, "m"));
  const std::string known = Add(StrCat("Where (empty, neg_inf, ", sum, ")"));
  const std::string shape = Add("Concat <axis = 0> (n_tokens1, heads)");
  const std::string flat = Add(Call("Reshape", known, shape));
  Set("lse", StrCat("Transpose <perm = [1, 0]> (", flat, ")"));
}

}  // namespace pagefuse
