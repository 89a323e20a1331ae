// What the text form refuses, and where its messages point.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text.h"

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
  EXPECT_THAT(ErrorOf("g \x01"), HasSubstr("expected \"(\", got unexpected character \"\\x01\""));
}

TEST(TextError, SaysWhatItExpected) {
  EXPECT_THAT(
      ErrorOf(""),
      StartsWith("line 1, column 1: expected the name of a graph, got the end of the text"));
  EXPECT_THAT(ErrorOf("g"), HasSubstr("expected \"(\", got the end of the text"));
  EXPECT_THAT(ErrorOf("g () -> ()"), HasSubstr("expected \"=>\", got \"-\""));
  EXPECT_THAT(ErrorOf("g (float 3) => () {}"),
              HasSubstr("expected the name of a value, got number 3"));
  EXPECT_THAT(ErrorOf("g (3) => () {}"), HasSubstr("expected a type or the name of a value"));
  EXPECT_THAT(ErrorOf("g (float \"\") => () {}"), HasSubstr("expected a name that is not empty"));
  EXPECT_THAT(ErrorOf("g (map(float) x) => () {}"), HasSubstr("expected \",\", got \")\""));
  EXPECT_THAT(ErrorOf("g (seq(x) y) => () {}"), HasSubstr("expected an element type, got \"x\""));
  EXPECT_THAT(BodyError("", "3"), HasSubstr("expected a node or \"}\", got number 3"));
  EXPECT_THAT(BodyError("", "y = (x)"), HasSubstr("expected the name of an op, got \"(\""));
  EXPECT_THAT(BodyError("", "y = \"\" (x)"),
              HasSubstr("expected the name of an op that is not empty"));
  EXPECT_THAT(BodyError("", "y = Relu x"), HasSubstr("expected \"(\", got \"x\""));
  EXPECT_THAT(BodyError("", "[] y = Relu (x)"), HasSubstr("expected the name of a node"));
  EXPECT_THAT(BodyError("", "y = Relu (x"), HasSubstr("expected \")\", got \"}\""));
  EXPECT_THAT(ErrorOf("g () => () {} h"), HasSubstr("expected \"(\", got the end of the text"));
  EXPECT_THAT(ErrorOf("g () => () {} () => () {}"), HasSubstr("expected a function with a name"));
}

TEST(TextError, NamesBrokenTokens) {
  EXPECT_THAT(ErrorOf("g (float x) => () { y = F (\"x) }"), HasSubstr("got unterminated string"));
  EXPECT_THAT(ErrorOf("\"g\\"), HasSubstr("got unterminated string"));
  EXPECT_THAT(BodyError("<float w = {1.2.3}>", ""),
              HasSubstr("expected a number, got malformed number \"1.2.3\""));
  EXPECT_THAT(BodyError("<float w = {1e}>", ""), HasSubstr("malformed number \"1e\""));
  EXPECT_THAT(BodyError("<float w = {12ab}>", ""), HasSubstr("malformed number \"12ab\""));
  EXPECT_THAT(ErrorOf("g (float x) => () { y = F $ (x) }"),
              HasSubstr("unexpected character \"$\""));
}

TEST(TextError, ChecksHeaders) {
  EXPECT_THAT(ErrorOf("<version: 3> g () => () {}"),
              HasSubstr("expected ir_version, opset_import"));
  EXPECT_THAT(ErrorOf("<ir_version: 3, ir_version: 4> g () => () {}"),
              HasSubstr("column 17: \"ir_version\" is given twice"));
  EXPECT_THAT(ErrorOf("<ir_version: \"3\"> g () => () {}"),
              HasSubstr("expected an integer, got string \"3\""));
  EXPECT_THAT(ErrorOf("<ir_version: 9223372036854775808> g () => () {}"),
              HasSubstr("expected a 64-bit integer"));
  EXPECT_THAT(ErrorOf("<3: 4> g () => () {}"), HasSubstr("expected a key of the header"));
  EXPECT_THAT(ErrorOf("<domain: 3> g () => () {}"),
              HasSubstr("expected a string in double quotes, got number 3"));
  EXPECT_THAT(ErrorOf("<opset_import: [\"\" : 0]> g () => () {}"),
              HasSubstr("expected an opset version of 1 or more, got 0"));
  EXPECT_THAT(ErrorOf("<opset_import: [\"\" : 1, \"\" : 2]> g () => () {}"),
              HasSubstr("domain \"\" is imported twice"));
  EXPECT_THAT(ErrorOf("<unknown_fields: \"0g\"> g () => () {}"),
              HasSubstr("expected an even number of hexadecimal digits"));
  EXPECT_THAT(ErrorOf("g () => () {} <producer_name: \"a\"> F () => () {}"),
              HasSubstr("expected domain, overload, opset_import"));
  EXPECT_THAT(ErrorOf("g () => () <doc_string: \"\", doc_string: \"\"> {}"),
              HasSubstr("\"doc_string\" is given twice"));
  EXPECT_THAT(ErrorOf("g () => () <doc_string: \"\", name: \"\"> {}"),
              HasSubstr("expected doc_string, metadata_props or unknown_fields, got \"name\""));
  EXPECT_THAT(ErrorOf("g () => () <doc_string: \"\", 3> {}"),
              HasSubstr("expected doc_string, metadata_props or unknown_fields, got number 3"));
}

TEST(TextError, PointsAtNamesThatAreNotDefined) {
  EXPECT_THAT(BodyError("", "\n y = Relu (z)"),
              StartsWith("line 2, column 12: value \"z\" is not defined here"));
  EXPECT_THAT(BodyError("", "y = Relu (y)"), HasSubstr("value \"y\" is not defined here"));
  EXPECT_THAT(BodyError("", "a = Relu (b) b = Relu (x)"),
              HasSubstr("value \"b\" is not defined here"));
  EXPECT_THAT(ErrorOf("g () => (float y) {}"),
              HasSubstr("graph output \"y\" is not defined in this graph"));
  EXPECT_THAT(BodyError("<float t>", ""), HasSubstr("value \"t\" is not defined in this graph"));
  EXPECT_THAT(BodyError("", "y = If (x) <b = s () => (float x) {}>"),
              HasSubstr("graph output \"x\" is not defined in this graph"));
  EXPECT_THAT(ErrorOf("g (float x) => () {} F () => (y) { y = Relu (x) }"),
              HasSubstr("value \"x\" is not defined here"));
}

TEST(TextError, PointsAtNamesThatAreDefinedTwice) {
  EXPECT_THAT(ErrorOf("g (float x, float x) => () {}"),
              HasSubstr("column 19: value \"x\" is defined twice"));
  EXPECT_THAT(BodyError("", "x = Relu (x)"), HasSubstr("value \"x\" is defined twice"));
  EXPECT_THAT(BodyError("", "y, y = Split (x)"), HasSubstr("value \"y\" is defined twice"));
  EXPECT_THAT(BodyError("<float w = {1}, float w = {1}>", ""),
              HasSubstr("value \"w\" is defined twice"));
  EXPECT_THAT(BodyError("<float w = {1}>", "w = Relu (x)"),
              HasSubstr("value \"w\" is defined twice"));
  EXPECT_THAT(BodyError("", "y = F <a = 1, a = 2> (x)"),
              HasSubstr("attribute \"a\" is given twice"));
  EXPECT_THAT(BodyError("", "y = F <a = 1> (x) <a = 2>"),
              HasSubstr("attribute \"a\" is given twice"));
  EXPECT_THAT(ErrorOf("g () => () {} F <a, a = 1> () => () {}"),
              HasSubstr("attribute \"a\" is given twice"));
  EXPECT_THAT(ErrorOf("g () => () {} F () => () {} F () => () {}"),
              HasSubstr("function \"F\" of domain \"\" is defined twice"));
}

TEST(TextError, RefusesTypesThatDisagree) {
  EXPECT_THAT(ErrorOf("g (float x) => (int64 x) {}"),
              HasSubstr("value \"x\" is declared with two different types"));
  EXPECT_THAT(ErrorOf("g (seq(float) x) => (float x) {}"), HasSubstr("two different types"));
  EXPECT_THAT(ErrorOf("g (float x) => (seq(float) x) {}"), HasSubstr("two different types"));
  EXPECT_THAT(ErrorOf("g (seq(float) x) => (seq(int8) x) {}"), HasSubstr("two different types"));
  EXPECT_THAT(ErrorOf("g (float[3] x) => () <float[2] x = {1, 2}> {}"),
              HasSubstr("expected an initializer of shape [3], got [2]"));
}

TEST(TextError, ChecksElements) {
  EXPECT_THAT(BodyError("<float[2] w = {1}>", ""), HasSubstr("expected 2 elements, got 1"));
  EXPECT_THAT(BodyError("<float[2] w = {1, 2, 3}>", ""),
              HasSubstr("expected 2 elements, got more"));
  EXPECT_THAT(BodyError("<complex64 w = {1}>", ""), HasSubstr("expected 2 elements, got 1"));
  EXPECT_THAT(BodyError("<int8 w = {128}>", ""),
              HasSubstr("expected an element of type int8 in [-128, 127], got 128"));
  EXPECT_THAT(BodyError("<int8 w = {-129}>", ""), HasSubstr("got -129"));
  EXPECT_THAT(BodyError("<uint4 w = {16}>", ""),
              HasSubstr("expected an element of type uint4 in [0, 15], got 16"));
  EXPECT_THAT(BodyError("<uint8 w = {-1}>", ""), HasSubstr("in [0, 255], got -1"));
  EXPECT_THAT(BodyError("<bool w = {2}>", ""), HasSubstr("in [0, 1], got 2"));
  EXPECT_THAT(BodyError("<uint64 w = {18446744073709551616}>", ""),
              HasSubstr("got 18446744073709551616"));
  EXPECT_THAT(BodyError("<float16 w = {1.0}>", ""),
              HasSubstr("expected an integer that holds the bits of a float16, got number 1.0"));
  EXPECT_THAT(BodyError("<float8e4m3fn w = {256}>", ""),
              HasSubstr("expected the bits of a float8e4m3fn in [0, 255], got 256"));
  EXPECT_THAT(BodyError("<int64 w = {1.5}>", ""),
              HasSubstr("expected an integer of type int64, got number 1.5"));
  EXPECT_THAT(BodyError("<float w = {1e39}>", ""),
              HasSubstr("expected a number that fits in a float, got 1e39"));
  EXPECT_THAT(BodyError("<double w = {-1e309}>", ""),
              HasSubstr("expected a number that fits in a double, got -1e309"));
  EXPECT_THAT(BodyError("<float w = {nan(1)}>", ""),
              HasSubstr("expected the bits of a nan of 4 bytes, got 1"));
  EXPECT_THAT(BodyError("<float w = {nan(x)}>", ""),
              HasSubstr("expected the bits of a nan, got \"x\""));
  EXPECT_THAT(BodyError("<string w = {1}>", ""),
              HasSubstr("expected a string in double quotes, got number 1"));
}

TEST(TextError, ChecksDimsOfData) {
  EXPECT_THAT(BodyError("<float[1000000000000] w = {}>", ""),
              HasSubstr("expected 1000000000000 elements, got 0"));
  EXPECT_THAT(BodyError("<string[1000000000000] w = {}>", ""),
              HasSubstr("expected 1000000000000 elements, got 0"));
  EXPECT_THAT(BodyError("<float[4294967296, 4294967296] w = {}>", ""),
              HasSubstr("a tensor of dims [4294967296, 4294967296] is too large"));
  EXPECT_THAT(BodyError("<float[N] w = {}>", ""),
              HasSubstr("expected a tensor type with numeric dims before data"));
  EXPECT_THAT(BodyError("<float[-1] w = {}>", ""),
              HasSubstr("expected a tensor type with numeric dims before data"));
  EXPECT_THAT(BodyError("<float[] w = {}>", ""),
              HasSubstr("expected a tensor type with dims before data"));
  EXPECT_THAT(BodyError("<seq(float) w = {}>", ""),
              HasSubstr("expected a tensor type before data"));
  EXPECT_THAT(BodyError("<undefined[1] w = {1}>", ""),
              HasSubstr("expected a tensor type before data"));
  EXPECT_THAT(BodyError("<w = {1}>", ""), HasSubstr("initializer \"w\" has no type"));
  EXPECT_THAT(BodyError("<float w = [\"location\": \"f\"]>", ""),
              HasSubstr("external data cannot be read from text"));
}

TEST(TextError, ChecksDims) {
  EXPECT_THAT(ErrorOf("g (float[a +] x) => () {}"),
              HasSubstr("expected a dim: a number, a name, \"?\" or an expression of them"));
  EXPECT_THAT(ErrorOf("g (float[a b] x) => () {}"), HasSubstr("expected \"]\", got \"b\""));
  EXPECT_THAT(ErrorOf("g (float[a // 0] x) => () {}"), HasSubstr("dim expression divides by zero"));
  EXPECT_THAT(ErrorOf("g (float[9223372036854775807 + 1] x) => () {}"),
              HasSubstr("dim expression does not fit in 64 bits"));
  EXPECT_THAT(ErrorOf("g (float[9223372036854775808] x) => () {}"),
              HasSubstr("expected a 64-bit integer"));
}

TEST(TextError, ChecksAttributes) {
  EXPECT_THAT(BodyError("", "y = F <3> (x)"), HasSubstr("expected the name of an attribute"));
  EXPECT_THAT(BodyError("", "y = F <a: real = 1> (x)"),
              HasSubstr("expected the type of an attribute"));
  EXPECT_THAT(BodyError("", "y = F <a> (x)"), HasSubstr("expected \"=\", got \">\""));
  EXPECT_THAT(BodyError("", "y = F <a = > (x)"),
              HasSubstr("expected the value of an attribute, got \">\""));
  EXPECT_THAT(BodyError("", "y = F <a: int = 1.5> (x)"),
              HasSubstr("expected a value of type int, got float"));
  EXPECT_THAT(BodyError("", "y = F <a: string = 1> (x)"),
              HasSubstr("expected a value of type string, got int"));
  EXPECT_THAT(BodyError("", "y = F <a: int = [1]> (x)"),
              HasSubstr("expected one value of type int, got \"[\""));
  EXPECT_THAT(BodyError("", "y = F <a: ints = 1> (x)"),
              HasSubstr("expected \"[\" or \"@\", got number 1"));
  EXPECT_THAT(BodyError("", "y = F <a = []> (x)"),
              HasSubstr("an empty list needs a type, as in \"x: ints = []\""));
  EXPECT_THAT(BodyError("", "y = F <a = [1, \"b\"]> (x)"),
              HasSubstr("expected an item of type int as before, got string"));
  EXPECT_THAT(BodyError("", "y = F <a = @3> (x)"),
              HasSubstr("expected the name of an attribute of the function"));
  EXPECT_THAT(BodyError("", "y = F <a = 9223372036854775808> (x)"),
              HasSubstr("expected a 64-bit integer"));
  EXPECT_THAT(BodyError("", "y = F <a = 1e39> (x)"),
              HasSubstr("expected a number that fits in a float"));
  EXPECT_THAT(BodyError("", "y = F <a: proto = \"ff\"> (x)"),
              HasSubstr("expected a serialised AttributeProto"));
  EXPECT_THAT(ErrorOf("g (proto(\"ff\") x) => () {}"),
              HasSubstr("expected a serialised TypeProto"));
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
  EXPECT_THAT(ErrorOf(NestedGraphs(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf("g (" + Repeat("seq(", 100000)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf("g (float[" + Repeat("(", 100000)),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf("g (float[" + Repeat("-", 100000)),
              HasSubstr("nested deeper than 64 levels"));
}

}  // namespace
}  // namespace pagefuse
