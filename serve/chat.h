// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: a conversation goes on, by the model's chat template.
//
// Source: OpenAI's API reference, "Chat", and what vLLM's server adds to it.
#pragma once

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

// Answers, or fails with what is wrong. By a worker.
absl::Status ServeChat(const Call& call);

}  // namespace pagefuse::serve
