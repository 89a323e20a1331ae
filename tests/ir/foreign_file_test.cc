// SPDX-License-Identifier: Apache-2.0
// Files that are taken for models, by how they begin.
#include "pagefuse/ir/onnx/foreign_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

std::string ErrorOf(const std::string& bytes) {
  return std::string(StdView(ReadModelBytes(bytes, {}).status().message()));
}

TEST(ForeignFile, SaysWhatIsNoModel) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::pair<std::string, const char*> cases[] = {
      {"GGUF\3\0\0\0"s, "a GGUF file of llama.cpp and no ONNX model: export the model to ONNX"},
      {"\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\""s, "a safetensors file of weights"},
      {"\2\0\0\0\0\0\0\0{}"s, "a safetensors file of weights"},
      {pointer, "a pointer of Git LFS in place of the file: get it with \"git lfs pull\""},
      {"PK\3\4\x14\0"s, "a zip archive, as PyTorch writes checkpoints"},
      {"\x80\2}q\0."s, "a pickle, as PyTorch writes checkpoints"},
      {"\x1C\0\0\0TFL3"s, "a TensorFlow Lite model"},
      {"\x20\0\0\0ORTM"s, "a model in the ORT format of ONNX Runtime"},
      {"\x1F\x8B\x08\0"s, "a gzip archive and no ONNX model: unpack it first"},
      {std::string(257, '\0') + "ustar", "a tar archive"},
      {"\n<!DOCTYPE html><html>", "an HTML page and no ONNX model: download the file itself"},
      {"{\n \"architectures\": []}", "a JSON file and no ONNX model"}};
  for (const auto& [bytes, expected] : cases) EXPECT_THAT(ErrorOf(bytes), HasSubstr(expected));
}

TEST(ForeignFile, LeavesModelsAlone) {
  EXPECT_TRUE(CheckIsNoForeignFile("").ok());
  EXPECT_TRUE(CheckIsNoForeignFile("\x08\x0A\x12\x07pytorch").ok());
  EXPECT_TRUE(CheckIsNoForeignFile("<ir_version: 10, opset_import: [\"\" : 21]>").ok());
  EXPECT_TRUE(CheckIsNoForeignFile("PK").ok());
  EXPECT_TRUE(CheckIsNoPointer("version 1 of a prompt").ok());
}

}  // namespace
}  // namespace pagefuse
