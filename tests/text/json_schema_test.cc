// SPDX-License-Identifier: Apache-2.0
// What each keyword of a JSON schema allows and refuses, as texts.
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

absl::StatusOr<Grammar::Ptr> Compiled(const std::string& schema) {
  return Grammar::OfJsonSchema(ordered_json::parse(schema));
}

bool Reads(const Grammar::Ptr& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.Advance(text) && state.accepts();
}

void Check(const std::string& schema, const Texts& right, const Texts& wrong) {
  SCOPED_TRACE(schema);
  const auto grammar = Must(Compiled(schema));
  for (const std::string& text : right) EXPECT_TRUE(Reads(grammar, text)) << text;
  for (const std::string& text : wrong) EXPECT_FALSE(Reads(grammar, text)) << text;
}

std::string SchemaError(const std::string& schema) {
  const absl::Status status = Compiled(schema).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << schema;
  return std::string(StdView(status.message()));
}

TEST(JsonSchema, TypeIsOneOrSeveral) {
  Check(R"({"type": "boolean"})", {"true", "false"}, {"null", "tru", "\"true\""});
  Check(R"({"type": ["null", "integer"]})", {"null", "-12"}, {"true", "1.5", "\"a\""});
  Check(R"({"type": "number"})", {"1", "-1.5", "2e9"}, {"1.", ".5", "01", "\"1\"", "NaN"});
  EXPECT_EQ(SchemaError(R"({"type": "text"})"), "/type: expected names of types, got \"text\"");
  EXPECT_THAT(SchemaError(R"({"type": []})"), HasSubstr("/type: expected one type at least"));
}

TEST(JsonSchema, MembersComeInTheirOrderAndOptionalOnesMayBeLeftOut) {
  const std::string schema =
      R"({"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"},
      "c": {"type": "null"}}, "required": ["a"]})";
  Check(schema,
        {R"({"a":null})", R"({"b":null,"a":null})", R"({"b":null, "a":null,"c": null})",
         R"({"a":null,"c":null})"},
        {"{}", R"({"b":null})", R"({"a":null,"b":null})", R"({"a":null,"a":null})",
         R"({"a":null,})", R"({,"a":null})", R"({"a":null,"d":null})", R"({"a":null,  "c":null})"});
}

TEST(JsonSchema, AdditionalPropertiesHaveOtherNames) {
  const std::string members =
      R"({"type": "object", "properties": {"a": {"type": "null"}, "ab\"": {"type": "null"}},
      "additionalProperties": )";
  Check(members + "false}", {"{}", R"({"a":null})"}, {R"({"b":null})"});
  Check(members + R"({"type": "integer"}})",
        {R"({"a":null,"b":1})", R"({"ab":1,"":2})", R"({"ab\"":null})", R"({"é\u0061":1})",
         R"({"\n":1})", "{}"},
        {R"({"a":1})", R"({"ab\"":1})", R"({"\u0061":1})", R"({"b":null})", R"({"b":1,"a":null})"});
  Check(members + "true}", {R"({"a":null,"x":[{}]})"}, {R"({"a":1})"});
  Check(R"({"type": "object", "additionalProperties": {"type": "null"}})",
        {"{}", R"({"x":null,"y":null})"}, {R"({"x":1})"});
}

TEST(JsonSchema, RequiredOfOthersComesBehindTheDeclared) {
  Check(R"({"properties": {"a": {}}, "required": ["z"], "additionalProperties": {"type": "null"}})",
        {R"({"z":null})", R"({"a":1,"z":null,"y":null})"},
        {R"({"a":1})", R"({"z":1})", R"({"y":null,"z":null})"});
}

TEST(JsonSchema, ItemsAreCounted) {
  Check(R"({"type": "array", "items": {"type": "null"}})", {"[]", "[null]", "[null, null,null]"},
        {"[1]", "[null,]", "[,null]", "[null null]"});
  Check(R"({"type": "array", "items": {"type": "null"}, "minItems": 2})",
        {"[null,null]", "[null,null,null]"}, {"[]", "[null]", "[null,null,]"});
  Check(R"({"type": "array", "items": {"type": "null"}, "maxItems": 2})", {"[]", "[null,null]"},
        {"[null,null,null]"});
  Check(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, PrefixItemsComeFirst) {
  const std::string prefix =
      R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}])";
  Check(prefix + "}", {"[]", "[null]", "[null,true]", "[null,true,1,\"a\"]"},
        {"[true]", "[null,1]"});
  Check(prefix + R"(, "items": false})", {"[null,true]"}, {"[null,true,1]"});
  Check(prefix + R"(, "items": {"type": "integer"}, "minItems": 3, "maxItems": 4})",
        {"[null,true,1]", "[null,true,1,2]"},
        {"[null,true]", "[null,true,1,2,3]", "[null,true,null]"});
}

TEST(JsonSchema, EnumAndConstAreAnyValues) {
  Check(R"({"enum": ["a\"é", 1, 1.5, null, {"b": [true]}]})",
        {R"("a\"é")", "1", "1.5", "null", R"({"b":[true]})"},
        {"\"a\"", "2", R"({"b": [true]})", "true"});
  Check(R"({"const": [1, "x"]})", {R"([1,"x"])"}, {"[1]"});
  Check(R"({"type": ["integer", "null"], "enum": [1, "1", 1.5, null]})", {"1", "null"},
        {"\"1\"", "1.5"});
  Check(R"({"enum": [1, 2, 3], "const": 2})", {"2"}, {"1"});
  Check(R"({"enum": [1, 5, "a", "aaaa"], "minimum": 3, "maxLength": 2})", {"5", "\"a\""},
        {"1", "\"aaaa\""});
  EXPECT_THAT(SchemaError(R"({"enum": []})"), HasSubstr("/enum: expected a list, not empty"));
  EXPECT_THAT(SchemaError(R"({"type": "string", "enum": [1]})"),
              HasSubstr("/enum: expected a value that"));
}

TEST(JsonSchema, AlternativesMayBeginAlike) {
  const std::string schema = R"({"anyOf": [
      {"properties": {"kind": {"const": "aa"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
      {"properties": {"kind": {"const": "ab"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
      {"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "number"}}]})";
  Check(schema, {R"({"kind":"aa","x":1})", R"({"kind":"ab","x":"1"})", "[1,2,3.5]", "[1]"},
        {R"({"kind":"aa","x":"1"})", R"({"kind":"ab","x":1})", "[\"a\"]"});
  EXPECT_THAT(SchemaError(R"({"anyOf": []})"), HasSubstr("/anyOf: expected a list of schemas"));
}

TEST(JsonSchema, ReferencesMayRecur) {
  Check(
      R"({"$defs": {"a/b~": {"type": "array", "items": {"$ref": "#/$defs/a~1b~0"}}}, "$ref": "#/$defs/a~1b~0"})",
      {"[]", "[[],[[[]]]]"}, {"[1]", "[[]"});
  Check(
      R"({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]})",
      {R"({"next":null})", R"({"next":{"next":{"next":null}}})"}, {"{}", R"({"next":1})"});
  Check(R"({"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}})",
        {R"({"a":null,"b":null})"}, {R"({"b":1})"});
  Check(R"({"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/0"}]})", {"null"}, {"1"});
  EXPECT_THAT(SchemaError(R"({"$ref": "other.json"})"),
              HasSubstr("/$ref: expected \"#\" or a pointer"));
  EXPECT_THAT(SchemaError(R"({"$ref": "#/$defs/x"})"),
              HasSubstr("/$ref: expected a pointer to a part"));
}

// Each level could be read in two ways: as many ways as there are documents of this depth.
TEST(JsonSchema, AmbiguousSchemasAreReadAllWaysAtOnce) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "[";
  for (int i = 0; i < 500; ++i) text += "]";
  Check(R"({"$defs": {"n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}},
             {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}]}}, "$ref": "#/$defs/n"})",
        {text}, {text + "]"});
}

TEST(JsonSchema, LengthsCountCharacters) {
  Check(R"({"type": "string", "minLength": 2, "maxLength": 3})",
        {"\"ab\"", "\"😀é\"", R"("\ud83d\ude00\n")", R"("\u0041bc")"},
        {"\"\"", "\"a\"", "\"😀\"", "\"abcd\"", R"("\ud83d\ude00")"});
  Check(R"({"type": "string", "minLength": 2})", {"\"ab\"", "\"abcdefgh\""}, {"\"a\""});
  Check(R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""});
  Check(R"({"type": "array", "items": {"type": "string", "maxLength": 1}})", {R"(["a","b",""])"},
        {R"(["a","bc"])"});
}

TEST(JsonSchema, PatternsAreFoundAnywhereUnlessAnchored) {
  Check(R"({"type": "string", "pattern": "b"})", {"\"b\"", "\"abc\"", R"("\"b")"},
        {"\"a\"", "\"\""});
  Check(R"({"type": "string", "pattern": "^a|b$"})", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""});
  Check(R"({"type": "string", "pattern": "^(a|b){2}$"})", {"\"ab\""}, {"\"a\"", "\"aba\""});
  Check(R"({"type": "string", "pattern": "^[\"\\\\\n\u0001]+$"})", {R"("\"\\\n\u0001")"},
        {R"("\u000a")", "\"a\""});
  Check(R"({"type": "string", "pattern": "^a*$", "minLength": 2, "maxLength": 3})",
        {"\"aa\"", "\"aaa\""}, {"\"a\"", "\"aaaa\""});
  EXPECT_THAT(SchemaError(R"({"items": {"pattern": "(a)\\1"}})"),
              HasSubstr("/items/pattern: at byte 4"));
  EXPECT_THAT(SchemaError(R"({"pattern": "^a$", "minLength": 2})"),
              HasSubstr("/pattern: expected that some string"));
}

TEST(JsonSchema, FormatsAreOfTheCalendar) {
  Check(R"({"format": "date"})",
        {"\"2024-02-29\"", "\"2000-02-29\"", "\"0001-01-01\"", "\"1999-04-30\""},
        {"\"2023-02-29\"", "\"1900-02-29\"", "\"0000-02-29\"", "\"1999-04-31\"", "\"2020-00-10\""});
  Check(R"({"format": "time"})", {"\"00:00:00Z\"", "\"23:59:59.123+23:59\""},
        {"\"24:00:00Z\"", "\"00:00:00\""});
  Check(R"({"format": "date-time"})", {"\"2024-02-29T01:02:03-00:30\""},
        {"\"2024-02-29 01:02:03Z\""});
  Check(R"({"format": "uuid"})", {"\"123e4567-E89B-12d3-a456-426614174000\""}, {"\"123e4567\""});
  Check(R"({"format": "ipv4"})", {"\"0.10.199.255\""},
        {"\"256.1.1.1\"", "\"01.1.1.1\"", "\"1.1.1\""});
  EXPECT_THAT(SchemaError(R"({"format": "email"})"),
              HasSubstr("/format: expected one of date, time"));
}

TEST(JsonSchema, IntegersLieWithinBounds) {
  for (const auto& [least, most] : std::vector<std::pair<int, int>>{{0, 0},
                                                                    {0, 9},
                                                                    {7, 123},
                                                                    {-5, 5},
                                                                    {-120, -7},
                                                                    {99, 1001},
                                                                    {-1000, 0},
                                                                    {-1, 100},
                                                                    {500, 599}}) {
    const auto grammar = Must(Compiled(
        StrCat(R"({"type": "integer", "minimum": )", least, R"(, "maximum": )", most, "}")));
    for (int value = -1200; value <= 1200; ++value) {
      ASSERT_EQ(Reads(grammar, std::to_string(value)), value >= least && value <= most)
          << value << " in " << least << ".." << most;
    }
    EXPECT_FALSE(Reads(grammar, "-0"));
    EXPECT_FALSE(Reads(grammar, "00"));
  }
  Check(R"({"type": "integer"})", {"9223372036854775807", "-9223372036854775808"},
        {"9223372036854775808", "1.0", "1e2"});
  Check(R"({"exclusiveMinimum": 1, "exclusiveMaximum": 4})", {"2", "3"}, {"1", "4"});
  Check(R"({"exclusiveMinimum": 1.5, "maximum": 3.5})", {"2", "3"}, {"1", "4"});
  EXPECT_THAT(SchemaError(R"({"type": "integer", "minimum": 3, "maximum": 2})"),
              HasSubstr("/maximum: expected that some integer"));
  EXPECT_THAT(SchemaError(R"({"exclusiveMinimum": 1, "exclusiveMaximum": 2})"),
              HasSubstr("that some integer"));
  EXPECT_THAT(SchemaError(R"({"type": "number", "minimum": 0})"),
              HasSubstr("/minimum: expected no bound of type \"number\""));
}

TEST(JsonSchema, BooleansAreSchemas) {
  Check("true", {"1", "[]", R"({"a":"b"})"}, {"", "a"});
  Check(R"({"properties": {"a": true, "b": false}})", {R"({"a":[1]})", "{}"}, {R"({"b":1})"});
  EXPECT_EQ(SchemaError("false"), "the schema: expected that some text fits, got a contradiction");
}

TEST(JsonSchema, AnnotationsSayNothing) {
  Check(
      R"({"$schema": "s", "$id": "i", "title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c",
            "deprecated": true, "readOnly": true, "writeOnly": false, "strict": true, "x-order": 1, "type": "null"})",
      {"null"}, {"1"});
  Check(R"({"allOf": [{"type": "null"}], "description": "d"})", {"null"}, {"1"});
}

TEST(JsonSchema, OtherKeywordsAreRefusedByName) {
  EXPECT_EQ(
      SchemaError(R"({"properties": {"a": {"type": "integer", "multipleOf": 2}}})"),
      "/properties/a/multipleOf: expected a keyword of the supported subset, got \"multipleOf\"");
  for (const char* keyword :
       {"oneOf", "not", "if", "patternProperties", "propertyNames", "minProperties", "uniqueItems",
        "contains", "dependentRequired", "$dynamicRef", "nullable", "additionalItems", "Type"}) {
    EXPECT_THAT(SchemaError(StrCat("{\"", keyword, "\": []}")),
                HasSubstr("expected a keyword of the supported subset"))
        << keyword;
  }
  EXPECT_THAT(SchemaError(R"({"anyOf": [{}], "type": "null"})"),
              HasSubstr("/type: expected no such keyword beside \"anyOf\""));
  EXPECT_THAT(SchemaError(R"({"$ref": "#", "minLength": 1})"),
              HasSubstr("/minLength: expected no such keyword beside \"$ref\""));
  EXPECT_THAT(SchemaError(R"({"allOf": [{}, {}]})"), HasSubstr("/allOf: expected one schema only"));
}

TEST(JsonSchema, ContradictionsAreNamed) {
  EXPECT_EQ(SchemaError(R"({"type": "string", "minLength": 3, "maxLength": 2})"),
            "/maxLength: expected minLength (3) or more, got 2");
  EXPECT_EQ(SchemaError(R"({"items": {"minItems": 3, "maxItems": 2}})"),
            "/items/maxItems: expected minItems (3) or more, got 2");
  EXPECT_EQ(SchemaError(R"({"properties": {"a": {}}, "required": ["a", "b"]})"),
            "/required/1: expected a declared property, got \"b\"");
  EXPECT_THAT(SchemaError(R"({"prefixItems": [{}], "items": false, "minItems": 2})"),
              HasSubstr("/minItems: expected at most 1"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("got a contradiction"));
  EXPECT_THAT(
      SchemaError(
          R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"})"),
      HasSubstr("expected that it refers to itself within a list or an object only"));
}

TEST(JsonSchema, WrongValuesOfKeywordsAreNamed) {
  for (const auto& [schema, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"minLength": -1})",
            "/minLength: expected a whole number that is not negative, got -1"},
           {R"({"maxItems": 1.5})",
            "/maxItems: expected a whole number that is not negative, got 1.5"},
           {R"({"properties": []})", "/properties: expected an object of schemas, got []"},
           {R"({"required": "a"})", "/required: expected a list of names, got \"a\""},
           {R"({"items": [{}]})", "/items: expected a schema, an object or a boolean"},
           {R"({"prefixItems": []})",
            "/prefixItems: expected a list of schemas, not empty, got []"},
           {R"({"pattern": 1})", "/pattern: expected a string, got 1"},
           {R"({"minimum": "1"})", "/minimum: expected a number, got \"1\""},
           {R"({"properties": {"a": 1}})",
            "/properties/a: expected a schema, an object or a boolean"},
           {"[]", "the schema: expected a schema, an object or a boolean"}}) {
    EXPECT_EQ(SchemaError(schema), message);
  }
}

TEST(JsonSchema, SchemasHaveLimits) {
  const auto message = [](const ordered_json& schema) {
    const absl::Status status = Grammar::OfJsonSchema(schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    return std::string(StdView(status.message()));
  };
  EXPECT_THAT(message({{"description", std::string(70'000, 'x')}}),
              HasSubstr("at most 65536 bytes, got 700"));
  ordered_json deep = true;
  for (int i = 0; i < 33; ++i) deep = {{"items", std::move(deep)}};
  EXPECT_THAT(message(deep), HasSubstr("expected at most 32 schemas around a schema, got 33"));
  EXPECT_TRUE(Grammar::OfJsonSchema(deep["items"]).ok());
  EXPECT_THAT(message({{"type", "array"}, {"maxItems", 1'000'000}}),
              HasSubstr("at most 100000 states"));
  ordered_json nested = ordered_json::array();
  for (int i = 0; i < 250; ++i) nested = ordered_json::array({std::move(nested)});
  EXPECT_THAT(message({{"const", nested}}), HasSubstr("nested at most 200 deep"));
  EXPECT_THAT(message({{"pattern", "^(.*a.{30}){1,30}$"}}),
              HasSubstr("the grammar: expected at most"));
}

TEST(JsonSchema, ManyReferencesInARowAreNoDeepRecursion) {
  ordered_json defs = {{"d0", {{"type", "null"}}}};
  for (int i = 1; i < 1500; ++i) defs[StrCat("d", i)] = {{"$ref", StrCat("#/$defs/d", i - 1)}};
  const auto grammar = Grammar::OfJsonSchema({{"$defs", defs}, {"$ref", "#/$defs/d1499"}});
  // On a busy machine with sanitizers it may take too long.
  if (!grammar.ok()) {
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kResourceExhausted);
    return;
  }
  EXPECT_TRUE(Reads(*grammar, "null"));
}

TEST(JsonSchema, StringsThatAreNoUtf8AreRefused) {
  EXPECT_EQ(StdView(Grammar::OfJsonSchema({{"const", "\xFF"}}).status().message()),
            "the schema: expected strings in UTF-8");
}

// Two hundred schemas with documents that another validator has judged.
TEST(JsonSchema, DocumentsAreJudgedAsElsewhere) {
  std::ifstream file(PAGEFUSE_SCHEMAS);
  const ordered_json entries = ordered_json::parse(file);
  ASSERT_EQ(entries.size(), 200);
  for (const ordered_json& entry : entries) {
    SCOPED_TRACE(entry["name"]);
    const auto grammar = Must(Grammar::OfJsonSchema(entry["schema"]));
    for (const ordered_json& document : entry["valid"])
      EXPECT_TRUE(Reads(grammar, document.dump())) << document;
    for (const ordered_json& document : entry["invalid"])
      EXPECT_FALSE(Reads(grammar, document.dump())) << document;
  }
}

}  // namespace
}  // namespace pagefuse
