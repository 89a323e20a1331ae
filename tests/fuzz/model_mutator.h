// SPDX-License-Identifier: Apache-2.0
// Makes broken models out of whole ones.
#pragma once

#include <cstdint>
#include <string>

#include "seed_models.h"

namespace pagefuse::fuzz {

// The serialised model of one case: a seed model with a few mutations of its structure (types,
// dims, edges, attributes, ops, tensors, graphs in graphs, opsets, external data), and sometimes of
// its bytes. The same seed over the same models gives the same bytes.
std::string MakeCase(const SeedModels& seeds, uint64_t seed);

}  // namespace pagefuse::fuzz
