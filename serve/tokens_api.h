// SPDX-License-Identifier: Apache-2.0
// What a server tells of its model: /v1/models, and texts to tokens and back.
//
// Source: OpenAI's API reference, "Models", and vLLM's /tokenize and /detokenize.
#pragma once

#include <string_view>

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

// `id` of /v1/models/ID; empty: the list. NotFound for another model.
absl::StatusOr<Json> ModelsJson(const ServedModel& model, std::string_view id);
absl::Status ServeTokenize(const Call& call);
absl::Status ServeDetokenize(const Call& call);

}  // namespace pagefuse::serve
