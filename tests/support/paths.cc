// SPDX-License-Identifier: Apache-2.0
#include "paths.h"

namespace pagefuse {

std::string SourcePath(std::string_view relative) {
  return std::string(PAGEFUSE_SOURCE_DIR "/").append(relative);
}

std::string TestDataPath(std::string_view relative) {
  return std::string(PAGEFUSE_TEST_DATA_DIR "/").append(relative);
}

std::string WentWrongPath(std::string_view file) {
  return TestDataPath("went_wrong/").append(file);
}

std::string Gpt2Path(std::string_view file) { return TestDataPath("gpt2/").append(file); }

std::string DeepseekPath(std::string_view file) { return TestDataPath("deepseek/").append(file); }

std::string CorpusFolder(std::string_view name) { return TestDataPath("corpus/").append(name); }

}  // namespace pagefuse
