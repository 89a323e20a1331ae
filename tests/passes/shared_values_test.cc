// SPDX-License-Identifier: Apache-2.0
// Graphs in which nodes read one value twice, level upon level: sixty levels are 2^60 ways from the last to the first. Passes look at each
// value once or at so many at most, so that they come to their end.
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

constexpr int kLevels = 60;

// What a level makes of `x`, called `y`.
using Level = std::function<std::string(const std::string& x, const std::string& y)>;

struct SharedCase {
  std::string name;
  std::string first;  // a port or value of the frame
  Level level;
  std::function<std::string(const std::string& last)> scores;  // which makes `masked`
};

// Attention, of which something is computed by the levels.
std::string Frame(const SharedCase& shared) {
  std::string text = R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[B, 2, S, 8] q, float[B, 2, T, 8] k, float[B, 2, T, 8] v, float[S, T] bias, bool[S, T] seen,
   int64[S, T] places, float[B, 2, S, T] factors, int64[T] table) => (float[B, 2, S, 8] y) {
  turned = Transpose <perm = [0, 1, 3, 2]> (k)
  product = MatMul (q, turned)
  half = Constant <value = float {0.5}> ()
  low = Constant <value = float {-1e30}> ()
  zero = Constant <value = float {0.0}> ()
  seven = Constant <value = int64 {7}> ()
  scaled = Mul (product, half)
)";
  std::string last = shared.first;
  for (int i = 0; i < kLevels; ++i) {
    const std::string next = StrCat("level", i);
    StrAppend(&text, "  ", shared.level(last, next), "\n");
    last = next;
  }
  return StrCat(text, "  ", shared.scores(last),
                "\n  probabilities = Softmax <axis = -1> (masked)\n",
                "  y = MatMul (probabilities, v)\n}\n");
}

// `op` of the value and itself.
Level Twice(const std::string& op) {
  return [op](const std::string& x, const std::string& y) {
    return StrCat(y, " = ", op, " (", x, ", ", x, ")");
  };
}
// `one` of the value, then `op` of both.
Level With(const std::string& one, const std::string& op) {
  return [one, op](const std::string& x, const std::string& y) {
    return StrCat(y, "a = ", one, " (", x, ")  ", y, " = ", op, " (", x, ", ", y, "a)");
  };
}
Level WithSeven(const std::string& one, const std::string& op) {
  return [one, op](const std::string& x, const std::string& y) {
    return StrCat(y, "a = ", one, " (", x, ", seven)  ", y, " = ", op, " (", x, ", ", y, "a)");
  };
}

std::string Added(const std::string& last) { return "masked = Add (scaled, " + last + ")"; }
std::string Scaled(const std::string& last) { return "masked = Mul (scaled, " + last + ")"; }
std::string Scores(const std::string& last) { return "masked = Identity (" + last + ")"; }
std::string Chosen(const std::string& last) { return "masked = Where (" + last + ", scaled, low)"; }
std::string Compared(const std::string& last) {
  return "shown = LessOrEqual (" + last +
         ", places)  hiding = Where (shown, zero, low)  masked = Add (scaled, hiding)";
}

std::vector<SharedCase> Cases() {
  return {
      {"sums_of_a_bias", "bias", Twice("Add"), Added},
      {"products_of_a_bias", "bias", Twice("Mul"), Added},
      {"differences_of_a_bias", "bias", With("Neg", "Sub"), Added},
      {"sums_of_scores", "scaled", Twice("Add"), Scores},
      {"differences_of_scores", "scaled", With("Neg", "Sub"), Scores},
      {"sums_that_are_no_scores", "factors", Twice("Add"), Scores},
      {"products_of_factors", "factors", Twice("Mul"), Scaled},
      {"conditions_and", "seen", Twice("And"), Chosen},
      {"conditions_or", "seen", With("Not", "Or"), Chosen},
      {"conditions_xor", "seen", Twice("Xor"), Chosen},
      {"sums_of_places", "places", Twice("Add"), Compared},
      {"largest_of_places", "places", With("Neg", "Max"), Compared},
      {"places_without_their_rest", "places", WithSeven("Mod", "Sub"), Compared},
      {"places_of_quotients", "places", WithSeven("Div", "Add"), Compared},
      {"low_bits_of_places", "places", WithSeven("Mod", "BitwiseXor"), Compared},
      {"a_table_of_itself", "table", Twice("Gather"), Compared},
      {"elements_of_itself", "table", Twice("GatherElements"), Compared},
      {"queries", "q", Twice("Mul"),
       [](const std::string& last) { return "masked = MatMul (" + last + ", turned)"; }},
      {"keys", "turned", Twice("Add"),
       [](const std::string& last) { return "masked = MatMul (q, " + last + ")"; }},
  };
}

class SharedValues : public testing::TestWithParam<SharedCase> {};

TEST_P(SharedValues, AreReadWithinBudgets) {
  Model model = Must(ParseModel(Frame(GetParam())));
  const auto report = RunPipeline(model, {});
  EXPECT_TRUE(report.ok()) << report.status();
}

INSTANTIATE_TEST_SUITE_P(All, SharedValues, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagefuse
