// SPDX-License-Identifier: Apache-2.0
// How models mark reasoning in their answers: the formats that are known.
#pragma once

#include <span>
#include <string_view>

namespace pagefuse {

struct ReasoningFormat {
  std::string_view name;  // of --reasoning
  std::string_view opening, closing;
  std::string_view label;  // may stand right behind the opening mark, and belongs to it
  bool
      repeats;  // an answer may have several blocks; else it is content from the first one's end on
  std::span<const std::string_view> dropped;  // marks around content, which have no text

  // A template of the format has one of these marks, a tokenizer all of those.
  std::span<const std::string_view> in_template, in_tokenizer;
};

// harmony, gemma4, think; in the order in which they are tried.
std::span<const ReasoningFormat> ReasoningFormats();

}  // namespace pagefuse
