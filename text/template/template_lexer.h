// SPDX-License-Identifier: Apache-2.0
// Splits a chat template into tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse::chat_template {

struct Token {
  enum Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kPrintBegin,
    kPrintEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kSymbol,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;  // of kText and kString: what it stands for
  int64_t integer = 0;
  double real = 0;
  int line = 1;

  bool Is(Kind other, std::string_view what) const { return kind == other && text == what; }
};

// Trims as Jinja does with trim_blocks and lstrip_blocks, as chat templates are rendered. The last
// token is kEnd. InvalidArgument naming the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace pagefuse::chat_template
