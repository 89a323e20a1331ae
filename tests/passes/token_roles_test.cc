// SPDX-License-Identifier: Apache-2.0
// Which nodes may stand between the paged matches of a decoder, and what each that may not is told.
#include "pagefuse/passes/analysis/tokens/token_roles.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using testing::HasSubstr;

// A graph over the ids and their embedding x [B, S, 8]; `lines` compute y.
struct Traced {
  Model model;
  absl::StatusOr<TokenTrace> trace = absl::UnknownError("not traced");
  const Value* y = nullptr;
};

std::string Ones(int count) {
  std::string text = "{1";
  for (int i = 1; i < count; ++i) text += ", 1";
  return text + "}";
}

Traced Trace(std::string_view lines, std::string_view batch = "B") {
  auto model = Must(ParseModel(StrCat(
      R"(
    <ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1, "pagefuse" : 1]>
    g (int64[)",
      batch, R"(, S] ids, int64[)", batch, R"(, P + S] mask) => (y)
    <float[5, 8] table = )",
      Ones(40), ", float[8, 8] w = ", Ones(64), ", float[8] b = ", Ones(8),
      ", float[1, 40, 1] by_place = ", Ones(40), ", float[9, 8] learned = ", Ones(72),
      ", float[4, 8, 8] experts = ", Ones(256), ", float[2, 3, 4] head_matrices = ", Ones(24), R"(,
     int64 zero = {0}, int64 one = {1}, int64 minus_one = {-1}, int64[1] last = {-1},
     int64[1] first = {0}, int64[1] second = {1}, int64[1] third = {2}, int64[1] end = {9223372036854775807},
     float half = {0.5}, int64[2] flat = {-1, 8}, int64[3] kernel = {8, 8, 1},
     int64[4] heads = {0, 0, 2, 4}, int64[3] turned = {0, 8, -1},
     int64[3] pairs = {0, -1, 2}, int64[2] all_pairs = {-1, 2}, int64[3] whole = {0, -1, 8}, float[2] two = {1, 1},
     int64[3] four = {0, -1, 4}>
    {
      x = Gather (table, ids)
      )",
      lines, "\n}")));
  Traced traced{.model = std::move(model)};
  SymbolicContents contents;
  const absl::Status inferred = InferShapes(traced.model, &contents);
  EXPECT_TRUE(inferred.ok()) << inferred;
  const Graph& graph = *traced.model.graph;
  const Value* ids = graph.FindValue("ids");
  TokenSources sources;
  sources.batch = (*ids->shape())[0];
  sources.sequence = (*ids->shape())[1];
  sources.past = Dim::Symbol("P");
  sources.rows = {ids};
  sources.padding = graph.FindValue("mask");
  traced.trace = TraceTokens(graph, sources, contents);
  traced.y = graph.FindValue("y");
  return traced;
}

struct Kept {
  std::string_view name, lines;
  TokenAxes axes;  // of y
};

void PrintTo(const Kept& kept, std::ostream* out) { *out << kept.name; }

class TokenRolesKept : public testing::TestWithParam<Kept> {};

TEST_P(TokenRolesKept, FollowsTheAxesOfTokens) {
  const Traced traced = Trace(GetParam().lines);
  ASSERT_TRUE(traced.trace.ok()) << traced.trace.status();
  const TokenDependence& y = traced.trace->values.at(traced.y);
  EXPECT_EQ(y.role, TokenRole::kRows);
  EXPECT_EQ(y.axes.batch, GetParam().axes.batch);
  EXPECT_EQ(y.axes.token, GetParam().axes.token);
  EXPECT_EQ(y.axes.per_token, GetParam().axes.per_token);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, TokenRolesKept,
    testing::Values(
        Kept{"elementwise", "g = Sigmoid (x)  y = Mul (g, x)", {0, 1}},
        Kept{"a_bias", "y = Add (x, b)", {0, 1}}, Kept{"a_product", "y = MatMul (x, w)", {0, 1}},
        Kept{"a_product_of_all_rows", "f = Reshape (x, flat)  y = Gemm (f, w, b)", {0, 0}},
        Kept{"rows_in_one_axis_and_back",
             "f = Reshape (x, flat)  n = Neg (f)  s = Shape (x)  y = Reshape (n, s)",
             {0, 1}},
        Kept{"rows_in_one_axis_and_back_by_the_batch",
             "f = Reshape (x, flat)  n = Neg (f)  b_size = Shape <end = 1> (ids)  "
             "back = Concat <axis = 0> (b_size, flat)  y = Reshape (n, back)",
             {0, 1}},
        Kept{"a_table_cut_where_the_tokens_are",
             "new = Shape <start = 1> (ids)  all = Shape <start = 1> (mask)  old = Sub (all, new)  "
             "cut = Slice (learned, old, all, first)  y = Add (x, cut)",
             {0, 1}},
        Kept{"heads", "h = Reshape (x, heads)  y = Transpose <perm = [0, 2, 1, 3]> (h)", {0, 2}},
        Kept{"heads_behind_each_other", "y = Reshape (x, pairs)", {0, 1, 4}},
        Kept{"heads_behind_each_other_and_back",
             "h = Reshape (x, pairs)  n = RMSNormalization <axis = -1> (h, two)  "
             "y = Reshape (n, whole)",
             {0, 1, 1}},
        Kept{"heads_of_all_tokens", "y = Reshape (x, all_pairs)", {0, 0, 4}},
        Kept{"heads_of_all_tokens_and_back",
             "h = Reshape (x, all_pairs)  n = Neg (h)  s = Shape (x)  y = Reshape (n, s)",
             {0, 1, 1}},
        Kept{"heads_by_a_matrix_each",
             "h = Reshape (x, heads)  t = Transpose <perm = [0, 2, 1, 3]> (h)  "
             "w16 = Cast <to = 16> (head_matrices)  y = pagefuse.Linear (t, w16)",
             {0, 2}},
        Kept{"columns", "t = Transpose <perm = [0, 2, 1]> (x)  y = MatMul (w, t)", {0, 2}},
        Kept{"a_norm", "y = RMSNormalization <axis = -1> (x, b)", {0, 1}},
        Kept{"a_softmax_over_features", "y = Softmax <axis = -1> (x)", {0, 1}},
        Kept{"a_sum_over_features", "y = ReduceSum <keepdims = 0> (x, last)", {0, 1}},
        Kept{"the_choice_of_features",
             "v, i = TopK <axis = -1> (x, third)  y = GatherElements <axis = -1> (x, i)",
             {0, 1}},
        Kept{"a_slice_of_features", "y = Slice (x, first, third, last)", {0, 1}},
        Kept{"a_whole_slice", "y = Slice (x, first, end, second)", {0, 1}},
        Kept{"joined_features", "y = Concat <axis = -1> (x, x)", {0, 1}},
        Kept{"experts",
             "f = Reshape (x, flat)  e = ArgMax <axis = 1, keepdims = 0> (f)  "
             "y = pagefuse.GroupedMatMul (f, e, experts)",
             {0, 0}},
        Kept{"experts_that_share_rows",
             "f = Reshape (x, flat)  v, i = TopK <axis = 1> (f, third)  e = Reshape (i, last)  "
             "y = pagefuse.GroupedMatMul <repeat = 2> (f, e, experts)",
             {0, 0, 2}},
        Kept{"an_equation", "y = Einsum <equation = \"bsh,hk->bsk\"> (x, w)", {0, 1}},
        Kept{"one_expert_of_each",
             "e = ArgMax <axis = 2, keepdims = 0> (x)  y = Gather (learned, e)",
             {0, 1}}),
    [](const auto& info) { return std::string(info.param.name); });

struct Mixed {
  std::string_view name, lines, why;
};

void PrintTo(const Mixed& mixed, std::ostream* out) { *out << mixed.name; }

class TokenRolesMixed : public testing::TestWithParam<Mixed> {};

TEST_P(TokenRolesMixed, NamesTheNodeAndWhy) {
  const Traced traced = Trace(GetParam().lines);
  ASSERT_FALSE(traced.trace.ok());
  EXPECT_EQ(traced.trace.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(traced.trace.status().message()), HasSubstr(std::string(GetParam().why)));
}

INSTANTIATE_TEST_SUITE_P(
    Ops, TokenRolesMixed,
    testing::Values(
        Mixed{"a_convolution",
              "t = Transpose <perm = [0, 2, 1]> (x)  k = Reshape (w, kernel)  "
              "c = Conv <kernel_shape = [1]> (t, k)  y = Neg (c)",
              "node \"c\" (Conv) is not known to work on each token alone"},
        Mixed{"a_mean_of_tokens", "y = ReduceMean (x, second)",
              "node \"y\" (ReduceMean) does not work on each token alone: it works along axis 1 of "
              "\"x\" [B, S, 8], which runs over tokens"},
        Mixed{"a_mean_of_everything", "y = ReduceMean (x)", "it works along axis 0"},
        Mixed{"a_softmax_of_tokens", "y = Softmax <axis = 1> (x)", "it works along axis 1"},
        Mixed{"a_running_sum", "y = CumSum (x, one)", "it works along axis 1"},
        Mixed{"a_norm_over_tokens", "y = LayerNormalization <axis = 1> (x, b)",
              "it works along axis 1"},
        Mixed{"the_token_before",
              "z = Sub (x, x)  s = Concat <axis = 1> (z, x)  y = Slice (s, first, last, second)",
              "node \"s\" (Concat) does not work on each token alone"},
        Mixed{"tokens_turned_around", "low = Neg (end)  y = Slice (x, last, low, second, last)",
              "it may turn the order of tokens around"},
        Mixed{"the_first_token", "f = Slice (x, first, second, second)  y = Add (x, f)",
              "node \"f\" (Slice) does not work on each token alone: it cuts axis 1"},
        Mixed{
            "scores", "t = Transpose <perm = [0, 2, 1]> (x)  y = MatMul (x, t)",
            "node \"y\" (MatMul) does not work on each token alone: it combines rows of different "
            "tokens"},
        Mixed{"a_matrix_for_each_token",
              "h = Reshape (x, heads)  w16 = Cast <to = 16> (head_matrices)  "
              "y = pagefuse.Linear (h, w16)",
              "has matrices of its own along axis 0, which runs over tokens"},
        Mixed{"a_sum_over_tokens", "t = Transpose <perm = [0, 2, 1]> (x)  y = MatMul (t, x)",
              "it works along axis 2"},
        Mixed{"numbers_by_place", "y = Add (x, by_place)", "has numbers of its own along axis 1"},
        Mixed{"a_view_across_tokens", "y = Reshape (x, turned)",
              "no axis of [B, 8, S] is provably that of [B, S, 8] which runs over tokens"},
        Mixed{"heads_of_other_tokens",
              "h = Reshape (x, heads)  t = Transpose <perm = [0, 2, 1, 3]> (h)  y = Reshape (t, "
              "four)",
              "is provably that of [B, 2, S, 4] which runs over tokens"},
        Mixed{"the_number_of_tokens",
              "n = Shape <start = 1, end = 2> (ids)  f = Cast <to = 1> (n)  y = Div (x, f)",
              "node \"y\" (Div) reads \"f\", which depends on the number S of tokens"},
        Mixed{"a_function_of_the_number_of_tokens",
              "n = Shape <start = 1> (ids)  f = Cast <to = 1> (n)  r = Reciprocal (f)  "
              "h = Add (r, half)  y = Mul (x, h)",
              "reads \"h\", which depends on the places of tokens or on their number"},
        Mixed{"a_table_cut_elsewhere",
              "new = Shape <start = 1> (ids)  cut = Slice (learned, first, new, first)  "
              "y = Add (x, cut)",
              "reads \"cut\""},
        Mixed{"last_tokens_beside_all", "l = Gather <axis = 1> (x, last)  y = Add (x, l)",
              "joins rows of last tokens with"},
        Mixed{"a_sum_of_last_tokens", "l = Gather <axis = 1> (x, last)  y = ReduceSum (l, first)",
              "does something else than row by row work to rows of last tokens"},
        Mixed{"a_repeated_last_row",
              "l = Gather <axis = 1> (x, last)  y = Gather <axis = 1> (l, pairs)",
              "does something else than row by row work to rows of last tokens"},
        Mixed{"last_rows_of_one_sequence",
              "l = Gather <axis = 1> (x, last)  y = Gather <axis = 0> (l, first)",
              "does something else than row by row work to rows of last tokens"},
        Mixed{
            "last_rows_on_two_axes",
            "l = Gather <axis = 1> (x, last)  m = Gather <axis = 1> (x, minus_one)  y = Add (l, m)",
            "does something else than row by row work to rows of last tokens"},
        Mixed{"the_last_but_one", "i = Add (minus_one, minus_one)  y = Gather <axis = 1> (x, i)",
              "node \"y\" (Gather) does not work on each token alone"},
        Mixed{"a_scale_of_all_tokens", "y, s, z = DynamicQuantizeLinear (x)",
              "node \"y\" (DynamicQuantizeLinear) scales all tokens of a run by the largest number "
              "among them: what a token gets depends on those that run beside it"},
        Mixed{"an_equation_over_tokens", "y = Einsum <equation = \"bsh,bth->bst\"> (x, x)",
              "it combines rows of different tokens"}),
    [](const auto& info) { return std::string(info.param.name); });

struct Counted {
  std::string_view name, lines;
  int64_t step, offset;
};

void PrintTo(const Counted& counted, std::ostream* out) { *out << counted.name; }

constexpr std::string_view kLengths =
    "all = Shape <start = 1, end = 2> (mask)  new = Shape <start = 1, end = 2> (ids)  "
    "old = Sub (all, new)  s_all = Squeeze (all)  s_old = Squeeze (old)  s_new = Squeeze (new)  ";

class TokenRolesCounted : public testing::TestWithParam<Counted> {};

// Every line computes `at`, integers [S] or [B, S], which say where in its sequence a token stands.
TEST_P(TokenRolesCounted, ReadsPositions) {
  const Traced traced =
      Trace(StrCat(kLengths, GetParam().lines,
                   "  f = Cast <to = 1> (at)  c = Unsqueeze (f, last)  y = Mul (x, c)"));
  ASSERT_TRUE(traced.trace.ok()) << traced.trace.status();
  ASSERT_EQ(traced.trace->places.size(), 1u);
  EXPECT_EQ(traced.trace->places[0].step, GetParam().step);
  EXPECT_EQ(traced.trace->places[0].offset, GetParam().offset);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TokenRolesCounted,
    testing::Values(
        Counted{"a_range_behind_the_past", "at = Range (s_old, s_all, one)", 1, 0},
        Counted{"a_range_and_the_past", "r = Range (zero, s_new, one)  at = Add (r, s_old)", 1, 0},
        Counted{"the_end_of_a_longer_range",
                "r = Range (zero, s_all, one)  at = Slice (r, old, end)", 1, 0},
        Counted{"counted_from_one", "r = Range (s_old, s_all, one)  at = Add (r, one)", 1, 1},
        Counted{"a_running_sum_of_the_mask",
                "m = CumSum (mask, one)  p = Sub (m, one)  at = Slice (p, old, end, second)", 1, 0},
        Counted{
            "a_running_sum_with_padding_filled",
            "m = CumSum (mask, one)  p = Sub (m, one)  off = Equal (mask, zero)  "
            "chosen = Where (off, one, p)  low = Neg (new)  at = Slice (chosen, low, end, second)",
            1, 0},
        Counted{"a_clipped_running_sum",
                "m = CumSum (mask, one)  p = Sub (m, one)  q = Clip (p, zero)  "
                "at = Slice (q, old, end, second)",
                1, 0},
        Counted{"a_running_sum_of_ones",
                "o = ConstantOfShape <value: tensor = int64[1] {1}> (new)  m = CumSum (o, zero)  "
                "p = Add (m, s_old)  at = Sub (p, one)",
                1, 0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TokenRoles, APositionThatIgnoresThePastIsNoPosition) {
  const Traced traced = Trace(
      "n = Shape <start = 1, end = 2> (ids)  s = Squeeze (n)  r = Range (zero, s, one)  "
      "f = Cast <to = 1> (r)  c = Unsqueeze (f, last)  y = Mul (x, c)");
  ASSERT_FALSE(traced.trace.ok());
  EXPECT_THAT(std::string(traced.trace.status().message()),
              HasSubstr("which depends on the number"));
}

struct Picked {
  std::string_view name, lines;
};

void PrintTo(const Picked& picked, std::ostream* out) { *out << picked.name; }

class TokenRolesPicked : public testing::TestWithParam<Picked> {};

TEST_P(TokenRolesPicked, FollowsRowsOfLastTokens) {
  const Traced traced = Trace(GetParam().lines);
  ASSERT_TRUE(traced.trace.ok()) << traced.trace.status();
  EXPECT_EQ(traced.trace->values.at(traced.y).role, TokenRole::kLastRows);
  EXPECT_EQ(traced.trace->selections.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TokenRolesPicked,
    testing::Values(
        Picked{"by_a_gather", "l = Gather <axis = 1> (x, minus_one)  y = MatMul (l, w)"},
        Picked{"by_a_gather_that_keeps_the_axis",
               "l = Gather <axis = 1> (x, last)  y = MatMul (l, w)"},
        Picked{"by_a_slice", "l = Slice (x, last, end, second)  y = MatMul (l, w)"},
        Picked{"by_the_number_of_tokens",
               "n = Shape <start = 1, end = 2> (ids)  i = Sub (n, second)  "
               "l = Gather <axis = 1> (x, i)  y = Add (l, b)"},
        Picked{"then_without_the_axis",
               "l = Slice (x, last, end, second)  p = MatMul (l, w)  q = Squeeze (p, second)  "
               "r = Div (q, half)  y = Tanh (r)"},
        Picked{"then_the_only_row_of_each",
               "l = Gather <axis = 1> (x, last)  q = Gather <axis = 1> (l, zero)  y = Tanh (q)"}),
    [](const auto& info) { return std::string(info.param.name); });

// Whichever number the last axis has: all rows [1, T, N] have one axis more.
class TokenRolesAlongLast : public testing::TestWithParam<Picked> {};

TEST_P(TokenRolesAlongLast, NotesWhatWorksAlongTheLastAxis) {
  const Traced traced = Trace(GetParam().lines);
  ASSERT_TRUE(traced.trace.ok()) << traced.trace.status();
  EXPECT_EQ(traced.trace->values.at(traced.y).role, TokenRole::kLastRows);
  EXPECT_THAT(traced.trace->along_last_axis, testing::ElementsAre(traced.y->producer()));
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TokenRolesAlongLast,
    testing::Values(
        Picked{"a_softmax", "l = Gather <axis = 1> (x, minus_one)  y = Softmax <axis = 1> (l)"},
        Picked{"a_softmax_of_three_axes",
               "l = Gather <axis = 1> (x, last)  y = Softmax <axis = 2> (l)"},
        Picked{"a_norm",
               "l = Gather <axis = 1> (x, minus_one)  y = LayerNormalization <axis = 1> (l, b)"},
        Picked{"a_choice_of_columns",
               "l = Gather <axis = 1> (x, minus_one)  y = Gather <axis = 1> (l, heads)"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pagefuse
