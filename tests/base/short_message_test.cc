// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/short_message.h"

#include "gtest/gtest.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string Of(size_t count, char c = 'x') { return std::string(count, c); }

TEST(ShortMessage, LeavesWhatIsShort) {
  for (const std::string& text :
       {std::string(), std::string("node \"a\" (Add): expected [2], got [3]"), Of(400),
        StrCat("\"", Of(398), "\" and [", Of(398), "]")}) {
    EXPECT_EQ(ShortMessage(text), text);
  }
}

TEST(ShortMessage, CutsValuesAndKeepsWhatStandsAround) {
  const std::string cut = StrCat(Of(199), "... (1701 bytes left out) ...", Of(99));
  for (const auto& [open, close] : {std::pair("\"", "\""), std::pair("[", "]")}) {
    EXPECT_EQ(ShortMessage(StrCat("node \"n\": expected ", open, Of(1999), close, ", got 1")),
              StrCat("node \"n\": expected ", open, cut, close, ", got 1"));
  }
  EXPECT_EQ(ShortMessage(StrCat("a ", Of(2000), " b")),
            StrCat("a ", Of(199), "... (1701 bytes left out) ...", Of(100), " b"));
  // The numbers of a list stand apart from each other.
  std::string list = "[0";
  for (int i = 1; i < 1000; ++i) StrAppend(&list, ", ", i);
  const std::string text = ShortMessage(list + "] is no permutation of [0, 1]");
  EXPECT_LT(text.size(), 400u);
  EXPECT_TRUE(text.ends_with(", 999] is no permutation of [0, 1]")) << text;
}

TEST(ShortMessage, IsNeverLong) {
  std::string words, quotes(100000, '"'), brackets(100000, '[');
  for (int i = 0; i < 100000; ++i) StrAppend(&words, i, " ");
  for (const std::string& text : {words, quotes, brackets, brackets + "]", "\"" + words}) {
    EXPECT_LE(ShortMessage(text).size(), kMostOfAMessage);
  }
  EXPECT_TRUE(ShortMessage(words).starts_with("0 1 2"));
  EXPECT_TRUE(ShortMessage(words).ends_with("99999 "));
}

TEST(ShortMessage, CutsNoCharacter) {
  std::string text;
  while (text.size() < 3000) text += "\xE2\x82\xAC";  // 3 bytes each
  for (const char* before : {"", "x", "xx"}) {
    const std::string cut = ShortMessage(before + text);
    const size_t front = cut.find("..."), back = cut.rfind("...") + 3;
    EXPECT_EQ((front - std::string_view(before).size()) % 3, 0u);
    EXPECT_EQ((cut.size() - back) % 3, 0u);
  }
}

}  // namespace
}  // namespace pagefuse
