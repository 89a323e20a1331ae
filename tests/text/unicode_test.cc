// SPDX-License-Identifier: Apache-2.0
// Unicode classes and the patterns that are made of them.
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/text/tokenizer/split_regex.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"

namespace pagefuse {
namespace {

std::string Translated(std::string_view pattern) {
  const auto text = TranslatePattern(pattern);
  return text.ok() ? *text : std::string(text.status().message());
}

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Must(SplitRegex::Compile(pattern));
  std::vector<std::string> found;
  const absl::Status status = regex.ForEachMatch(
      text, [&](size_t first, size_t end) { found.emplace_back(text.substr(first, end - first)); });
  EXPECT_TRUE(status.ok()) << status;
  return found;
}

int64_t NumPoints(const CodePointSet& set) {
  int64_t points = 0;
  for (const auto& [first, last] : set.ranges()) points += last - first + 1;
  return points;
}

TEST(UnicodeClasses, HaveEveryCodePointOnce) {
  std::vector<int> owners(kLastCodePoint + 1);
  for (std::string_view name : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CodePointSet set = *CategorySet(name);
    for (const auto& [first, last] : set.ranges()) {
      for (char32_t point = first; point <= last; ++point) ++owners[point];
    }
  }
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), kLastCodePoint + 1);
}

TEST(UnicodeClasses, KnowUnicode16) {
  EXPECT_TRUE(CategorySet("Lo")->Contains(0x105C0));  // Todhri, new in 16
  EXPECT_TRUE(CategorySet("Cf")->Contains(0x180E));   // no space any more
  EXPECT_TRUE(WhiteSpace().Contains(0x3000));
  EXPECT_FALSE(WhiteSpace().Contains(0x200B));
  EXPECT_TRUE(WordCharacters().Contains(0x24B6));
  EXPECT_FALSE(CategorySet("Lx"));
  EXPECT_FALSE(CategorySet(""));
}

TEST(UnicodeClasses, TellCasesThatTakeTurnsApart) {
  const CodePointSet upper = *CategorySet("Lu");
  const CodePointSet lower = *CategorySet("Ll");
  for (char32_t point = 0x100; point <= 0x136; point += 2) {
    EXPECT_TRUE(upper.Contains(point) && !lower.Contains(point)) << int64_t{point};
    EXPECT_TRUE(lower.Contains(point + 1) && !upper.Contains(point + 1)) << int64_t{point};
  }
  EXPECT_TRUE(lower.Contains(0x138));
  EXPECT_TRUE(upper.Contains(0x139));
  // The totals of DerivedGeneralCategory.txt.
  EXPECT_EQ(NumPoints(upper), 1858);
  EXPECT_EQ(NumPoints(lower), 2258);
}

TEST(UnicodeClasses, AddJoinsRangesThatTouch) {
  CodePointSet set;
  set.Add(10, 20);
  set.Add(30, 40);
  set.Add(21, 25);
  ASSERT_EQ(set.ranges().size(), 2u);
  EXPECT_EQ(set.ranges()[0].last, 25u);
  set.Add(5, 50);
  ASSERT_EQ(set.ranges().size(), 1u);
  EXPECT_EQ(set.ranges()[0].first, 5u);
  EXPECT_TRUE(set.Complement().Contains(4));
  EXPECT_FALSE(set.Complement().Contains(50));
  EXPECT_EQ(set.Complement().Complement().ranges().size(), 1u);
}

TEST(SplitRegex, WritesClassesOut) {
  EXPECT_EQ(Translated("[\\r\\n]+|a"), "[\\x{a}\\x{d}]+|a");
  EXPECT_EQ(Translated("[^a-c\\x{e9}]"), "[^\\x{61}-\\x{63}\\x{e9}]");
  EXPECT_EQ(Translated("\\p{Zl}\\p{^Zl}").substr(0, 10), "[\\x{2028}]");
  EXPECT_EQ(Translated("(?i:'s)(?!\\.)"), "(?i:'s)(?!\\x{2e})");
}

TEST(SplitRegex, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(Translated("a\\b"), "pattern \"a\\b\": the anchor \"\\b\" at byte 2 is not known");
  EXPECT_EQ(Translated("(?<n>a)"),
            "pattern \"(?<n>a)\": the group \"(?<n\" at byte 0 is not known");
  EXPECT_EQ(Translated("[[:alpha:]]"),
            "pattern \"[[:alpha:]]\": a class in a class at byte 1 is not known");
  EXPECT_EQ(Translated("[a"), "pattern \"[a\": a class without its end at byte 2 is not known");
  EXPECT_EQ(Translated("\\"), "pattern \"\\\": a backslash at the end at byte 1 is not known");
  EXPECT_EQ(Translated("(*UCP)a"), "pattern \"(*UCP)a\": a verb at byte 0 is not known");
}

TEST(SplitRegex, FindsMatchesFromLeftToRight) {
  EXPECT_EQ(Matches("\\p{N}{1,3}", "1234 5"), (std::vector<std::string>{"123", "4", "5"}));
  EXPECT_EQ(Matches("\\s+(?!\\S)|\\s+", "  a "), (std::vector<std::string>{" ", " ", " "}));
  EXPECT_EQ(Matches("b*", "abé"), (std::vector<std::string>{"", "b", "", ""}));
}

TEST(SplitRegex, MatchesWordsLongerThanTheStack) {
  const std::string word(1 << 17, 'x');
  EXPECT_EQ(Matches("(?:x|y)+", word).size(), 1u);
}

}  // namespace
}  // namespace pagefuse
