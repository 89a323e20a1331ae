// SPDX-License-Identifier: Apache-2.0
// Whole decoders on the device beside the same on the host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {

// Options of an engine whose cache has that format ("none": that of keys and values).
EngineOptions EngineOn(std::shared_ptr<DeviceContext> device, const std::string& kv_cache);

// Completions of the requests; failures of the test where it cannot be.
std::vector<Completion> Generated(const Model& model, const EngineOptions& options,
                                  const std::vector<Request>& requests);

// By how much the best of a row of logits is above the second best.
double GapOf(std::span<const float> logits);

// EXPECTs that the tokens of a greedy completion are those of another one, but for what follows a token
// that won by less than `least_gap`.
void ExpectSameTokens(const Completion& got, const Completion& want, double least_gap);

}  // namespace pagefuse
