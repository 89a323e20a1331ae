// SPDX-License-Identifier: Apache-2.0
// Logprobs of tokens as OpenAI's chat completions and responses write them.
#pragma once

#include <vector>

#include "pagefuse/serve/answer_text.h"
#include "pagefuse/serve/fields.h"

namespace pagefuse::serve {

// `[{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}]`. Tokens without logprobs
// are left out.
Json TokenLogprobsJson(const std::vector<TokenDelta>& tokens, const Tokenizer& tokenizer);

}  // namespace pagefuse::serve
