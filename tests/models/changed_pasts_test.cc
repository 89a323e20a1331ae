// SPDX-License-Identifier: Apache-2.0
// Decoders in which an attention reads a past, or gives a present back, that is not its own as it is:
// each is paged and gives the tokens that it gives as it is, or is named.
#include "gtest/gtest.h"
#include "tests/models/changed_decoder.h"

namespace pagefuse {
namespace {

class ChangedPast : public testing::TestWithParam<ChangedDecoder> {};

TEST_P(ChangedPast, IsPagedAsItIsOrNamed) { ExpectPagedOrNamed(GetParam()); }

constexpr char kHeads[] = "two_layers", kGrouped[] = "two_grouped_layers",
               kLatent[] = "two_latent_layers";

// --- pasts and presents ---

constexpr char kKey1[] = "present_key_1 = Concat <axis = 2> (past_key_1, k1)";
constexpr char kValue1[] = "present_value_1 = Concat <axis = 2> (past_value_1, v1)";
constexpr char kKey0[] = "present_key_0 = Concat <axis = 2> (past_key_0, k0)";
constexpr char kTurned1[] = "turned1 = Transpose <perm = [0, 1, 3, 2]> (present_key_1)";
constexpr char kValues1[] = "(probs1, present_value_1)";

const ChangedDecoder kPasts[] = {
    {"AsItIs", kHeads, {}},
    {"KeysOfTheLayerBefore",
     kHeads,
     {{kKey1, "present_key_1 = Concat <axis = 2> (past_key_0, k1)"}},
     "past \"past_key_0\": expected one reader in one role, got the past keys of this attention and the "
     "past keys of node \"y0_heads.Attention\""},
    {"KeysOfTheLayerBehind",
     kHeads,
     {{kKey0, "present_key_0 = Concat <axis = 2> (past_key_1, k0)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got "
     "\"present_key_0\""},
    {"LayersExchanged",
     kHeads,
     {{kKey0, "present_key_0 = Concat <axis = 2> (past_key_1, k0)"},
      {kKey1, "present_key_1 = Concat <axis = 2> (past_key_0, k1)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\""},
    {"KeysInTheValuesPlace",
     kHeads,
     {{kValue1, "present_value_1 = Concat <axis = 2> (past_key_1, v1)"}},
     "past \"past_key_1\": expected one reader in one role, got the past values"},
    {"KeysAndValuesExchanged",
     kHeads,
     {{kKey1, "present_key_1 = Concat <axis = 2> (past_value_1, k1)"},
      {kValue1, "present_value_1 = Concat <axis = 2> (past_key_1, v1)"}},
     "present of the keys of past \"past_value_1\": expected \"present_value_1\""},
    {"KeysScaled",
     kHeads,
     {{kKey1,
       "less = Mul (past_key_1, half)\n"
       "  present_key_1 = Concat <axis = 2> (less, k1)"}},
     "new keys are not as many as queries"},
    {"ValuesWithoutTheirFirst",
     kHeads,
     {{kValue1,
       "cut = Slice (past_value_1, last, end, two)\n"
       "  present_value_1 = Concat <axis = 2> (cut, v1)"}},
     "\"past_key_1\""},
    {"PresentOfNewKeysAlone",
     kHeads,
     {{kKey1, "all1 = Concat <axis = 2> (past_key_1, k1)\n  present_key_1 = Identity (k1)"},
      {kTurned1, "turned1 = Transpose <perm = [0, 1, 3, 2]> (all1)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got none"},
    {"PresentOfOtherRows",
     kHeads,
     {{kKey1, "all1 = Concat <axis = 2> (past_key_1, k1)\n  present_key_1 = Neg (v1)"},
      {kTurned1, "turned1 = Transpose <perm = [0, 1, 3, 2]> (all1)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got none"},
    {"PresentOfScaledKeys",
     kHeads,
     {{kKey1,
       "all1 = Concat <axis = 2> (past_key_1, k1)\n"
       "  less = Mul (k1, half)\n"
       "  present_key_1 = Concat <axis = 2> (past_key_1, less)"},
      {kTurned1, "turned1 = Transpose <perm = [0, 1, 3, 2]> (all1)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got none"},
    {"PresentDoubled",
     kHeads,
     {{kKey1,
       "all1 = Concat <axis = 2> (past_key_1, k1)\n"
       "  present_key_1 = Add (all1, all1)"},
      {kTurned1, "turned1 = Transpose <perm = [0, 1, 3, 2]> (all1)"}},
     "new keys are not as many as queries"},
    {"PresentExchangedWithValues",
     kHeads,
     {{kKey1, "all1 = Concat <axis = 2> (past_key_1, k1)"},
      {kValue1,
       "present_key_1 = Concat <axis = 2> (past_value_1, v1)\n"
       "  present_value_1 = Identity (all1)"},
      {kTurned1, "turned1 = Transpose <perm = [0, 1, 3, 2]> (all1)"},
      {kValues1, "(probs1, present_key_1)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got \"present_value_1\""},
    {"OneLayerWithoutPast",
     kHeads,
     {{kKey1, "present_key_1 = Identity (k1)"},
      {kValue1, "present_value_1 = Identity (v1)"},
      {"masked1 = Where (seen, scaled1, low)",
       "step = Range (z, new, one)\n  step_column = Unsqueeze (step, column)\n"
       "  seen1 = LessOrEqual (step, step_column)\n  masked1 = Where (seen1, scaled1, low)"}},
     "attends to the tokens of one step, and has no past: expected one, as that of"},
    {"FirstLayerWithoutPast",
     kHeads,
     {{kKey0, "present_key_0 = Identity (k0)"},
      {"present_value_0 = Concat <axis = 2> (past_value_0, v0)", "present_value_0 = Identity (v0)"},
      {"masked0 = Where (seen, scaled0, low)",
       "step = Range (z, new, one)\n  step_column = Unsqueeze (step, column)\n"
       "  seen0 = LessOrEqual (step, step_column)\n  masked0 = Where (seen0, scaled0, low)"}},
     "attends to the tokens of one step, and has no past: expected one, as that of"},
    {"PastsThatNoLayerReads",
     kHeads,
     {{"rows = Range (old, all, one)", "rows = Range (z, new, one)"},
      {"columns = Range (z, all, one)", "columns = Range (z, new, one)"},
      {kKey0, "present_key_0 = Identity (k0)"},
      {"present_value_0 = Concat <axis = 2> (past_value_0, v0)", "present_value_0 = Identity (v0)"},
      {kKey1, "present_key_1 = Identity (k1)"},
      {kValue1, "present_value_1 = Identity (v1)"}},
     "is a past, and no attention reads it as one"},
    {"TransposedKeys",
     kHeads,
     {{"float[batch, 2, past, 4] past_key_1", "float[batch, 2, 4, past] past_key_1"},
      {"float[batch, 2, past + seq, 4] present_key_1",
       "float[batch, 2, 4, past + seq] present_key_1"},
      {kKey1,
       "columns1 = Transpose <perm = [0, 1, 3, 2]> (k1)\n"
       "  present_key_1 = Concat <axis = 3> (past_key_1, columns1)"},
      {kTurned1, "turned1 = Identity (present_key_1)"}}},
    {"PastOfTwoReaders",
     kHeads,
     {{"x1 = Add (x0, o0)",
       "mean = ReduceMean <keepdims = 0> (past_key_0)\n"
       "  o0_mean = Mul (o0, mean)\n  x1 = Add (x0, o0_mean)"}},
     "past_key_0"},
    {"SharedByTwoLayers",
     kHeads,
     {{"present_key_1 = Concat <axis = 2> (past_key_1, k1)",
       "present_key_1 = Concat <axis = 2> (past_key_1, k1)"},
      {"turned1 = Transpose <perm = [0, 1, 3, 2]> (present_key_1)",
       "turned1 = Transpose <perm = [0, 1, 3, 2]> (present_key_0)"},
      {kValues1, "(probs1, present_value_0)"}},
     "input \"past_key_1\" is neither"},
};
INSTANTIATE_TEST_SUITE_P(Pasts, ChangedPast, testing::ValuesIn(kPasts), ChangedDecoder::NameOf);

// --- GroupQueryAttention ---

constexpr char kCall1[] = "(q1, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin)";
constexpr char kCall0[] = "(q0, k0, v0, past_key_0, past_value_0, lengths, total, cos, sin)";
constexpr char kMask[] = "int64[batch, total] attention_mask,";
constexpr char kRows1[] = "y1, present_key_1, present_value_1 = ";
constexpr char kAttributes[] = "<num_heads = 2, kv_num_heads = 1, do_rotary = 1> (q1";

const ChangedDecoder kGroupedRoles[] = {
    {"AsItIs", kGrouped, {}},
    {"QueryOfAnother",
     kGrouped,
     {{kCall1, "(y0, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin)"}}},
    {"ValueOfAnother",
     kGrouped,
     {{"v1 = MatMul (x1, wv1)", "v1, rest = Split <axis = -1, num_outputs = 2> (y0)"}}},
    {"PastScaled",
     kGrouped,
     {{kRows1, "small = Mul (past_key_1, half)\n  y1, present_key_1, present_value_1 = "},
      {kCall1, "(q1, k1, v1, small, past_value_1, lengths, total, cos, sin)"}},
     "past keys: expected an input of the graph, got \"small\""},
    {"PastOfTheLayerBefore",
     kGrouped,
     {{kCall1, "(q1, k1, v1, past_key_0, past_value_1, lengths, total, cos, sin)"}},
     "past \"past_key_0\": expected one reader in one role"},
    {"KeysInTheValuesPlace",
     kGrouped,
     {{kCall1, "(q1, k1, v1, past_key_1, past_key_1, lengths, total, cos, sin)"}},
     "past \"past_key_1\": expected one reader in one role"},
    {"PastsExchanged",
     kGrouped,
     {{kCall1, "(q1, k1, v1, past_value_1, past_key_1, lengths, total, cos, sin)"}},
     "present of the keys of past \"past_value_1\": expected \"present_value_1\""},
    {"PresentsExchanged",
     kGrouped,
     {{kRows1, "y1, present_value_1, present_key_1 = "}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\""},
    {"PresentOfNewKeys",
     kGrouped,
     {{kRows1,
       "shape = Constant <value_ints = [0, 1, -1, 4]> ()\n"
       "  present_key_1 = Reshape (k1, shape)\n  y1, all1, present_value_1 = "}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\", got none"},
    {"OneLayerWithoutPast",
     kGrouped,
     {{kCall1, "(q1, k1, v1, \"\", \"\", lengths, total, cos, sin)"}},
     "attends to the tokens of one step, and has no past"},
    {"RowsOfTheStep",
     kGrouped,
     {{"x0 = Gather (table, input_ids)",
       "x_ids = Gather (table, input_ids)\n  new = Shape <start = 1, end = 2> (input_ids)\n"
       "  step = Slice (places, first, new, first)\n  x0 = Add (x_ids, step)"}},
     "which depends on the places of tokens or on their number"},
    {"CountedRowsOfTheStep",
     kGrouped,
     {{"x0 = Gather (table, input_ids)",
       "x_ids = Gather (table, input_ids)\n  new_1 = Shape <start = 1, end = 2> (input_ids)\n"
       "  new = Squeeze (new_1)\n  counted = Range (z, new, one)\n"
       "  step = Gather (places, counted)\n  x0 = Add (x_ids, step)"}},
     "which depends on the places of tokens or on their number"},
    {"RowsBehindThePast",
     kGrouped,
     {{"x0 = Gather (table, input_ids)",
       "x_ids = Gather (table, input_ids)\n  new_1 = Shape <start = 1, end = 2> (input_ids)\n"
       "  new = Squeeze (new_1)\n  old = Sub (columns, new)\n  counted = Range (old, columns, one)\n"
       "  step = Gather (places, counted)\n  x0 = Add (x_ids, step)"}}},
    {"WindowOfNone",
     kGrouped,
     {{kAttributes, "<num_heads = 2, kv_num_heads = 1, do_rotary = 1, local_window_size = 0> (q1"}},
     "local_window_size: expected -1 or a window of 1 key or more, got 0"},
    {"WindowOfOne",
     kGrouped,
     {{kAttributes,
       "<num_heads = 2, kv_num_heads = 1, do_rotary = 1, local_window_size = 1> (q1"}}},
    {"NoSmoothSoftmax",
     kGrouped,
     {{kAttributes, "<num_heads = 2, kv_num_heads = 1, do_rotary = 1, smooth_softmax = -1> (q1"}}},
    {"LengthsOfIds",
     kGrouped,
     {{"ReduceSum <keepdims = 0> (attention_mask, last)",
       "ReduceSum <keepdims = 0> (input_ids, last)"},
      {"Shape (attention_mask)", "Shape (input_ids)"}},
     "\"input_ids\" counts the new tokens alone"},
    {"LengthsOfAnotherMask",
     kGrouped,
     {{kMask, "int64[batch, total] attention_mask, int64[batch, seq] other_mask,"},
      {kRows1,
       "ones1 = ReduceSum <keepdims = 0> (other_mask, last)\n  less1 = Sub (ones1, one)\n"
       "  lengths1 = Cast <to = 6> (less1)\n  sizes1 = Shape (other_mask)\n"
       "  columns1 = Gather <axis = 0> (sizes1, one)\n  total1 = Cast <to = 6> (columns1)\n"
       "  y1, present_key_1, present_value_1 = "},
      {kCall1, "(q1, k1, v1, past_key_1, past_value_1, lengths1, total1, cos, sin)"}},
     "\"other_mask\" counts the new tokens alone"},
    {"LengthsOfOtherInputs",
     kGrouped,
     {{kMask, "int64[batch, total] attention_mask, int32[batch] other_lengths, int32 other_total,"},
      {kCall1, "(q1, k1, v1, past_key_1, past_value_1, other_lengths, other_total, cos, sin)"}},
     "\"other_lengths\": expected the lengths that node \"y0\""},
    {"SinksOfAllTokens",
     kGrouped,
     {{kRows1,
       "mean = ReduceMean <keepdims = 0> (x1)\n  sinks1 = Mul (sinks, mean)\n"
       "  y1, present_key_1, present_value_1 = "},
      {kCall1,
       "(q1, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin, "
       "\"\", \"\", sinks1)"}},
     "(ReduceMean)"},
    {"SinksOfTheLastToken",
     kGrouped,
     {{kRows1,
       "ends = Gather <axis = 1> (x1, minus)\n  both, others = Split <axis = 1> (ends, sizes_2)\n"
       "  sinks1 = Squeeze (both, first)\n  y1, present_key_1, present_value_1 = "},
      {kCall1,
       "(q1, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin, "
       "\"\", \"\", sinks1)"},
      {"int64 z = {0}", "int64 z = {0}, int64 minus = {-1}, int64[2] sizes_2 = {2, 6}"}},
     "rows of last tokens"},
    {"SinksOfTheLength",
     kGrouped,
     {{kRows1,
       "longer = Cast <to = 1> (columns)\n  sinks1 = Mul (sinks, longer)\n"
       "  y1, present_key_1, present_value_1 = "},
      {kCall1,
       "(q1, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin, "
       "\"\", \"\", sinks1)"}},
     "sinks1"},
    {"SinksThatAreComputed",
     kGrouped,
     {{kRows1, "sinks1 = Mul (sinks, half)\n  y1, present_key_1, present_value_1 = "},
      {kCall1,
       "(q1, k1, v1, past_key_1, past_value_1, lengths, total, cos, sin, "
       "\"\", \"\", sinks1)"}}},
    {"QueriesOfTheLayerBefore",
     kGrouped,
     {{kCall0, "(q0, k0, v0, past_key_1, past_value_1, lengths, total, cos, sin)"},
      {kCall1, "(q1, k1, v1, past_key_0, past_value_0, lengths, total, cos, sin)"}},
     "present of the keys of past \"past_key_1\": expected \"present_key_1\""},
};
INSTANTIATE_TEST_SUITE_P(Grouped, ChangedPast, testing::ValuesIn(kGroupedRoles),
                         ChangedDecoder::NameOf);

// --- latent rows ---

constexpr char kLatent1[] = "present_key_1 = Concat <axis = 2> (past_key_1, c1_4)";
constexpr char kRotated1[] = "present_value_1 = Concat <axis = 2> (past_value_1, r1_4)";
constexpr char kMasked1[] = "masked1 = Add (scaled1, bias)";

const ChangedDecoder kLatentRoles[] = {
    {"AsItIs", kLatent, {}},
    {"RowsOfTheLayerBefore",
     kLatent,
     {{kLatent1, "present_key_1 = Concat <axis = 2> (past_key_0, c1_4)"}},
     "past \"past_key_0\": expected one reader in one role, got the past latent rows"},
    {"RowsInTheRotatedPartsPlace",
     kLatent,
     {{kRotated1, "present_value_1 = Concat <axis = 2> (past_key_1, r1_4)"}},
     "past \"past_key_1\": expected one reader in one role"},
    {"PartsExchanged",
     kLatent,
     {{kLatent1, "present_key_1 = Concat <axis = 2> (past_value_1, c1_4)"},
      {kRotated1, "present_value_1 = Concat <axis = 2> (past_key_1, r1_4)"}},
     "present of the latent rows of past \"past_value_1\": expected "
     "\"present_value_1\""},
    {"PresentOfNewRows",
     kLatent,
     {{kLatent1,
       "all_c1 = Concat <axis = 2> (past_key_1, c1_4)\n"
       "  present_key_1 = Identity (c1_4)"},
      {"rows1 = Squeeze (present_key_1, column)", "rows1 = Squeeze (all_c1, column)"}},
     "present of the latent rows of past \"past_key_1\": expected \"present_key_1\", got "
     "none"},
    {"OneLayerWithoutPast",
     kLatent,
     {{kLatent1, "present_key_1 = Identity (c1_4)"},
      {kRotated1, "present_value_1 = Identity (r1_4)"},
      {kMasked1,
       "step = Range (z, new, one)\n  step_column = Unsqueeze (step, column)\n"
       "  seen1 = LessOrEqual (step, step_column)\n  bias1 = Where (seen1, nothing, low)\n"
       "  masked1 = Add (scaled1, bias1)"}},
     "attends to the tokens of one step, and has no past"},
    {"LinearBias",
     kLatent,
     {{kMasked1,
       "distance = Sub (columns, rows_column)\n  distance_float = Cast <to = 1> (distance)\n"
       "  slanted = Mul (distance_float, slopes)\n  sum1 = Add (scaled1, bias)\n"
       "  masked1 = Add (sum1, slanted)"}},
     "has a linear bias over latent rows"},
    {"Sinks",
     kLatent,
     {{"probs1 = Softmax <axis = -1> (masked1)",
       "scores_shape = Shape (masked1)\n  front = Slice (scores_shape, first, three, first)\n"
       "  sink_shape = Concat <axis = 0> (front, column)\n  sink1 = Expand (sinks, sink_shape)\n"
       "  joined1 = Concat <axis = -1> (masked1, sink1)\n  all_probs = Softmax <axis = -1> "
       "(joined1)\n  probs1 = Slice (all_probs, first, last, last)"}},
     "has sinks over latent rows"},
};
INSTANTIATE_TEST_SUITE_P(Latent, ChangedPast, testing::ValuesIn(kLatentRoles),
                         ChangedDecoder::NameOf);

}  // namespace
}  // namespace pagefuse
