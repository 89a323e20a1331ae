// SPDX-License-Identifier: Apache-2.0
// Whether an answer is reasoning from its first word on.
#pragma once

#include "pagefuse/text/answer/reasoning_format.h"
#include "pagefuse/text/template/chat_template.h"

namespace pagefuse {

// True if the prompt ends in the opening mark, white space behind it apart, and the template has written it: the same text in a message
// is no mark. `format` may be null.
bool BeginsInReasoning(const ReasoningFormat* format, const RenderedChat& prompt);

}  // namespace pagefuse
