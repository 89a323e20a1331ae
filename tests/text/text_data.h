// SPDX-License-Identifier: Apache-2.0
// Data of the tests of text/.
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "paths.h"

namespace pagefuse {

// A file of an archive of tests/data/text.
inline std::string TextDataPath(const std::string& relative) {
  return TestDataPath("text/").append(relative);
}
inline nlohmann::json ReadTextData(const std::string& relative) {
  std::ifstream file(TextDataPath(relative));
  return nlohmann::json::parse(file);
}

}  // namespace pagefuse
