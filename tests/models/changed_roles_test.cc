// SPDX-License-Identifier: Apache-2.0
// Decoders in which an input, what is beside an attention, or a row of last tokens is read as something
// else than it is taken for: each is paged and gives the tokens that it gives as it is, or is named.
#include "gtest/gtest.h"
#include "tests/models/changed_decoder.h"

namespace pagefuse {
namespace {

class ChangedRole : public testing::TestWithParam<ChangedDecoder> {};

TEST_P(ChangedRole, IsPagedAsItIsOrNamed) { ExpectPagedOrNamed(GetParam()); }

constexpr char kHeads[] = "two_layers";

// --- inputs ---

constexpr char kIds[] = "x_ids = Gather (table, input_ids)";
constexpr char kPositionInput[] = "int64[batch, seq] position_ids";
constexpr char kPlaces[] = "x_places = Gather (places, position_ids)";

const ChangedDecoder kInputs[] = {
    {"IdsCounted",
     kHeads,
     {{kIds,
       "sums = CumSum (input_ids, one)\n  most = Constant <value_int = 16> ()\n"
       "  hashed = Mod (sums, most)\n  x_ids = Gather (table, hashed)"}},
     "node \"sums\" (CumSum) does not work on each token alone"},
    {"IdsCountedBesideUnnamedPositions",
     kHeads,
     {{kPositionInput, "int64[batch, seq] pos"},
      {kPlaces, "x_places = Gather (places, pos)"},
      {kIds,
       "sums = CumSum (input_ids, one)\n  most = Constant <value_int = 16> ()\n"
       "  hashed = Mod (sums, most)\n  x_ids = Gather (table, hashed)"}},
     "inputs \"pos\" and \"input_ids\" may both be token ids"},
    {"PositionsCountedInTheStep",
     kHeads,
     {{kPositionInput, "int64[batch, seq] attention_mask"},
      {kPlaces,
       "sums = CumSum (attention_mask, one)\n  from_0 = Sub (sums, one)\n"
       "  x_places = Gather (places, from_0)"}},
     "depends on the places of tokens or on their number"},
    {"IdsSummed",
     kHeads,
     {{kIds,
       "sums = ReduceSum (input_ids, column)\n  most = Constant <value_int = 16> ()\n"
       "  hashed = Mod (sums, most)\n  x_ids = Gather (table, hashed)"}},
     "node \"sums\" (ReduceSum) does not work on each token alone"},
    {"IdsEmbeddedAndCounted",
     kHeads,
     {{kIds,
       "sums = CumSum (input_ids, one)\n  most = Constant <value_int = 16> ()\n"
       "  hashed = Mod (sums, most)\n  x_sums = Gather (table, hashed)\n"
       "  x_own = Gather (table, input_ids)\n  x_ids = Add (x_sums, x_own)"}},
     "node \"sums\" (CumSum) does not work on each token alone"},
    {"IdsHashed",
     kHeads,
     {{kIds,
       "most = Constant <value_int = 7> ()\n  hashed = Mod (input_ids, most)\n"
       "  x_ids = Gather (table, hashed)"}}},
    {"IdsInTwoTables",
     kHeads,
     {{kIds,
       "x_own = Gather (table, input_ids)\n  x_other = Gather (places, input_ids)\n"
       "  x_ids = Add (x_own, x_other)"}}},
    {"PositionsInTwoTables",
     kHeads,
     {{kPlaces,
       "x_near = Gather (places, position_ids)\n  few = Constant <value_int = 16> ()\n"
       "  turn = Mod (position_ids, few)\n  x_turn = Gather (table, turn)\n"
       "  x_places = Add (x_near, x_turn)"}}},
    {"PositionsAddedToIds",
     kHeads,
     {{kIds,
       "sums = Add (input_ids, position_ids)\n  most = Constant <value_int = 16> ()\n"
       "  hashed = Mod (sums, most)\n  x_sums = Gather (table, hashed)\n"
       "  x_own = Gather (table, input_ids)\n  x_ids = Add (x_sums, x_own)"}}},
    {"PositionsInTheVocabulary",
     kHeads,
     {{kIds, "x_ids = Gather (places, input_ids)"},
      {kPlaces,
       "few = Constant <value_int = 15> ()\n  near = Min (position_ids, few)\n"
       "  x_near = Gather (table, near)\n  x_own = Gather (table, position_ids)\n"
       "  x_places = Add (x_near, x_own)"}}},
    {"IdsThatHideKeys",
     kHeads,
     {{"seen = LessOrEqual (columns, rows_column)",
       "before = LessOrEqual (columns, rows_column)\n  words = Cast <to = 9> (input_ids)\n"
       "  seen = And (before, words)"}},
     "(Softmax): belongs to no recognised Attention"},
    {"MaskInArithmetic",
     "bloom",
     {{"x = Gather (table, input_ids)",
       "x_own = Gather (table, input_ids)\n  mask_float = Cast <to = 1> (attention_mask)\n"
       "  ones = ReduceSum (mask_float, one)\n  ones_3d = Unsqueeze (ones, one)\n"
       "  x = Div (x_own, ones_3d)"}},
     "\"ones"},
    {"MaskThatIsATableIndex",
     "bloom",
     {{"x = Gather (table, input_ids)",
       "x_own = Gather (table, input_ids)\n  kinds = Gather (table, attention_mask)\n"
       "  kind = ReduceMean (kinds, one)\n  x = Add (x_own, kind)"}},
     "node \"x\" (Add) reads \"kind\""},
};
INSTANTIATE_TEST_SUITE_P(Inputs, ChangedRole, testing::ValuesIn(kInputs), ChangedDecoder::NameOf);

// --- further inputs of attention ---

constexpr char kSinkView[] = "sink4 = Reshape (sinks, sink_view)";

const ChangedDecoder kBeside[] = {
    {"SinksOfAllTokens",
     "sinks",
     {{kSinkView,
       "mean = ReduceMean <keepdims = 0> (x)\n  other = Mul (sinks, mean)\n"
       "  sink4 = Reshape (other, sink_view)"}},
     "(ReduceMean)"},
    {"SinksOfPositions",
     "sinks",
     {{kSinkView,
       "longest = ReduceMax <keepdims = 0> (position_ids)\n"
       "  far = Cast <to = 1> (longest)\n  other = Mul (sinks, far)\n"
       "  sink4 = Reshape (other, sink_view)"}},
     "(ReduceMax)"},
    {"SinksOfIds",
     "sinks",
     {{kSinkView,
       "least = ReduceMin <keepdims = 0> (input_ids)\n"
       "  low_id = Cast <to = 1> (least)\n  other = Mul (sinks, low_id)\n"
       "  sink4 = Reshape (other, sink_view)"}},
     "(ReduceMin)"},
    {"SinksThatAreComputed",
     "sinks",
     {{kSinkView, "other = Mul (sinks, factor)\n  sink4 = Reshape (other, sink_view)"}}},
    {"SlopesOfAllTokens",
     "bloom",
     {{"biases = Mul (slopes, places_float)",
       "mean = ReduceMean <keepdims = 0> (x)\n  slanted = Mul (slopes, mean)\n"
       "  biases = Mul (slanted, places_float)"}},
     "(Attention): mask: "},
    {"SlopesOfTheLength",
     "bloom",
     {{"biases = Mul (slopes, places_float)",
       "far = Cast <to = 1> (all)\n  slanted = Mul (slopes, far)\n"
       "  biases = Mul (slanted, places_float)"}},
     "(Attention): mask: "},
};
INSTANTIATE_TEST_SUITE_P(Beside, ChangedRole, testing::ValuesIn(kBeside), ChangedDecoder::NameOf);

// --- rows of last tokens ---

constexpr char kLogits[] = "logits = MatMul (x2, head)";
constexpr char kShape[] = "float[batch, seq, 16] logits";

const ChangedDecoder kLastRows[] = {
    {"SoftmaxOverTheVocabulary",
     kHeads,
     {{kShape, "float[batch, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  ends = Gather <axis = 1> (x2, minus)\n"
       "  scores = MatMul (ends, head)\n  logits = Softmax <axis = 1> (scores)"}}},
    {"NormOverTheVocabulary",
     kHeads,
     {{kShape, "float[batch, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  ends = Gather <axis = 1> (x2, minus)\n"
       "  weight = Constant <value_floats = [1.0, 2.0, -1.0, 0.5, 1.0, 2.0, 3.0, 1.0]> ()\n"
       "  normed = LayerNormalization <axis = 1> (ends, weight)\n  logits = MatMul (normed, head)"}}},
    {"ColumnsRemapped",
     kHeads,
     {{kShape, "float[batch, 1, 16] logits"},
      {kLogits,
       "scores = MatMul (x2, head)\n  ends = Slice (scores, last, end, column)\n"
       "  turned = Constant <value_ints = [3, 1, 2, 0, 7, 6, 5, 4, 9, 8, 15, 14, 13, 12, 11, 10]> ()"
       "\n  logits = Gather <axis = 2> (ends, turned)"}}},
    {"ColumnsRemappedOfTwoAxes",
     kHeads,
     {{kShape, "float[batch, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  scores = MatMul (x2, head)\n"
       "  ends = Gather <axis = 1> (scores, minus)\n"
       "  turned = Constant <value_ints = [3, 1, 2, 0, 7, 6, 5, 4, 9, 8, 15, 14, 13, 12, 11, 10]> ()"
       "\n  logits = Gather <axis = 1> (ends, turned)"}}},
    {"OneColumnOfAll",
     kHeads,
     {{kShape, "float[batch, 16, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  scores = MatMul (x2, head)\n"
       "  ends = Gather <axis = 1> (scores, minus)\n"
       "  ends_1 = Unsqueeze (ends, column)\n"
       "  sixteen = Constant <value_ints = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]> ()\n"
       "  logits = Gather <axis = 1> (ends_1, sixteen)"}},
     "does something else than row by row work to rows of last tokens"},
    {"RowsOfAnotherAxisBeside",
     kHeads,
     {{kShape, "float[batch, any, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  scores = MatMul (x2, head)\n"
       "  ends = Gather <axis = 1> (scores, minus)\n  ends_1 = Unsqueeze (ends, column)\n"
       "  logits = Add (ends, ends_1)"}},
     "\"logits\" (Add) does something else than row by row work"},
    {"TheFirstSequenceOfTheBatch",
     kHeads,
     {{kShape, "float[1, 16] logits"},
      {kLogits,
       "minus = Constant <value_int = -1> ()\n  scores = MatMul (x2, head)\n"
       "  ends = Gather <axis = 1> (scores, minus)\n  logits = Gather <axis = 0> (ends, first)"}},
     "\"logits\" (Gather) does something else than row by row work"},
};
INSTANTIATE_TEST_SUITE_P(LastRows, ChangedRole, testing::ValuesIn(kLastRows),
                         ChangedDecoder::NameOf);

}  // namespace
}  // namespace pagefuse
