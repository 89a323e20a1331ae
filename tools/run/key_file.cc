// SPDX-License-Identifier: Apache-2.0
#include "tools/run/key_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::tools {

absl::StatusOr<std::vector<std::string>> ReadKeys(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> keys;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = absl::StripAsciiWhitespace(AbslView(text).substr(begin, end - begin));
    if (!line.empty()) keys.emplace_back(line);
    begin = end + 1;
  }
  if (!keys.empty()) return keys;
  return absl::InvalidArgumentError(
      StrCat("--api-key-file \"", path, "\": expected a key a line, got none"));
}

}  // namespace pagefuse::tools
