// SPDX-License-Identifier: Apache-2.0
// Parameters that several protocols name alike: how an answer is drawn, and where it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/served_model.h"

namespace pagefuse::serve {

struct RequestFields {
  SamplingOptions sampling;  // the model's own, with what the request says
  int64_t samples = 1;
  std::vector<std::string> stops;
  std::vector<int64_t> stop_tokens;  // with the model's end tokens, unless they are ignored
  std::string salt;
  bool stream = false, include_usage = false;
  bool keeps_special = false;  // special tokens have text
};

// temperature, top_p and what vLLM adds: top_k, min_p, repetition_penalty, min_tokens.
absl::Status ReadSampling(Fields& fields, SamplingOptions& sampling);
// `name`: "stop", a text or a list of up to 16; or "stop_sequences".
absl::Status ReadStops(Fields& fields, std::string_view name, const ServedModel& model,
                       RequestFields& found);
// All that completions and chat completions of OpenAI's API and vLLM's name alike.
absl::StatusOr<RequestFields> ReadRequestFields(Fields& fields, const ServedModel& model);

// `{"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}}`
Json OpenAiUsage(int64_t prompt, int64_t cached, int64_t completion, int64_t reasoning);

}  // namespace pagefuse::serve
