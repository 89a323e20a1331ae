// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses: items go on. Nothing is stored, so that each request has all of them.
//
// Source: OpenAI's API reference, "Responses" and "Streaming events".
#pragma once

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

// Answers, or fails with what is wrong. By a worker.
absl::Status ServeResponses(const Call& call);

}  // namespace pagefuse::serve
