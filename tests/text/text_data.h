// Data of the tests of text/.
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace pagefuse {

// A file of tests/data/text, or of an archive there.
inline std::string TextDataPath(const std::string& relative) {
  return PAGEFUSE_TEXT_DATA_DIR "/" + relative;
}
inline nlohmann::json ReadTextData(const std::string& relative) {
  std::ifstream file(TextDataPath(relative));
  return nlohmann::json::parse(file);
}

}  // namespace pagefuse
