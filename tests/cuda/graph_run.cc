// SPDX-License-Identifier: Apache-2.0
#include "graph_run.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace pagefuse {

EngineOptions EngineOn(std::shared_ptr<DeviceContext> device, const std::string& kv_cache) {
  EngineOptions options;
  options.session.device = std::move(device);
  options.kv_cache = kv_cache;
  options.cache_tokens = 4096;
  return options;
}

std::vector<Completion> Generated(const Model& model, const EngineOptions& options,
                                  const std::vector<Request>& requests) {
  auto engine = Engine::Create(model.Clone(), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  auto completions = (*engine)->Generate(requests);
  EXPECT_TRUE(completions.ok()) << completions.status();
  if (!completions.ok()) return {};
  for (const Completion& completion : *completions) {
    EXPECT_TRUE(completion.error.ok()) << completion.error;
  }
  return *std::move(completions);
}

double GapOf(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity(), second = best;
  for (const float logit : logits) {
    second = std::max(second, std::min(best, logit));
    best = std::max(best, logit);
  }
  return static_cast<double>(best) - second;
}

void ExpectSameTokens(const Completion& got, const Completion& want, double least_gap) {
  for (size_t t = 0; t < std::min(got.tokens.size(), want.tokens.size()); ++t) {
    if (got.tokens[t] == want.tokens[t]) continue;
    const double gap = t < want.logits.size() ? GapOf(want.logits[t]) : least_gap;
    EXPECT_LT(gap, least_gap) << "token " << t << ": got " << got.tokens[t] << ", want "
                              << want.tokens[t];
    return;
  }
  EXPECT_EQ(got.tokens.size(), want.tokens.size());
}

}  // namespace pagefuse
