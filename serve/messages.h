// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens: turns of blocks go on.
//
// Source: Anthropic's API reference, "Messages" and "Streaming messages".
#pragma once

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

// Answers, or fails with what is wrong. By a worker.
absl::Status ServeMessages(const Call& call);
absl::Status ServeCountTokens(const Call& call);

}  // namespace pagefuse::serve
