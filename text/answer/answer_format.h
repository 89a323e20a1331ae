// SPDX-License-Identifier: Apache-2.0
// How a model writes its answers: how it marks reasoning, and how it calls tools.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/answer/reasoning_format.h"
#include "pagefuse/text/answer/tool_format.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse {

struct AnswerFormat {
  const ReasoningFormat* reasoning = nullptr;  // none: all is content
  const ToolFormat* tools = nullptr;           // none: no calls are read
  // Whether the template shows the model tools that it is given. Where it does not, or where `tools` is none, requests with tools
  // cannot be met.
  bool template_takes_tools = false;
};

// Options that name formats; empty: what the template and the tokenizer say; "none": none.
struct AnswerFormatNames {
  std::string_view reasoning = {};
  std::string_view tools = {};
};

// Formats are found by their marks: reasoning in the template's source or among the tokenizer's tokens, tool calls in the source of a
// template that takes tools, which rendering tells. An empty source is no template, and `tokenizer` may be null. InvalidArgument for
// a name that no format has, with those that there are.
absl::StatusOr<AnswerFormat> FindAnswerFormat(std::string_view template_source,
                                              const Tokenizer* tokenizer,
                                              const AnswerFormatNames& names);

// Special tokens that are part of the format's marks, ascending. The parser must see their text, all other special tokens have no text
// in answers: a TextStream with `special` gives it the right text if the special tokens that are not among these are kept from it.
std::vector<int64_t> MarkTokens(const AnswerFormat& format, const Tokenizer& tokenizer);

}  // namespace pagefuse
