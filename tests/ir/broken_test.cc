// SPDX-License-Identifier: Apache-2.0
// Every file in broken/ is refused with the message in its first line, or in the .error file beside a binary one.
#include <algorithm>
#include <filesystem>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = SourcePath("tests/ir/broken");

std::vector<fs::path> Files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".txtpb" || extension == ".onnx") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The bytes of a model, which is protobuf's text format or binary.
std::string Encode(const fs::path& path) {
  const std::string content = Must(ReadFile(path.string()));
  if (path.extension() == ".onnx") return content;
  onnx::ModelProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(content, &proto)) << path;
  return proto.SerializeAsString();
}

std::string Refusal(const fs::path& path) {
  constexpr std::string_view kTold = "# refused: ";
  if (path.extension() == ".onnx") {
    return Must(ReadFile(fs::path(path).replace_extension(".error").string()));
  }
  const std::string content = Must(ReadFile(path.string()));
  EXPECT_TRUE(content.starts_with(kTold)) << path;
  return content.substr(kTold.size(), content.find('\n') + 1 - kTold.size());
}

class BrokenModel : public testing::TestWithParam<fs::path> {};

TEST_P(BrokenModel, IsRefusedWithItsMessage) {
  const absl::StatusOr<Model> model =
      ImportModel(Encode(GetParam()), {.base_dir = kFolder.string()});
  const std::string expected = Refusal(GetParam());
  ASSERT_FALSE(model.ok());
  const std::string message(StdView(model.status().message()));
  // An error deep inside names all the places on the way; the file has the last.
  if (GetParam().stem() == "nested_too_deeply") {
    EXPECT_TRUE((message + "\n").ends_with(expected)) << message;
  } else {
    EXPECT_EQ(message + "\n", expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, BrokenModel, testing::ValuesIn(Files(kFolder)),
                         [](const auto& info) { return info.param.stem().string(); });

TEST(Import, RefusesExternalDataWithoutAFolder) {
  const absl::StatusOr<Model> model = ImportModel(Encode(kFolder / "external_parent.txtpb"), {});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(StdView(model.status().message()),
            "initialiser \"w\": external data: there is no folder to look for it");
}

}  // namespace
}  // namespace pagefuse
