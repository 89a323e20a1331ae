// SPDX-License-Identifier: Apache-2.0
// One test for every tests/passes/<folder>/<name>.onnxtxt: see passes/debug/pass_case.h for the format.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/passes/debug/pass_case.h"

namespace pagefuse {
namespace {

std::filesystem::path Root() { return SourcePath("tests/passes"); }

std::vector<std::string> PassFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Root())) {
    if (entry.path().extension() == ".onnxtxt") {
      files.push_back(std::filesystem::relative(entry.path(), Root()).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.rfind('.'));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

bool UpdatesFiles() {
  const char* update = std::getenv("PAGEFUSE_UPDATE_TESTS");
  return update != nullptr && std::string_view(update) == "1";
}

class PassFile : public testing::TestWithParam<std::string> {};

TEST_P(PassFile, DoesWhatItSays) {
  const auto test = Must(ReadPassCase((Root() / GetParam()).string()));
  const CaseResult result = RunPassCase(test);
  if (UpdatesFiles() && !result.updated.empty()) {
    std::ofstream(test.path) << result.updated;
    return;
  }
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(Files, PassFile, testing::ValuesIn(PassFiles()), TestName);

}  // namespace
}  // namespace pagefuse
