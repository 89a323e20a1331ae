// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/request_fields.h"

#include <charconv>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/text/model/stop_match.h"

namespace pagefuse::serve {
namespace {

constexpr int64_t kMaxInt32Value = std::numeric_limits<int32_t>::max();
constexpr size_t kMostStops = 16;

template <typename Value, typename Found>
void Take(const std::optional<Found>& found, Value& value) {
  if (found) value = static_cast<Value>(*found);
}

absl::Status ReadPenalties(Fields& fields, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(const auto frequency, fields.Number("frequency_penalty", -2, 2));
  Take(frequency, sampling.frequency_penalty);
  PF_ASSIGN_OR_RETURN(const auto presence, fields.Number("presence_penalty", -2, 2));
  Take(presence, sampling.presence_penalty);
  return absl::OkStatus();
}

// The largest id that can be a token.
int64_t LastToken(const ServedModel& model) {
  const int64_t vocabulary = model.decoder ? model.decoder->vocabulary() : 0;
  return vocabulary > 0 ? vocabulary - 1 : std::numeric_limits<int64_t>::max();
}

// `{"<token id>": bias}`
absl::Status ReadBias(Fields& fields, int64_t last_token, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(auto bias, fields.Object("logit_bias"));
  if (!bias) return absl::OkStatus();
  const Json& entries = *fields.Find("logit_bias");
  constexpr size_t kMost = 1024;
  if (entries.size() > kMost) {
    return fields.Wrong("logit_bias",
                        StrCat("expected ", kMost, " entries at most, got ", entries.size()));
  }
  for (const auto& [name, value] : entries.items()) {
    int64_t token = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool whole = read.ec == std::errc() && read.ptr == name.data() + name.size();
    if (!whole || token < 0 || token > last_token) {
      return fields.Wrong("logit_bias", StrCat("expected token ids from 0 to ", last_token,
                                               " as names, got \"", name, "\""));
    }
    PF_ASSIGN_OR_RETURN(const auto number, bias->Number(name, -100, 100));
    if (number) sampling.bias[token] = *number;
  }
  return absl::OkStatus();
}

absl::Status ReadStream(Fields& fields, RequestFields& found) {
  PF_ASSIGN_OR_RETURN(const auto stream, fields.Flag("stream"));
  Take(stream, found.stream);
  PF_ASSIGN_OR_RETURN(auto options, fields.Object("stream_options"));
  if (!options) return absl::OkStatus();
  if (!found.stream)
    return fields.Wrong("stream_options", "expected none without \"stream\": true");
  PF_ASSIGN_OR_RETURN(const auto usage, options->Flag("include_usage"));
  Take(usage, found.include_usage);
  options->Accept({"include_obfuscation"});
  return absl::OkStatus();
}

absl::Status ReadEnds(Fields& fields, const ServedModel& model, RequestFields& found) {
  PF_RETURN_IF_ERROR(ReadStops(fields, "stop", model, found));
  PF_ASSIGN_OR_RETURN(const auto stop_tokens, fields.Integers("stop_token_ids", 1024));
  if (stop_tokens) {
    const int64_t last = LastToken(model);
    for (const int64_t token : *stop_tokens) {
      if (token >= 0 && token <= last) continue;
      return fields.Wrong("stop_token_ids",
                          StrCat("expected token ids from 0 to ", last, ", got ", token));
    }
    found.stop_tokens.insert(found.stop_tokens.end(), stop_tokens->begin(), stop_tokens->end());
  }
  PF_ASSIGN_OR_RETURN(const auto ignores, fields.Flag("ignore_eos"));
  if (ignores.value_or(false)) return absl::OkStatus();
  const std::vector<int64_t>& ends = model.config.end_tokens;
  found.stop_tokens.insert(found.stop_tokens.end(), ends.begin(), ends.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadSampling(Fields& fields, SamplingOptions& sampling) {
  PF_ASSIGN_OR_RETURN(const auto temperature, fields.Number("temperature", 0, 2));
  Take(temperature, sampling.temperature);
  PF_ASSIGN_OR_RETURN(const auto top_p, fields.Number("top_p", 1e-6, 1));
  Take(top_p, sampling.top_p);
  PF_ASSIGN_OR_RETURN(const auto top_k, fields.Integer("top_k", -1, kMaxInt32Value));
  if (top_k) sampling.top_k = *top_k < 0 ? 0 : *top_k;
  PF_ASSIGN_OR_RETURN(const auto min_p, fields.Number("min_p", 0, 1));
  Take(min_p, sampling.min_p);
  PF_ASSIGN_OR_RETURN(const auto repetition, fields.Number("repetition_penalty", 1e-6, 10));
  Take(repetition, sampling.repetition_penalty);
  PF_ASSIGN_OR_RETURN(const auto min_tokens, fields.Integer("min_tokens", 0, kMaxInt32Value));
  Take(min_tokens, sampling.min_tokens);
  return absl::OkStatus();
}

absl::Status ReadStops(Fields& fields, std::string_view name, const ServedModel& model,
                       RequestFields& found) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    found.stops = {value->get<std::string>()};
  } else {
    PF_ASSIGN_OR_RETURN(auto stops, fields.Texts(name, kMostStops));
    if (stops) found.stops = *std::move(stops);
  }
  if (!model.tokenizer) return fields.Wrong(name, "expected none: this model has no tokenizer");
  const auto tokens = StopTokens(*model.tokenizer, found.stops);
  if (!tokens.ok()) return fields.Wrong(name, StdView(tokens.status().message()));
  found.stop_tokens.insert(found.stop_tokens.end(), tokens->begin(), tokens->end());
  return absl::OkStatus();
}

absl::StatusOr<RequestFields> ReadRequestFields(Fields& fields, const ServedModel& model) {
  RequestFields found;
  found.sampling = model.sampling;
  PF_RETURN_IF_ERROR(ReadSampling(fields, found.sampling));
  PF_RETURN_IF_ERROR(ReadPenalties(fields, found.sampling));
  PF_RETURN_IF_ERROR(ReadBias(fields, LastToken(model), found.sampling));
  constexpr int64_t kLeastSeed = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMostSeed = std::numeric_limits<int64_t>::max();
  PF_ASSIGN_OR_RETURN(const auto seed, fields.Integer("seed", kLeastSeed, kMostSeed));
  if (seed) found.sampling.seed = static_cast<uint64_t>(*seed);
  PF_ASSIGN_OR_RETURN(const auto samples, fields.Integer("n", 1, 16));
  Take(samples, found.samples);
  PF_RETURN_IF_ERROR(ReadEnds(fields, model, found));
  PF_RETURN_IF_ERROR(ReadStream(fields, found));
  PF_RETURN_IF_ERROR(
      fields.Refuse("prompt_logprobs", "expected none: prompts have no logprobs", 0));
  PF_RETURN_IF_ERROR(
      fields.Refuse("use_beam_search", "expected none: there is no beam search", false));
  PF_ASSIGN_OR_RETURN(const auto salt, fields.Text("cache_salt"));
  Take(salt, found.salt);
  PF_ASSIGN_OR_RETURN(const auto skips, fields.Flag("skip_special_tokens"));
  found.keeps_special = !skips.value_or(true);
  fields.Accept({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention"});
  return found;
}

Json OpenAiUsage(int64_t prompt, int64_t cached, int64_t completion, int64_t reasoning) {
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

}  // namespace pagefuse::serve
