#include "paths.h"

namespace pagefuse {

std::string SourcePath(std::string_view relative) {
  return std::string(PAGEFUSE_SOURCE_DIR "/").append(relative);
}

std::string WentWrongPath(std::string_view file) {
  return std::string(PAGEFUSE_WENT_WRONG_DIR "/").append(file);
}

std::string Gpt2Path(std::string_view file) {
  return std::string(PAGEFUSE_GPT2_DIR "/").append(file);
}

std::string DeepseekPath(std::string_view file) {
  return std::string(PAGEFUSE_DEEPSEEK_DIR "/").append(file);
}

std::string CorpusFolder(std::string_view name) {
  return std::string(PAGEFUSE_CORPUS_DIR "/").append(name);
}

}  // namespace pagefuse
