// SPDX-License-Identifier: Apache-2.0
// The flags that say how tokens are sampled.
#include "tools/run/generate.h"

namespace pagefuse::tools {
namespace {

template <typename From, typename To>
void Take(const std::optional<From>& flag, To& option) {
  if (flag) option = static_cast<To>(*flag);
}

}  // namespace

void AddSamplingFlags(Command command, SamplingFlags& flags) {
  command.AddReal(
      "--temperature", flags.temperature,
      "0 to 100; 0 takes the likeliest token. This and the next six: what generation_config.json or "
      "genai_config.json say if left out, else 0");
  command.AddNumber("--top-k", flags.top_k, {}, "sample from the K likeliest tokens; 0 for all");
  command.AddReal("--top-p", flags.top_p, "from the fewest tokens whose probabilities reach P");
  command.AddReal("--min-p", flags.min_p,
                  "from tokens with P times the largest probability, or more");
  command.AddReal("--repetition-penalty", flags.repetition_penalty,
                  "of tokens that were there; 1 for none");
  command.AddReal("--frequency-penalty", flags.frequency_penalty,
                  "-2 to 2, for each time a token came");
  command.AddReal("--presence-penalty", flags.presence_penalty, "-2 to 2, for tokens that came");
  command.AddNumber("--seed", flags.seed, {},
                    "the same seed gives the same tokens; a fresh one if left out");
  command.AddNumber("--logprobs", flags.logprobs, {0, 20},
                    "with --json: log probabilities of the tokens, and of the N likeliest");
}

absl::StatusOr<SamplingOptions> MakeSampling(const SamplingFlags& flags, SamplingOptions sampling) {
  Take(flags.temperature, sampling.temperature);
  Take(flags.top_k, sampling.top_k);
  Take(flags.top_p, sampling.top_p);
  Take(flags.min_p, sampling.min_p);
  Take(flags.repetition_penalty, sampling.repetition_penalty);
  Take(flags.frequency_penalty, sampling.frequency_penalty);
  Take(flags.presence_penalty, sampling.presence_penalty);
  if (flags.seed) sampling.seed = static_cast<uint64_t>(*flags.seed);
  sampling.logprobs = flags.logprobs;
  const absl::Status status = CheckSampling(sampling);
  if (!status.ok()) return status;
  return sampling;
}

}  // namespace pagefuse::tools
