// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: texts or tokens go on.
//
// Source: OpenAI's API reference, "Completions", and what vLLM's server adds to it.
#pragma once

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

// Answers, or fails with what is wrong. By a worker.
absl::Status ServeCompletions(const Call& call);

}  // namespace pagefuse::serve
