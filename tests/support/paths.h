// SPDX-License-Identifier: Apache-2.0
// Where the files that tests read lie.
#pragma once

#include <string>
#include <string_view>

namespace pagefuse {

// `relative` in the top folder of the sources, or below PAGEFUSE_SOURCE_DIR of the environment.
std::string SourcePath(std::string_view relative);
// `relative` in the folder that the archives are unpacked in at configure time (cmake/PagefuseTestData.cmake), or below
// PAGEFUSE_TEST_DATA_DIR of the environment.
std::string TestDataPath(std::string_view relative);
// A file of data/went_wrong, of data/gpt2, of data/deepseek there.
std::string WentWrongPath(std::string_view file);
std::string Gpt2Path(std::string_view file);
std::string DeepseekPath(std::string_view file);
// A case of data/corpus; all of them for the empty name.
std::string CorpusFolder(std::string_view name);

}  // namespace pagefuse
