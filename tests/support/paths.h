// Where the files that tests read lie.
#pragma once

#include <string>
#include <string_view>

namespace pagefuse {

// `relative` in the top folder of the sources.
std::string SourcePath(std::string_view relative);
// A file of data/went_wrong/models.tar.xz, which is unpacked at configure time.
std::string WentWrongPath(std::string_view file);
// A file of data/gpt2/models.tar.xz, unpacked likewise.
std::string Gpt2Path(std::string_view file);
// A file of data/deepseek/models.tar.xz, unpacked likewise.
std::string DeepseekPath(std::string_view file);
// A case of data/corpus, unpacked likewise; all of them for the empty name.
std::string CorpusFolder(std::string_view name);

}  // namespace pagefuse
