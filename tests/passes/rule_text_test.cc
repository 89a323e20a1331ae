// SPDX-License-Identifier: Apache-2.0
// What files of rules say that are wrong, and where their rules run. What they can say is in tests/rules.
#include "pagefuse/passes/rewrite/text/rule_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/passes/rewrite/rule.h"
#include "pagefuse/passes/rewrite/text/embedded_rules.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto rules = ReadRuleFiles({{"my.rules.txt", text}});
  return std::string(StdView(rules.status().message()));
}

// A rule with these lines between its name and its pattern.
std::string With(std::string_view keys) {
  return StrCat("# rule: mine\n", keys, "(x, w?) => (y) { y = Relu (x) }\n# ---- after\n",
                "(x, w) => (y) { y = Abs (x) }\n");
}

TEST(RuleText, PointsAtTheCharacter) {
  EXPECT_EQ(ErrorOf("# rule: mine\n(x, w?) => (y) {\n  y + Relu (x)\n}\n# ---- after\n"),
            "my.rules.txt:5:1: no text stands under it\n# ---- after\n^");
  EXPECT_EQ(ErrorOf("# rule: mine\n(x, w?) => (y) {\n  y + Relu (x)\n}\n"),
            "my.rules.txt:3:5: expected \"=\", got \"+\"\n  y + Relu (x)\n    ^");
  EXPECT_EQ(ErrorOf("# rule: mine\n(x, w?) => y { y = Relu (x) }\n"),
            "my.rules.txt:2:12: expected \"(\", got \"y\"\n(x, w?) => y { y = Relu (x) }\n"
            "           ^");
  EXPECT_EQ(ErrorOf(With("# where: rank(x) = 1\n")),
            "my.rules.txt:2:18: expected the end, got \"=\"\n# where: rank(x) = 1\n"
            "                 ^");
}

TEST(RuleText, KnowsItsNames) {
  EXPECT_THAT(ErrorOf(With("# were: rank(x) == 1\n")),
              HasSubstr("my.rules.txt:2:3: there is no key \"were\"; similar names: \"where\""));
  EXPECT_THAT(ErrorOf(With("# where: rnk(x) == 1\n")),
              HasSubstr(":2:10: there is no function \"rnk\"; similar names: \"rank\""));
  EXPECT_THAT(ErrorOf(With("# where: rank(z) == 1\n")),
              HasSubstr(":2:15: no pattern has a value \"z\""));
  EXPECT_THAT(ErrorOf(With("# metadata: slots\n")),
              HasSubstr(":2:13: no pattern has a value \"slots\""));
  EXPECT_THAT(ErrorOf(With("# before: atention\n")),
              HasSubstr(":2:11: there is no pass \"atention\"; similar names: \"attention\""));
  EXPECT_THAT(ErrorOf(With("# match-op: pagefuse.SiluMull\n")),
              HasSubstr("there is no op \"pagefuse.SiluMull\""));
  EXPECT_THAT(ErrorOf("# rule: mine\n(x) => (y) { y = either.Sqare (x) }\n# ---- either: Square a\n"
                      "(x) => (y) { y = Mul (x, x) }\n# ---- after\n(x) => (y) { y = Abs (x) }\n"),
              HasSubstr(":2:18: there is no part \"Sqare\"; similar names: \"Square\""));
  EXPECT_THAT(
      ErrorOf("# rule: mine\n(x) => (y) { y = Relu (x) }\n# ---- afer\n(x) => (y) { y = x }"),
      HasSubstr(":3:1: expected either, or, after; got \"afer\"; similar names: \"after\""));
}

TEST(RuleText, KnowsItsAttributes) {
  const std::string rule =
      "# rule: mine\n(x) => (y) { y = Elu <alpha: float = @alpha> (x) }\n# ---- after\n"
      "(x) => (y) { y = Selu <alpha: float = @alph> (x) }\n";
  EXPECT_THAT(ErrorOf(rule), HasSubstr("my.rules.txt:4:39: no pattern and no \"let\" has @alph; "
                                       "similar names: \"alpha\""));
}

// Of a rule that writes that.
std::string ErrorOfWritten(std::string_view nodes) {
  return ErrorOf(StrCat("# rule: mine\n(x, w?) => (y) { y = Add (x, w) }\n# ---- after\n",
                        "(x, w) => (y) {\n  ", nodes, "\n}\n"));
}

TEST(RuleText, WritesOnlyWhatExists) {
  EXPECT_EQ(ErrorOfWritten("y = Sigmoid (x)"), "");
  EXPECT_EQ(ErrorOfWritten("y = Elu <alpha: float = 0.5> (x)"), "");
  EXPECT_EQ(ErrorOfWritten("y = Concat <axis: int = 0> (x, w, x)"), "");
  EXPECT_THAT(
      ErrorOfWritten("y = Sigmoyd (x)"),
      HasSubstr("my.rules.txt:5:3: node \"y\" (Sigmoyd): no op \"Sigmoyd\" in domain \"\" at "
                "version 28; similar names: \"Sigmoid\"\n  y = Sigmoyd (x)\n  ^"));
  EXPECT_THAT(ErrorOfWritten("y = pagefuse.GatedLiner (x, w)"),
              HasSubstr("; similar names: \"GatedLinear\""));
  EXPECT_EQ(ErrorOfWritten("y = acme.Relu <slope: float = 1> (x, x, w)"), "");  // the author's own
  EXPECT_THAT(ErrorOfWritten("yy = Neg (x)\n  y = Elu <alpa: float = 0.5> (yy)"),
              HasSubstr("my.rules.txt:6:12: Elu: there is no attribute \"alpa\"; similar names: "
                        "\"alpha\"\n"));
  EXPECT_THAT(ErrorOfWritten("y = Cast (x)"), HasSubstr(":5:3: Cast: attribute \"to\" is missing"));
  EXPECT_THAT(ErrorOfWritten("y = Mul (x)"), HasSubstr(":5:3: Mul: input 1 \""));
  EXPECT_THAT(ErrorOfWritten("y = Neg (x, w)"), HasSubstr(":5:3: Neg: expected 1 input, got 2"));
  EXPECT_THAT(ErrorOfWritten("y, z = Neg (x)"), HasSubstr(":5:3: Neg: expected 1 output, got 2"));
  EXPECT_THAT(ErrorOfWritten("y = Mul (\"\", x)"), HasSubstr("Mul: input 0 \""));
}

// What the built-in rules write is looked at where they are read.
TEST(RuleText, BuiltInRulesWriteOnlyWhatExists) {
  for (const auto& pass : AllPasses()) {
    const std::string_view text = EmbeddedRules(pass->name());
    if (text.empty()) continue;
    const auto rules = ParseRules({StrCat(pass->name(), ".rules.txt"), std::string(text)});
    EXPECT_TRUE(rules.ok()) << rules.status();
  }
}

TEST(RuleText, MissesWhatARuleNeeds) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("expected \"# rule: NAME\""));
  EXPECT_THAT(ErrorOf("(x) => (y) { y = Relu (x) }"),
              HasSubstr("my.rules.txt:1:1: expected \"# rule: NAME\" before anything else"));
  EXPECT_THAT(ErrorOf("# rule:\n"), HasSubstr("the rule has no name"));
  EXPECT_THAT(ErrorOf("# rule: mine\n"), HasSubstr(":1:9: the rule has no pattern"));
  EXPECT_THAT(ErrorOf("# rule: mine\n(x) => (y) { y = Relu (x) }\n"),
              HasSubstr("the rule has no part \"# ---- after\""));
  EXPECT_THAT(ErrorOf("# rule: mine\n(x) => (y) { y = Relu (x) }\n# ---- after\n"
                      "(x) => (y, z) { y = Abs (x) z = Abs (x) }\n"),
              HasSubstr("replacement: expected 1 outputs, got 2"));
  EXPECT_THAT(ErrorOf(With("# before: rope\n# after: rope\n")),
              HasSubstr(":3:3: the rule has a place already"));
  EXPECT_THAT(ErrorOf(With("# where: rank(x)\n")), testing::Not(HasSubstr("error")));
  EXPECT_THAT(ErrorOf(With("# where: 3\n")), HasSubstr(":2:10: a condition compares something"));
  EXPECT_THAT(ErrorOf(With("# let: half = 1\n")), HasSubstr(":2:8: expected \"@\", got \"half\""));
}

TEST(RuleText, LimitsConditions) {
  std::string nots, sum = "1", choice = "1";
  for (int i = 0; i < 100'000; ++i) {
    nots += "not ";
    sum += " + 1";
    choice += " else 1";
  }
  EXPECT_THAT(ErrorOf(With("# where: " + nots + "rank(x) == 1\n")),
              HasSubstr("expected less nesting"));
  EXPECT_THAT(ErrorOf(With("# where: rank(x) == " + sum + "\n")),
              HasSubstr("expected fewer parts"));
  EXPECT_THAT(ErrorOf(With("# let: @a = " + choice + "\n")), HasSubstr("expected fewer parts"));
}

TEST(RuleText, LimitsVariants) {
  std::string text = "# rule: mine\n(x) => (y) {";
  std::string value = "x";
  for (char name = 'a'; name < 'j'; ++name) {
    StrAppend(&text, " ", std::string(1, name), " = either.P", std::string(1, name), " (", value,
              ")");
    value = std::string(1, name);
  }
  StrAppend(&text, " y = Relu (i) }\n");
  for (char name = 'a'; name < 'j'; ++name) {
    for (const char* op : {"Neg", "Abs"}) {
      StrAppend(&text, "# ---- either: P", std::string(1, name), " ", op, "\n(x) => (y) { y = ", op,
                " (x) }\n");
    }
  }
  EXPECT_THAT(ErrorOf(text + "# ---- after\n(x) => (y) { y = Relu (x) }\n"),
              HasSubstr("my.rules.txt:2:1: more than 256 forms"));
}

TEST(RuleText, KeepsNamesApart) {
  const std::string rule =
      "# rule: swish\n(x) => (y) { y = Relu (x) }\n# ---- after\n(x) => (y) { y = Abs (x) }\n";
  EXPECT_THAT(ErrorOf(rule), HasSubstr(":1:9: there is a pass or rule \"swish\" already"));
  EXPECT_THAT(ErrorOf(With("") + With("")), HasSubstr("there is a pass or rule \"mine\" already"));
  const auto twice =
      ReadRuleFiles({{"a/mine.rules.txt", With("")}, {"b/mine.rules.txt", With("")}});
  EXPECT_THAT(std::string(StdView(twice.status().message())),
              HasSubstr("b/mine.rules.txt: there is a pass or rule \"mine\" already"));
}

std::vector<std::string> NamesAround(const std::string& place, std::string_view name) {
  const auto rules = Must(ReadRuleFiles({{"my.rules.txt", With(place)}}));
  std::vector<std::unique_ptr<Pass>> passes = DecoderPipeline();
  PlaceRules(rules, passes);
  for (size_t i = 1; i + 1 < passes.size(); ++i) {
    if (passes[i]->name() != name) continue;
    return {std::string(passes[i - 1]->name()), std::string(passes[i + 1]->name())};
  }
  return {};
}

TEST(RuleText, StandsWhereItSays) {
  EXPECT_THAT(NamesAround("", "my"), ElementsAre("gated-mlp", "insert-paged-cache"));
  EXPECT_THAT(NamesAround("# before: attention\n", "my"),
              ElementsAre("attention-forms", "attention"));
  EXPECT_THAT(NamesAround("# after: swish\n", "my"), ElementsAre("swish", "activation"));
}

// Parts in front of all rules, and none but parts.
TEST(RuleText, SharesParts) {
  const std::string part = "# ---- either: Square mul\n(x) => (y) { y = Mul (x, x) }\n";
  EXPECT_EQ(ErrorOf(part + With("")), "");
  EXPECT_THAT(ErrorOf("# ---- after\n(x) => (y) { y = Abs (x) }\n" + With("")),
              HasSubstr(":1:1: expected \"# rule: NAME\" before anything but parts"));
  EXPECT_THAT(ErrorOf(With("") + part), HasSubstr(":5:1: no text has either.Square"));
  EXPECT_THAT(ErrorOf(part + part +
                      "# rule: mine\n(x) => (y) { y = either.Square (x) }\n# ---- after\n"
                      "(x) => (y) { y = Abs (x) }\n"),
              HasSubstr("two forms are called \"mul\""));
}

// A file of the tree that does not parse would end the program where its pass first runs.
TEST(RuleText, FilesOfTheTreeParse) {
  int files = 0;
  for (const std::unique_ptr<Pass>& pass : AllPasses()) {
    const std::string text(EmbeddedRules(pass->name()));
    if (text.empty()) continue;
    ++files;
    EXPECT_FALSE(pass->description().empty()) << pass->name();
    const auto rules = Must(ParseRules({StrCat(pass->name(), ".rules.txt"), text}));
    EXPECT_EQ(rules.size(), pass->rules().size());
  }
  EXPECT_EQ(files, 11);
}

TEST(RuleText, DescribesItsRules) {
  const auto rules =
      Must(ReadRuleFiles({{"my.rules.txt", "# pass: A file.\n\n# What it is,\n# and more.\n" +
                                               With("# before: rope\n")}}));
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].pass->description(), "A file.");
  ASSERT_EQ(rules[0].pass->rules().size(), 1u);
  EXPECT_EQ(rules[0].pass->rules()[0].description, "What it is, and more");
}

TEST(RuleText, RunsInAPipeline) {
  Model model = Must(ParseModel(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (float[T] x) => (float[T] y) { y = Relu (x) }"));
  const auto report =
      Must(RunPipeline(model, {.explain = {"mine"}, .rules = {{"my.rules.txt", With("")}}}));
  EXPECT_EQ(report.counts.at("mine"), 1);
  EXPECT_EQ(model.graph->nodes().front()->op_type(), "Abs");
}

// The same conditions in C++.
TEST(RuleText, ConditionsStandInCodeToo) {
  Rule good = Rule("good")
                  .MatchText("(x) => (y) { y = Relu (x) }")
                  .Where("rank(x) == 1, dim(x, 0) > 2")
                  .ReplaceWith("(x) => (y) { y = Abs (x) }");
  EXPECT_TRUE(good.Compile().ok()) << good.Compile();
  Rule bad = Rule("bad")
                 .MatchText("(x) => (y) { y = Relu (x) }")
                 .Where("rank(x) ==")
                 .ReplaceWith("(x) => (y) { y = Abs (x) }");
  EXPECT_THAT(
      std::string(StdView(bad.Compile().message())),
      HasSubstr("rule \"bad\":1:11: expected a number, an @attribute or a function, got the end"));
}

}  // namespace
}  // namespace pagefuse
