// SPDX-License-Identifier: Apache-2.0
// The conformance page: what is counted for which op.
#include "tools/check/conformance.h"

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"

namespace pagefuse::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

Model Parse(const char* graph) {
  return Must(ParseModel(std::string("<ir_version: 10, opset_import: [\"\" : 21]> ") + graph));
}

TEST(Conformance, CountsACaseForEveryOpSubgraphsIncluded) {
  const Model model = Parse(R"(
    g (bool c, float x) => (float y) {
      y = If <then_branch = a () => (p) { p = Neg (x) }, else_branch = b () => (q) { q = Abs (x) }> (c)
    })");
  Conformance conformance;
  conformance.Add(&model, Verdict::kPassed);
  conformance.Add(&model, Verdict::kFailed);
  const std::string page = conformance.Page();
  EXPECT_THAT(page, HasSubstr("1 cases passed, 1 failed, 0 were refused"));
  EXPECT_THAT(page, HasSubstr("| If | 21 | 1 | 1 | 0 |"));
  EXPECT_THAT(page, HasSubstr("| Neg | 21 | 1 | 1 | 0 |"));
}

TEST(Conformance, BlamesARefusedCaseOnTheOpsThatAreNotComputed) {
  const Model model =
      Parse("g (float[N] x) => (float[N] y) { t = Neg (x) y = RandomUniformLike (t) }");
  Conformance conformance;
  conformance.Add(&model, Verdict::kRefused);
  const std::string page = conformance.Page();
  EXPECT_THAT(page, HasSubstr("| random numbers | RandomUniformLike (1) |"));
  EXPECT_THAT(page, Not(HasSubstr("| Neg |")));
}

TEST(Conformance, CountsWhatCannotBeReadInTheTotals) {
  Conformance conformance;
  conformance.Add(nullptr, Verdict::kFailed);
  EXPECT_THAT(conformance.Page(), HasSubstr("0 cases passed, 1 failed, 0 were refused"));
}

}  // namespace
}  // namespace pagefuse::tools
