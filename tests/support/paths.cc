// SPDX-License-Identifier: Apache-2.0
#include "paths.h"

#include <cstdlib>

namespace pagefuse {
namespace {

// Below the folder that the environment names, for tests that were carried to another machine.
std::string Below(const char* variable, const char* built_in, std::string_view relative) {
  const char* folder = std::getenv(variable);
  return std::string(folder != nullptr ? folder : built_in).append("/").append(relative);
}

}  // namespace

std::string SourcePath(std::string_view relative) {
  return Below("PAGEFUSE_SOURCE_DIR", PAGEFUSE_SOURCE_DIR, relative);
}

std::string TestDataPath(std::string_view relative) {
  return Below("PAGEFUSE_TEST_DATA_DIR", PAGEFUSE_TEST_DATA_DIR, relative);
}

std::string WentWrongPath(std::string_view file) {
  return TestDataPath("went_wrong/").append(file);
}

std::string Gpt2Path(std::string_view file) { return TestDataPath("gpt2/").append(file); }

std::string DeepseekPath(std::string_view file) { return TestDataPath("deepseek/").append(file); }

std::string CorpusFolder(std::string_view name) { return TestDataPath("corpus/").append(name); }

}  // namespace pagefuse
