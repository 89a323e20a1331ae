// SPDX-License-Identifier: Apache-2.0
// What ONNX's own parser accepts, ours accepts with the same content; and real models survive being
// printed and read.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = SourcePath("");

onnx::ModelProto ProtoOf(const Model& model) {
  onnx::ModelProto proto;
  const auto bytes = ExportModel(model);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(bytes.ok() && proto.ParseFromString(*bytes));
  return proto;
}

// Equal up to the order of opset imports, value infos and initialisers.
void ExpectSame(const onnx::ModelProto& expected, const onnx::ModelProto& actual) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  const auto* graph = onnx::GraphProto::GetDescriptor();
  differencer.TreatAsSet(onnx::ModelProto::GetDescriptor()->FindFieldByName("opset_import"));
  differencer.TreatAsSet(onnx::FunctionProto::GetDescriptor()->FindFieldByName("opset_import"));
  differencer.TreatAsSet(graph->FindFieldByName("value_info"));
  differencer.TreatAsSet(graph->FindFieldByName("initializer"));
  std::string report;
  differencer.ReportDifferencesToString(&report);
  EXPECT_TRUE(differencer.Compare(expected, actual)) << report.substr(0, 2000);
}

void ExpectReadAsOnnxDoes(const std::string& text) {
  onnx::ModelProto theirs;
  const auto status = onnx::OnnxParser::Parse(theirs, text.c_str());
  ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
  const auto ours = Must(ParseModel(text));
  // Through our import, so that both write tensors and types the same way.
  const auto imported = Must(ImportModel(theirs.SerializeAsString(), {}));
  ExpectSame(ProtoOf(imported), ProtoOf(ours));
}

TEST(TextAgainstOnnx, ReadsWholeModels) {
  ExpectReadAsOnnxDoes(R"(
    # a comment
    <ir_version: 8, opset_import: ["" : 17, "com.test" : 1], producer_name: "p", producer_version: "1",
     domain: "d", model_version: 3, doc_string: "a doc", metadata_props: ["a": "b", "c": "d"]>
    g (float[N, 128] X, float[128, 10] W, float[10] B) => (float[N, 10] C)
    <float[N, 10] T, int64[2] k = {1, -2}>
    {
      T = MatMul(X, W)
      S = Add(T, B)  # trailing
      C = Softmax<axis = -1>(S)
    })");
}

TEST(TextAgainstOnnx, ReadsAttributes) {
  ExpectReadAsOnnxDoes(R"(
    <ir_version: 8, opset_import: ["" : 17, "a.b" : 1]>
    g (float x) => (float y) {
      p = a.b.Op <i = 1, f = 2.5, e = 1e-06, s = "q z", is = [1, -2], fs = [1.5, 2.5], ss = ["a", "b"]> (x)
      q = a.b.Op <i: int = 1, f: float = 2.5, t = float[2] {1, 2}, u: tensor = int8 {3}> (p)
      y = a.b.Op (q) <k = 2>
    })");
}

TEST(TextAgainstOnnx, ReadsTensors) {
  ExpectReadAsOnnxDoes(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x = {1, 2.5}) => (float[2] y)
    <int8[2] a = {-1, 2}, uint8 b = {255}, int16 c = {-3}, uint16 d = {4}, int32 e = {5}, uint32 f = {6},
     uint64 h = {7}, double i = {0.1}, bool[2] j = {0, 1}, string[2] k = {"a", "b c"}>
    { y = Identity (x) })");
}

TEST(TextAgainstOnnx, ReadsTypes) {
  ExpectReadAsOnnxDoes(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float a, float[] b, bfloat16[?, N, 3] c) => (float y) { y = Identity (a) })");
}

TEST(TextAgainstOnnx, ReadsSubgraphs) {
  ExpectReadAsOnnxDoes(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[N] x) => (float[N] y) {
      y = If (c) <
        then_branch = yes () => (float[N] a) { a = Relu (x) },
        else_branch = no () => (float[N] b) <float k = {2}> { b = Mul (x, k) }
      >
    })");
}

TEST(TextAgainstOnnx, ReadsFunctions) {
  ExpectReadAsOnnxDoes(R"(
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[N] x) => (float[N] y) { y = local.f <a = 1.0> (x) }
    <domain: "local", opset_import: ["" : 17], doc_string: "d">
    f <a, b> (x) => (y) {
      t = LeakyRelu <alpha: float = @a> (x)
      y = Relu (t)
    })");
}

class File : public ::testing::TestWithParam<fs::path> {};

std::vector<fs::path> FilesUnder(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    // Structures whose weights are not bundled have a list of them instead.
    if (fs::exists(entry.path().parent_path() / "initializers.json")) continue;
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string CaseName(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.lexically_relative(kSource).string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

// The decompositions that libonnx can read: it has no names for the newer types.
std::vector<fs::path> OldDecompositions() {
  auto files = FilesUnder(kSource / "tests/data/decompositions", ".txt");
  std::erase_if(files, [](const fs::path& path) {
    const auto text = ReadFile(path.string());
    return !text.ok() || text->find("float8e4m3fn[") != std::string::npos;
  });
  return files;
}

class DecompositionAgainstOnnx : public File {};

TEST_P(DecompositionAgainstOnnx, IsReadAsOnnxDoes) {
  const auto text = Must(ReadFile(GetParam().string()));
  ExpectReadAsOnnxDoes(text);
}

INSTANTIATE_TEST_SUITE_P(All, DecompositionAgainstOnnx, ::testing::ValuesIn(OldDecompositions()),
                         CaseName);

class RealModelAsText : public File {};

TEST_P(RealModelAsText, SurvivesPrintingAndReading) {
  const auto model = Must(LoadModel(GetParam().string()));
  const std::string text = PrintModel(model);
  const auto again = Must(ParseModel(text));
  EXPECT_TRUE(PrintModel(again) == text);
  ExpectSame(ProtoOf(model), ProtoOf(again));
}

INSTANTIATE_TEST_SUITE_P(All, RealModelAsText,
                         ::testing::ValuesIn(FilesUnder(kSource / "models", ".onnx")), CaseName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RealModelAsText);

}  // namespace
}  // namespace pagefuse
