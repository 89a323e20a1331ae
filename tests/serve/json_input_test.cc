// SPDX-License-Identifier: Apache-2.0
// JSON of strangers: what is taken is what another parser reads, what is not is told with its place.
#include "pagefuse/serve/json_input.h"

#include <string>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  const auto json = ParseJson(text, limits);
  if (json.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(json.status())) << json.status();
  return std::string(json.status().message());
}

std::string Nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonInput, WhatIsTakenIsWhatItSays) {
  for (const char* text : {
           "{}",
           "[]",
           " [1, -2, 3.5, 1e3, true, false, null, \"\"] ",
           R"({"a": {"b": [{"c": 1}, {"c": 2}], "a": {}}, "": [[], [[]]]})",
           R"({"text": "\u00e4\ud83d\ude00\n\"\\ \u0000"})",
           "\"\xf0\x9f\x98\x80\"",
           "18446744073709551615",
           "-9223372036854775808",
       }) {
    EXPECT_EQ(Must(ParseJson(text)), nlohmann::ordered_json::parse(text)) << text;
  }
  // In the order in which they came.
  EXPECT_EQ(Must(ParseJson(R"({"b":1,"a":2,"c":3})")).dump(), R"({"b":1,"a":2,"c":3})");
}

struct BadText {
  std::string text;
  const char* said;
};

TEST(JsonInput, WhatIsNotTakenIsToldWithItsPlace) {
  const BadText texts[] = {
      {"", "line 1, column 1"},
      {"x", "line 1, column 1"},
      {"{\"a\": 1,}", "line 1, column 9"},
      {"[1\n,\n 2 3]", "line 3, column 4"},
      {"{\"a\": 1, \"b\": 2, \"a\": 3}", "the name \"a\" is there twice"},
      {"{\"a\": 1,\n\"\\u0061\": 3}", "line 2"},
      {"[{\"a\": {\"b\": 1, \"b\": 2}}]", "twice"},
      {"[1] 2", "line 1, column 5"},
      {std::string("{}\0{}", 5), "line 1, column 3: a NUL"},
      {std::string("{}\0", 3), "a NUL"},
      {std::string("[\0]", 3), "line 1, column 2"},
      {std::string("\"\0\"", 3), "line 1, column 2"},
      {"\"\n\"", "control character"},
      {"\"\\ud800\"", "surrogate"},
      {"\"\\udc00\"", "surrogate"},
      {"\"\x80\"", "UTF-8"},
      {"\"\xc3\"", "UTF-8"},
      {"\"\xc0\xaf\"", "UTF-8"},
      {"\"\xed\xa0\x80\"", "UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "UTF-8"},
      {"[1e999]", "line 1, column 6: number overflow"},
      {"[01]", "line 1, column 3"},
      {"[NaN]", "line 1, column 2"},
      {"[1] // a", "line 1, column 5"},
      {"{'a': 1}", "line 1, column 2"},
  };
  for (const auto& [text, said] : texts) EXPECT_THAT(ErrorOf(text), HasSubstr(said)) << text;
}

TEST(JsonInput, LimitsHoldWhileItIsRead) {
  const JsonLimits limits = {.depth = 3, .values = 5};
  EXPECT_EQ(ErrorOf(Nested(3), limits), "");
  EXPECT_THAT(ErrorOf(Nested(4), limits), HasSubstr("column 4: nested deeper than 3 levels"));
  // Told at the fourth bracket, whatever follows.
  EXPECT_THAT(ErrorOf("[[[[nonsense", limits), HasSubstr("nested deeper than 3 levels"));
  EXPECT_EQ(ErrorOf("[1,2,3,4]", limits), "");
  EXPECT_THAT(ErrorOf("[1,2,3,4,5]", limits), HasSubstr("more than 5 values"));
  EXPECT_EQ(ErrorOf(R"({"a":1,"b":2})", limits), "");  // names count
  EXPECT_THAT(ErrorOf(R"({"a":1,"b":2,"c":3})", limits), HasSubstr("more than 5 values"));
  EXPECT_EQ(ErrorOf(Nested(64)), "");
  EXPECT_THAT(ErrorOf(Nested(1'000'000)), HasSubstr("deeper than 64"));
}

}  // namespace
}  // namespace pagefuse::serve
