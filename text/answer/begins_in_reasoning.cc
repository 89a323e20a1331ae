// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/begins_in_reasoning.h"

#include "pagefuse/text/answer/json_text.h"

namespace pagefuse {

bool BeginsInReasoning(const ReasoningFormat* format, const RenderedChat& prompt) {
  if (format == nullptr) return false;
  std::string_view text = prompt.text;
  const auto trim = [&text] {
    while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  };
  trim();
  const std::string_view label = TrimJsonSpace(format->label);
  if (!label.empty() && text.ends_with(label)) {
    text.remove_suffix(label.size());
    trim();
  }
  if (!text.ends_with(format->opening)) return false;
  return !Touches(prompt.user, text.size() - format->opening.size(), prompt.text.size());
}

}  // namespace pagefuse
