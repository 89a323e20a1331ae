// SPDX-License-Identifier: Apache-2.0
// sampler_bench: one token of 262144 logits, for settings that people use; seconds of the processor.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

#include "pagefuse/runtime/sampler.h"

namespace {

using pagefuse::Sampler;
using pagefuse::SamplingOptions;

double Milliseconds(const SamplingOptions& options, const std::vector<float>& logits) {
  constexpr int kRounds = 20, kTokens = 20;
  double best = 1e30;
  std::vector<int64_t> tokens = {1, 2, 3};
  for (int round = 0; round < kRounds; ++round) {
    Sampler sampler(options, round, 0);
    const std::clock_t start = std::clock();
    for (int i = 0; i < kTokens; ++i) (void)sampler.Next(logits, tokens, 3, {});
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kTokens);
  }
  return best * 1e3;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(262144);
  for (float& logit : logits) logit = normal(random);
  const std::pair<const char*, SamplingOptions> settings[] = {
      {"greedy", {}},
      {"temperature 1", {.temperature = 1}},
      {"top-k 64, top-p 0.95, min-p 0.05",
       {.temperature = 1, .top_k = 64, .top_p = 0.95, .min_p = 0.05}},
      {"min-p 0.05", {.temperature = 1, .min_p = 0.05}},
      {"top-p 0.95", {.temperature = 1, .top_p = 0.95}},
      {"top-k 64, repetition 1.1", {.temperature = 1, .top_k = 64, .repetition_penalty = 1.1}},
      {"greedy, logprobs 5", {.logprobs = 5}},
      {"temperature 1, logprobs 5", {.temperature = 1, .logprobs = 5}},
      {"temperature 2, top-p 0.95", {.temperature = 2, .top_p = 0.95}}};
  for (const auto& [name, options] : settings) {
    std::printf("%-34s %7.3f ms\n", name, Milliseconds(options, logits));
  }
  return 0;
}
