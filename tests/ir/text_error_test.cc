// SPDX-License-Identifier: Apache-2.0
// What the text form refuses, and where its messages point.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const auto model = ParseModel(text);
  EXPECT_FALSE(model.ok()) << text;
  if (model.ok()) return "";
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

// The error of a model that declares `declarations` and has `nodes`.
std::string BodyError(std::string_view declarations, std::string_view nodes) {
  return ErrorOf("g (float x) => () " + std::string(declarations) + " {" + std::string(nodes) +
                 "}");
}

// The message has `what`.
void Refuses(std::string_view text, const std::string& what) {
  EXPECT_THAT(ErrorOf(text), HasSubstr(what)) << text;
}
void BodyRefuses(std::string_view declarations, std::string_view nodes, const std::string& what) {
  EXPECT_THAT(BodyError(declarations, nodes), HasSubstr(what)) << declarations << nodes;
}

TEST(TextError, ShowsTheLineAndMarksTheColumn) {
  EXPECT_EQ(ErrorOf("g (float x) => (float y) {\n  y + Relu (x)\n}"),
            "line 2, column 5: expected \"=\", got \"+\"\n"
            "    y + Relu (x)\n"
            "      ^");
}

TEST(TextError, ShowsPartOfALongLine) {
  const std::string error = ErrorOf("g () => () <float[3] w = {" + std::string(500, ' ') + "x" +
                                    std::string(500, ' ') + "}> {}");
  EXPECT_THAT(error, StartsWith("line 1, column 527: expected a number, got \"x\"\n"));
  EXPECT_LT(error.size(), 300u);
}

TEST(TextError, EscapesWhatCannotBeShown) {
  Refuses("g \x01", "expected \"(\", got unexpected character \"\\x01\"");
}

TEST(TextError, SaysWhatItExpected) {
  EXPECT_THAT(
      ErrorOf(""),
      StartsWith("line 1, column 1: expected the name of a graph, got the end of the text"));
  Refuses("g", "expected \"(\", got the end of the text");
  Refuses("g () -> ()", "expected \"=>\", got \"-\"");
  Refuses("g (float 3) => () {}", "expected the name of a value, got number 3");
  Refuses("g (3) => () {}", "expected a type or the name of a value");
  Refuses("g (float \"\") => () {}", "expected a name that is not empty");
  Refuses("g (map(float) x) => () {}", "expected \",\", got \")\"");
  Refuses("g (seq(x) y) => () {}", "expected an element type, got \"x\"");
  BodyRefuses("", "3", "expected a node or \"}\", got number 3");
  BodyRefuses("", "y = (x)", "expected the name of an op, got \"(\"");
  BodyRefuses("", "y = \"\" (x)", "expected the name of an op that is not empty");
  BodyRefuses("", "y = Relu x", "expected \"(\", got \"x\"");
  BodyRefuses("", "[] y = Relu (x)", "expected the name of a node");
  BodyRefuses("", "y = Relu (x", "expected \")\", got \"}\"");
  Refuses("g () => () {} h", "expected \"(\", got the end of the text");
  Refuses("g () => () {} () => () {}", "expected a function with a name");
}

TEST(TextError, NamesBrokenTokens) {
  Refuses("g (float x) => () { y = F (\"x) }", "got unterminated string");
  Refuses("\"g\\", "got unterminated string");
  BodyRefuses("<float w = {1.2.3}>", "", "expected a number, got malformed number \"1.2.3\"");
  BodyRefuses("<float w = {1e}>", "", "malformed number \"1e\"");
  BodyRefuses("<float w = {12ab}>", "", "malformed number \"12ab\"");
  Refuses("g (float x) => () { y = F $ (x) }", "unexpected character \"$\"");
}

TEST(TextError, ChecksHeaders) {
  Refuses("<version: 3> g () => () {}", "expected ir_version, opset_import");
  Refuses("<ir_version: 3, ir_version: 4> g () => () {}",
          "column 17: \"ir_version\" is given twice");
  Refuses("<ir_version: \"3\"> g () => () {}", "expected an integer, got string \"3\"");
  Refuses("<ir_version: 9223372036854775808> g () => () {}", "expected a 64-bit integer");
  Refuses("<3: 4> g () => () {}", "expected a key of the header");
  Refuses("<domain: 3> g () => () {}", "expected a string in double quotes, got number 3");
  Refuses("<opset_import: [\"\" : 0]> g () => () {}",
          "expected an opset version of 1 or more, got 0");
  Refuses("<opset_import: [\"\" : 1, \"\" : 2]> g () => () {}", "domain \"\" is imported twice");
  Refuses("<unknown_fields: \"0g\"> g () => () {}",
          "expected an even number of hexadecimal digits");
  Refuses("g () => () {} <producer_name: \"a\"> F () => () {}",
          "expected domain, overload, opset_import");
  Refuses("g () => () <doc_string: \"\", doc_string: \"\"> {}", "\"doc_string\" is given twice");
  Refuses("g () => () <doc_string: \"\", name: \"\"> {}",
          "expected doc_string, metadata_props or unknown_fields, got \"name\"");
  Refuses("g () => () <doc_string: \"\", 3> {}",
          "expected doc_string, metadata_props or unknown_fields, got number 3");
}

TEST(TextError, PointsAtNamesThatAreNotDefined) {
  EXPECT_THAT(BodyError("", "\n y = Relu (z)"),
              StartsWith("line 2, column 12: value \"z\" is not defined here"));
  BodyRefuses("", "y = Relu (y)", "value \"y\" is not defined here");
  BodyRefuses("", "a = Relu (b) b = Relu (x)", "value \"b\" is not defined here");
  Refuses("g () => (float y) {}", "graph output \"y\" is not defined in this graph");
  BodyRefuses("<float t>", "", "value \"t\" is not defined in this graph");
  BodyRefuses("", "y = If (x) <b = s () => (float x) {}>",
              "graph output \"x\" is not defined in this graph");
  Refuses("g (float x) => () {} F () => (y) { y = Relu (x) }", "value \"x\" is not defined here");
}

TEST(TextError, PointsAtNamesThatAreDefinedTwice) {
  Refuses("g (float x, float x) => () {}", "column 19: value \"x\" is defined twice");
  BodyRefuses("", "x = Relu (x)", "value \"x\" is defined twice");
  BodyRefuses("", "y, y = Split (x)", "value \"y\" is defined twice");
  BodyRefuses("<float w = {1}, float w = {1}>", "", "value \"w\" is defined twice");
  BodyRefuses("<float w = {1}>", "w = Relu (x)", "value \"w\" is defined twice");
  BodyRefuses("", "y = F <a = 1, a = 2> (x)", "attribute \"a\" is given twice");
  BodyRefuses("", "y = F <a = 1> (x) <a = 2>", "attribute \"a\" is given twice");
  Refuses("g () => () {} F <a, a = 1> () => () {}", "attribute \"a\" is given twice");
  Refuses("g () => () {} F () => () {} F () => () {}",
          "function \"F\" of domain \"\" is defined twice");
}

TEST(TextError, RefusesTypesThatDisagree) {
  Refuses("g (float x) => (int64 x) {}", "value \"x\" is declared with two different types");
  Refuses("g (seq(float) x) => (float x) {}", "two different types");
  Refuses("g (float x) => (seq(float) x) {}", "two different types");
  Refuses("g (seq(float) x) => (seq(int8) x) {}", "two different types");
  Refuses("g (float[3] x) => () <float[2] x = {1, 2}> {}",
          "expected an initializer of shape [3], got [2]");
}

TEST(TextError, ChecksElements) {
  BodyRefuses("<float[2] w = {1}>", "", "expected 2 elements, got 1");
  BodyRefuses("<float[2] w = {1, 2, 3}>", "", "expected 2 elements, got more");
  BodyRefuses("<complex64 w = {1}>", "", "expected 2 elements, got 1");
  BodyRefuses("<int8 w = {128}>", "", "expected an element of type int8 in [-128, 127], got 128");
  BodyRefuses("<int8 w = {-129}>", "", "got -129");
  BodyRefuses("<uint4 w = {16}>", "", "expected an element of type uint4 in [0, 15], got 16");
  BodyRefuses("<uint8 w = {-1}>", "", "in [0, 255], got -1");
  BodyRefuses("<bool w = {2}>", "", "in [0, 1], got 2");
  BodyRefuses("<uint64 w = {18446744073709551616}>", "", "got 18446744073709551616");
  BodyRefuses("<float16 w = {1.0}>", "",
              "expected an integer that holds the bits of a float16, got number 1.0");
  BodyRefuses("<float8e4m3fn w = {256}>", "",
              "expected the bits of a float8e4m3fn in [0, 255], got 256");
  BodyRefuses("<int64 w = {1.5}>", "", "expected an integer of type int64, got number 1.5");
  BodyRefuses("<float w = {1e39}>", "", "expected a number that fits in a float, got 1e39");
  BodyRefuses("<double w = {-1e309}>", "", "expected a number that fits in a double, got -1e309");
  BodyRefuses("<float w = {nan(1)}>", "", "expected the bits of a nan of 4 bytes, got 1");
  BodyRefuses("<float w = {nan(x)}>", "", "expected the bits of a nan, got \"x\"");
  BodyRefuses("<string w = {1}>", "", "expected a string in double quotes, got number 1");
}

TEST(TextError, ChecksDimsOfData) {
  BodyRefuses("<float[1000000000000] w = {}>", "", "expected 1000000000000 elements, got 0");
  BodyRefuses("<string[1000000000000] w = {}>", "", "expected 1000000000000 elements, got 0");
  BodyRefuses("<float[4294967296, 4294967296] w = {}>", "",
              "a tensor of dims [4294967296, 4294967296] is too large");
  BodyRefuses("<float[N] w = {}>", "", "expected a tensor type with numeric dims before data");
  BodyRefuses("<float[-1] w = {}>", "", "expected a tensor type with numeric dims before data");
  BodyRefuses("<float[] w = {}>", "", "expected a tensor type with dims before data");
  BodyRefuses("<seq(float) w = {}>", "", "expected a tensor type before data");
  BodyRefuses("<undefined[1] w = {1}>", "", "expected a tensor type before data");
  BodyRefuses("<w = {1}>", "", "initializer \"w\" has no type");
  BodyRefuses("<float w = [\"location\": \"f\"]>", "", "external data cannot be read from text");
}

TEST(TextError, ChecksDims) {
  Refuses("g (float[a +] x) => () {}",
          "expected a dim: a number, a name, \"?\" or an expression of them");
  Refuses("g (float[a b] x) => () {}", "expected \"]\", got \"b\"");
  Refuses("g (float[a // 0] x) => () {}", "dim expression divides by zero");
  Refuses("g (float[9223372036854775807 + 1] x) => () {}",
          "dim expression does not fit in 64 bits");
  Refuses("g (float[9223372036854775808] x) => () {}", "expected a 64-bit integer");
}

TEST(TextError, ChecksAttributes) {
  BodyRefuses("", "y = F <3> (x)", "expected the name of an attribute");
  BodyRefuses("", "y = F <a: real = 1> (x)", "expected the type of an attribute");
  BodyRefuses("", "y = F <a> (x)", "expected \"=\", got \">\"");
  BodyRefuses("", "y = F <a = > (x)", "expected the value of an attribute, got \">\"");
  BodyRefuses("", "y = F <a: int = 1.5> (x)", "expected a value of type int, got float");
  BodyRefuses("", "y = F <a: string = 1> (x)", "expected a value of type string, got int");
  BodyRefuses("", "y = F <a: int = [1]> (x)", "expected one value of type int, got \"[\"");
  BodyRefuses("", "y = F <a: ints = 1> (x)", "expected \"[\" or \"@\", got number 1");
  BodyRefuses("", "y = F <a = []> (x)", "an empty list needs a type, as in \"x: ints = []\"");
  BodyRefuses("", "y = F <a = [1, \"b\"]> (x)",
              "expected an item of type int as before, got string");
  BodyRefuses("", "y = F <a = @3> (x)", "expected the name of an attribute of the function");
  BodyRefuses("", "y = F <a = 9223372036854775808> (x)", "expected a 64-bit integer");
  BodyRefuses("", "y = F <a = 1e39> (x)", "expected a number that fits in a float");
  BodyRefuses("", "y = F <a: proto = \"ff\"> (x)", "expected a serialised AttributeProto");
  Refuses("g (proto(\"ff\") x) => () {}", "expected a serialised TypeProto");
}

// --- depth ---

std::string Repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

std::string NestedGraphs(int depth) {
  return "g () => () {" + Repeat("= F () <b = g () => () {", depth) + Repeat("}>", depth) + "}";
}

TEST(TextError, LimitsDepth) {
  EXPECT_TRUE(ParseModel(NestedGraphs(64)).ok());
  Refuses(NestedGraphs(65), "nested deeper than 64 levels");
  EXPECT_THAT(ErrorOf("g (" + Repeat("seq(", 100000)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf("g (float[" + Repeat("(", 100000)),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf("g (float[" + Repeat("-", 100000)),
              HasSubstr("nested deeper than 64 levels"));
}

}  // namespace
}  // namespace pagefuse
