// SPDX-License-Identifier: Apache-2.0
// What a rewritten decoder is tried on before it serves a token: prompts at the edges of what its
// graph compares, cuts, clips and counts.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/plain_inputs.h"

namespace pagefuse {

struct ProbeText {
  std::vector<int64_t> prompt;
  std::vector<int64_t> following;  // a token a step
  int64_t first_position = 0;      // of the prompt, where an input gives positions

  auto operator<=>(const ProbeText&) const = default;
};

struct Probe {
  std::string name;              // "prompts of 5 and 3 tokens in one batch"
  std::vector<ProbeText> texts;  // in one batch
  int64_t piece = 0;             // tokens of a prompt that a step takes; 0: all
};

// Numbers at which a graph may change what it does.
struct ProbePoints {
  std::set<int64_t> lengths;    // of texts, and places in them
  std::set<int64_t> ids;        // of tokens
  std::set<int64_t> positions;  // of tokens, where an input gives them and texts may start anywhere
};

// Integer constants that meet positions, lengths or ids in comparisons, Clip, Mod, Min, Max, Slice,
// Gather and other arithmetic, with their neighbours, and where types that positions and ids are
// cast to stop being exact. Reads model-local functions only after they were inlined.
ProbePoints FindProbePoints(const Model& exported, const PlainInputs& inputs);

// The probes in the order of their worth: batches of unequal lengths, pieces, single tokens, then
// ids and lengths, short ones first. `edges`: sizes of blocks and windows. `vocabulary` 0: not
// known. `seed` chooses the tokens between those that matter.
std::vector<Probe> MakeProbes(const ProbePoints& points, const std::set<int64_t>& edges,
                              int64_t vocabulary, int seed = 0);

}  // namespace pagefuse
